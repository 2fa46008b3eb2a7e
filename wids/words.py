"""Numbers of things to words, for messages and what commands say; and names to text that can be stored."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Return so many of something, in words that agree with the number.

    Args:
        number: How many.
        thing: What one is called, with its verb where one follows.
        things: What others are called; None for the same with an s.

    Examples:
        >>> counted(1, "sample"), counted(0, "sample"), counted(1200, "shard was", "shards were")
        ('1 sample', '0 samples', '1200 shards were')
    """
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"


def counted_of(number: int, total: int, thing: str, does: str, do: str) -> str:
    """Return so many of so many things, with the verb that agrees with them.

    Args:
        number: How many.
        total: Of how many.
        thing: What one is called.
        does: The verb for a single one.
        do: The verb for others.

    Examples:
        >>> counted_of(1, 3, "sample", "has", "have"), counted_of(0, 3, "sample", "has", "have")
        ('1 of 3 samples has', '0 of 3 samples have')
    """
    return f"{number} of {counted(total, thing)} {does if 1 in {number, total} else do}"


def samples_in_shards(num_samples: int, num_shards: int) -> str:
    """Return how large a dataset is, in words.

    Examples:
        >>> samples_in_shards(5, 1)
        '5 samples in 1 shard'
    """
    return f"{counted(num_samples, 'sample')} in {counted(num_shards, 'shard')}"


def storable(name: str) -> str:
    r"""Return a file's name as text that UTF-8 and JSON can hold: bytes of it that are none become escapes.

    Examples:
        >>> storable("a.tar"), storable("\udce9.tar")
        ('a.tar', '\\xe9.tar')
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
