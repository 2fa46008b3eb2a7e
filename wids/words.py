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


def storable(name: str) -> str:
    r"""Return a file's name as text that UTF-8 and JSON can hold: bytes of it that are none become escapes.

    Examples:
        >>> storable("a.tar"), storable("\udce9.tar")
        ('a.tar', '\\xe9.tar')
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
