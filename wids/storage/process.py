"""Values that cannot cross a fork or a pickle: each process makes its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process makes for itself on first use.

    A forked child keeps a reference to its parent's value without using it: finalizing the value in the child could write
    to connections that the parent still uses, or wait for threads that the child does not have.

    Args:
        make: Makes the value. Two threads may call it at the same time; both get the same value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        """Return the value of this process."""
        process = os.getpid()
        value = self._values.get(process)
        if value is None:
            # setdefault is atomic. A lock could be held by another thread during a fork, and the child's copy would then
            # stay locked.
            value = self._values.setdefault(process, self._make())
        return value

    def take(self) -> T | None:
        """Remove and return the value of this process; None when it has none. The next `get` makes a new one."""
        return self._values.pop(os.getpid(), None)

    @property
    def is_made(self) -> bool:
        """Whether this process has a value."""
        return os.getpid() in self._values
