"""What can pass is tried again, each time after a longer wait; what cannot is raised at once.

A transport raises `PassingError` for what may be gone at the next attempt (a refused connection, status 503, a body cut
short). `Attempts` counts those, waits, and at last turns the cause into a `FetchError`.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from wids.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

T = TypeVar("T")


class PassingError(Exception):
    """Something that may be gone at the next attempt; never leaves this package.

    Args:
        message: What went wrong, secrets redacted.
        retry_after_s: Seconds that the server asks to wait; None where it does not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which waits something is tried again."""

    attempts: int = 6
    """Attempts in all, the first included."""
    first_delay_s: float = 0.5
    """Wait after the first failure; it doubles with each further one."""
    longest_delay_s: float = 16.0
    """No wait is longer, except where the server asks for it."""
    longest_retry_after_s: float = 120.0
    """A server that asks for a longer wait gets this one."""

    def delay(self, failures: int, retry_after_s: float | None, jitter: float) -> float:
        """Return the seconds to wait after the latest of `failures`.

        Args:
            failures: At least 1.
            retry_after_s: What the server asked for, or None.
            jitter: In `[0, 1)`; up to half of the wait is taken off by it, so that clients do not come back in step.

        Examples:
            >>> [RetryPolicy().delay(failures, None, 0.0) for failures in (1, 2, 3, 9)]
            [0.5, 1.0, 2.0, 16.0]
            >>> RetryPolicy().delay(1, 5.0, 0.0)
            5.0
        """
        delay = min(self.longest_delay_s, self.first_delay_s * 2.0 ** (failures - 1))
        delay *= 1 - jitter / 2
        if retry_after_s is not None:
            delay = max(delay, min(retry_after_s, self.longest_retry_after_s))
        return delay


class Attempts:
    """Counts the failures of one task and waits between its attempts.

    Args:
        name: Of what is fetched, for messages; secrets redacted.
        policy: How often and after which waits.
        note: Called before each further attempt; None for nothing.
    """

    def __init__(self, name: str, policy: RetryPolicy, note: Callable[[], object] | None = None) -> None:
        self._name = name
        self._policy = policy
        self._note = note
        self._failures = 0

    def wait_after(self, error: PassingError, *, progressed: bool = False) -> None:
        """Count a failure and wait before the next attempt.

        Args:
            error: What went wrong.
            progressed: The attempt went on where the one before had ended and got further: the count begins anew.

        Raises:
            FetchError: That was the last attempt.
        """
        self._failures = 1 if progressed else self._failures + 1
        if self._failures >= self._policy.attempts:
            raise FetchError(
                f"{self._name}: cannot be fetched, {self._failures} attempts failed, the last with: {error}; "
                "check the network and the URL, then try again"
            ) from error
        jitter = random.random()  # noqa: S311 - spreads clients, guards nothing
        delay = self._policy.delay(self._failures, error.retry_after_s, jitter)
        _log.debug("%s: attempt %d failed (%s), next in %.1f s", self._name, self._failures, error, delay)
        if self._note is not None:
            self._note()
        time.sleep(delay)


def retrying(attempt: Callable[[], T], name: str, policy: RetryPolicy, note: Callable[[], object] | None = None) -> T:
    """Return what `attempt` returns, tried again while it raises `PassingError`; arguments are those of `Attempts`.

    Raises:
        FetchError: The last attempt failed too.
    """
    attempts = Attempts(name, policy, note)
    while True:
        try:
            return attempt()
        except PassingError as error:
            attempts.wait_after(error)
