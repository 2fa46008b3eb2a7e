"""Text to what a terminal may show: escaped, within its width, and in colour where that is wanted.

A terminal gets columns aligned within its width; any other reader of the output gets whole values separated by tabs. Colours
are for terminals only, unless `$NO_COLOR` is set (https://no-color.org) or `$TERM` is `dumb`.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Colour = Literal["bold", "dim", "red", "yellow"]

_CODES = {"bold": 1, "dim": 2, "red": 31, "yellow": 33}
_GAP = "  "
_WIDEST_SHARE = 0.5
"""The most that a column takes of the terminal's width, but for the last one; a longer value is cut."""
_MEASURED_ROWS = 500
"""Rows of a table that decide how wide its columns are; a wider value that comes later is cut."""
_shown_as: dict[str, str] = {}
"""What a file is shown as, by its path."""


def printable(text: str) -> str:
    r"""Return `text` with escapes for what would move the cursor, change colours or cannot be encoded.

    Examples:
        >>> print(printable("a\x1b[31mb\udc80 日本"))
        a\x1b[31mb\udc80 日本
    """
    text = rename(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def show_as(path: str, name: str) -> None:
    """Show a file, from now on, by the name that the user knows it by."""
    _shown_as[path] = name


def rename(text: str) -> str:
    """Return `text` with files called as the user knows them; all that is shown goes through this function."""
    for path, name in _shown_as.items():
        text = text.replace(path, name)
    return text


def is_terminal() -> bool:
    """Tell whether the output is shown on a terminal."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """Return the columns of the terminal that shows the output; None where none does."""
    return shutil.get_terminal_size().columns if is_terminal() else None


def paint(text: str, colour: Colour) -> str:
    """Return `text` in a colour if the output has colours."""
    if not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m"


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a printable text takes.

    Examples:
        >>> columns_of("abc"), columns_of("日本"), columns_of("e\u0301")
        (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, width: int) -> str:
    """Return a printable text cut to `width` columns, with an ellipsis if anything was cut off.

    Examples:
        >>> shorten("abcdef", 4), shorten("abcd", 4)
        ('abc…', 'abcd')
    """
    if columns_of(text) <= width:
        return text
    kept = ""
    for char in text:
        if columns_of(kept + char) > width - 1:
            break
        kept += char
    return f"{kept}…"


def fold(text: str, indent: int = 4) -> str:
    """Return a sentence as printable lines that fit a terminal, `indent` columns free at the left; one line where there is none.

    A word that is longer than a line, such as a path, is left whole.
    """
    text = printable(text)
    width = terminal_width()
    if width is None:
        return text
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and columns_of(longer) > width - indent:
            lines.append(word)
        else:
            lines[-1] = longer
    return f"\n{' ' * indent}".join(lines)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print rows under titles: aligned within a terminal's width, else as whole values separated by tabs.

    Args:
        titles: One for each column.
        rows: Printed as they come, once the widths are known.
        right: Titles of the columns that are aligned to the right.
    """
    width = terminal_width()
    rows = ([printable(value) for value in row] for row in rows)
    # Titles wait for the first row, so that a failure before it prints nothing.
    first = list(islice(rows, 1 if width is None else _MEASURED_ROWS))
    if width is None:
        for row in chain([titles], first, rows):
            print(*row, sep="\t")
        return
    most = int(_WIDEST_SHARE * width)
    widths = [min(most, max(map(columns_of, column))) for column in zip(titles, *first, strict=True)]
    widths[-1] = width
    print(paint(_align(titles, titles, widths, right, width), "bold"))
    for part in (first, rows):
        for row in part:
            print(_align(titles, row, widths, right, width))


def _align(
    titles: Sequence[str], values: Sequence[str], widths: Sequence[int], right: Sequence[str], width: int
) -> str:
    padded = []
    for title, value, columns in zip(titles, values, widths, strict=True):
        short = shorten(value, columns)
        blanks = " " * (columns - columns_of(short))
        padded.append(blanks + short if title in right else short + blanks)
    return shorten(_GAP.join(padded).rstrip(), width)
