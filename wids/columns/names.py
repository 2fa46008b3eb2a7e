"""Suggestions for misspelt names of columns."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest(name: str, there: Iterable[str]) -> str:
    """Return a hint for a name that does not exist: similar names, else those that exist."""
    names = sorted(there)
    near = difflib.get_close_matches(name, names, 3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {', '.join(names[:20])}{', …' if len(names) > 20 else ''}" if names else "there are none"
