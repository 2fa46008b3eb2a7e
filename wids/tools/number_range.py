"""What users write for consecutive numbers, `3` or `0-99`, to those numbers."""

from __future__ import annotations

import re
import sys

from wids.words import counted

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_MAX_DIGITS = 18
"""Longer numbers are beyond the end of any dataset; Python refuses to parse those of thousands of digits."""


def parse_range(name: str, text: str) -> range | None:
    """Return the numbers that `A` or `A-B` stands for, B included; None where the text has another form.

    Args:
        name: What the message calls the text.
        text: What the user wrote.

    Raises:
        ValueError: B is below A.

    Examples:
        >>> [parse_range("--shard", text) for text in ("3-5", "9", "-9")]
        [range(3, 6), range(9, 10), None]
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last = _to_number(match[1]), _to_number(match[2] or match[1])
    if last < first:
        raise ValueError(f"{name} is {text!r}; a range is written with its lower number first, such as 0-99")
    return range(first, last + 1)


def read_range(name: str, text: str) -> range:
    """Do what `parse_range` does where nothing but a range is allowed.

    Args:
        name: What the message calls the text.
        text: What the user wrote.

    Raises:
        ValueError: The text is neither `A` nor `A-B`.

    Examples:
        >>> read_range("--shards", "0-99")
        range(0, 100)
    """
    numbers = parse_range(name, text)
    if numbers is None:
        raise ValueError(f"{name} is {text!r}; it must be a number, or the first and last of a range, such as 0-99")
    return numbers


def check_range(numbers: range, num_things: int, thing: str) -> None:
    """Check that consecutive numbers are those of existing things; no numbers at all always are.

    Args:
        numbers: Of the things that are wanted; of step 1.
        num_things: How many there are.
        thing: What one is called.

    Raises:
        LookupError: One of the numbers is out of range.

    Examples:
        >>> check_range(range(3, 6), 10, "shard")
        >>> check_range(range(3, 6), 5, "shard")
        Traceback (most recent call last):
            ...
        LookupError: shards 3-5 are out of range for 5 shards, numbered from 0
    """
    if not numbers or (numbers[0] >= 0 and numbers[-1] < num_things):
        return
    first, last = numbers[0], numbers[-1]
    wanted = f"{thing} {first} is" if first == last else f"{thing}s {first}-{last} are"
    raise LookupError(f"{wanted} out of range for {counted(num_things, thing)}, numbered from 0")


def _to_number(digits: str) -> int:
    return int(digits) if len(digits) <= _MAX_DIGITS else sys.maxsize
