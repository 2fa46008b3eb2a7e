"""Names of columns, as people write them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest(name: str, there: Iterable[str]) -> str:
    """Return what may have been meant by a name that is not there."""
    names = sorted(there)
    near = difflib.get_close_matches(name, names, 3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"there are {', '.join(names[:20])}{', …' if len(names) > 20 else ''}" if names else "there are none"
