"""Text to what a terminal may show."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return `text` with what would move the cursor, change colours or cannot be encoded as escapes.

    Examples:
        >>> print(printable("a\x1b[31mb\udc80 日本"))
        a\x1b[31mb\udc80 日本
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
