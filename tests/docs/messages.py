"""The messages that the package can raise or log, found in its source.

A message is the text of an exception, or of a log record of level WARNING or above, with `…` in place of each value.
Messages without letters of their own (`f"{shard}: {error}"`) only pass on others, and are left out.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAKES_ONE = re.compile(r"(?:Error|\.(?:warn|warning|error|exception|critical))$")


@cache
def find_messages(package: Path) -> dict[str, str]:
    """Return each message of a package's modules, and its location, such as `storage/web.py:163`."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for text in _texts_of(node):
                if re.search(r"[a-z]", text):
                    found[text] = f"{path.relative_to(package)}:{node.lineno}"  # type: ignore[attr-defined]
    return found


def _texts_of(node: ast.AST) -> Iterator[str]:
    """Yield the texts of an error that is raised, directly or by a method that makes it, or of a logged warning."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        node = node.exc
    elif not isinstance(node, ast.Call) or not MAKES_ONE.search(ast.unparse(node.func)):
        return
    if ast.unparse(node.func) != "AssertionError":
        yield from map(_text, node.args)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sdr]", "…", node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.FormattedValue) and ast.unparse(node.value).startswith(("counted(", "counted_of(")):
        return _text(node.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "counted_of":
        return f"… of … {_text(node.args[2])}s {_text(node.args[4])}"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "counted":
        return f"… {_text(node.args[2])}" if len(node.args) > 2 else f"… {_text(node.args[1])}s"
    return "…"
