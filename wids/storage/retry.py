"""Retries: temporary errors are tried again after growing waits, permanent ones are raised at once.

A transport raises `PassingError` for a problem that another attempt may solve (a refused connection, status 503, a body cut
short). `Attempts` counts these, waits, and turns the last one into a `FetchError`.
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
    """A problem that another attempt may solve; never raised to users.

    Args:
        message: What went wrong, secrets redacted.
        retry_after_s: Seconds that the server asks to wait; None when it does not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often something is attempted, and how long the waits between attempts are."""

    attempts: int = 6
    """Total number of attempts, including the first."""
    first_delay_s: float = 0.5
    """Seconds to wait after the first failure; doubled with each further one."""
    longest_delay_s: float = 16.0
    """Longest wait in seconds, unless the server asks for more."""
    longest_retry_after_s: float = 120.0
    """Longest wait in seconds that a server can ask for."""

    def delay(self, failures: int, retry_after_s: float | None, jitter: float) -> float:
        """Return the seconds to wait after a failure.

        Args:
            failures: Number of failures so far, at least 1.
            retry_after_s: Seconds that the server asks to wait; None when it does not say.
            jitter: A random number in `[0, 1)`, which shortens the wait by up to half, so that clients do not retry in step.

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
        name: Name of what is fetched, for messages; secrets redacted.
        policy: Number of attempts, and waits between them.
        note: Called before each further attempt; may be None.
    """

    def __init__(self, name: str, policy: RetryPolicy, note: Callable[[], object] | None = None) -> None:
        self._name = name
        self._policy = policy
        self._note = note
        self._failures = 0

    def wait_after(self, error: PassingError, *, progressed: bool = False) -> None:
        """Count a failure, and wait before the next attempt.

        Args:
            error: What went wrong.
            progressed: The attempt resumed the previous one and got further, so that the count starts again.

        Raises:
            FetchError: This was the last attempt.
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
    """Call `attempt` until it does not raise `PassingError`; return its result. Other arguments are those of `Attempts`.

    Raises:
        FetchError: The last attempt failed too.
    """
    attempts = Attempts(name, policy, note)
    while True:
        try:
            return attempt()
        except PassingError as error:
            attempts.wait_after(error)
