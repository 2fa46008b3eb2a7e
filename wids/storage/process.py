"""What cannot cross a fork or a pickle is made anew in each process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process makes for itself when it first asks.

    A child keeps the value of its parent without using it: finalizing it there could write to connections that the
    parent still uses, or wait for threads that the child does not have.

    Args:
        make: Makes the value. Two threads that ask at once may both call it; all get the same value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        """Return the value of this process."""
        process = os.getpid()
        value = self._values.get(process)
        if value is None:
            # setdefault is one step, so no lock is needed that a fork could catch in the locked state.
            value = self._values.setdefault(process, self._make())
        return value

    def take(self) -> T | None:
        """Return the value of this process, which makes a new one when it next asks; None where it has none."""
        return self._values.pop(os.getpid(), None)

    @property
    def is_made(self) -> bool:
        """Whether this process has asked before."""
        return os.getpid() in self._values
