"""A range of numbers means the same to every command that takes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.tools.number_range import check_range, parse_range, read_range


@given(st.integers(0, 10**17), st.integers(0, 10**17))
def test_both_ends_are_included(first: int, last: int) -> None:
    first, last = sorted((first, last))

    assert parse_range("--shard", f"{first}-{last}") == range(first, last + 1)
    assert parse_range("--shard", f"{first}") == range(first, first + 1)


@pytest.mark.parametrize(
    "text", ["", "-", "-3", "3-", "3--7", "-3-7", " 3", "3 - 7", "3-7\n", "3.0", "+3", "٣", "³", "a"]
)
def test_other_text_is_no_range(text: str) -> None:
    assert parse_range("--shard", text) is None
    with pytest.raises(ValueError, match=r"--samples is .*; it must be a number, or the first and last of a range"):
        read_range("--samples", text)


def test_the_lower_number_comes_first() -> None:
    with pytest.raises(ValueError, match="is '7-3'; a range is written with its lower number first"):
        read_range("--samples", "7-3")


@pytest.mark.parametrize("text", ["5", "4-5", "0-5", "9" * 19, "9" * 5000, "3-" + "9" * 5000])
def test_what_does_not_exist_is_out_of_range(text: str) -> None:
    numbers = read_range("--shards", text)

    with pytest.raises(LookupError, match=r"^shards? .* out of range for 5 shards, numbered from 0$"):
        check_range(numbers, 5, "shard")


@pytest.mark.parametrize("numbers", [range(-1, 2), range(-3, -1)])
def test_numbers_below_0_are_out_of_range(numbers: range) -> None:
    with pytest.raises(LookupError, match="out of range for 5 samples"):
        check_range(numbers, 5, "sample")


@pytest.mark.parametrize("numbers", [range(5), range(4, 5), range(0)])
def test_numbers_of_existing_things_are_accepted(numbers: range) -> None:
    check_range(numbers, 5, "sample")
