"""Passing failures are tried again, as often and with such waits as the policy allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.errors import FetchError
from wids.storage.retry import PassingError, RetryPolicy, retrying

IMPATIENT = RetryPolicy(attempts=3, first_delay_s=0, longest_delay_s=0)


def test_a_temporary_failure_is_tried_again() -> None:
    errors = [PassingError("one"), PassingError("two")]

    def attempt() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    assert retrying(attempt, "a.tar", IMPATIENT) == "done"


def test_the_last_failure_names_the_object_the_attempts_and_the_cause() -> None:
    def attempt() -> None:
        raise PassingError("the server answers 503")

    with pytest.raises(FetchError, match=r"a\.tar: .*3 attempts.*the server answers 503; check"):
        retrying(attempt, "a.tar", IMPATIENT)


@given(st.integers(1, 50), st.none() | st.floats(0, 1e9), st.floats(0, 1, exclude_max=True))
def test_no_wait_is_longer_than_the_policy_allows(failures: int, retry_after_s: float | None, jitter: float) -> None:
    policy = RetryPolicy()

    delay = policy.delay(failures, retry_after_s, jitter)

    asked_for = min(retry_after_s or 0, policy.longest_retry_after_s)
    assert 0 < delay <= max(policy.longest_delay_s, asked_for)
    assert delay >= asked_for
