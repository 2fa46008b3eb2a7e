"""Split a page of Markdown into its blocks of code, and determine what to do with each.

| block | what is done with it |
|---|---|
| ```` ```python ```` | run; all blocks of a page share one namespace |
| ```` ```text ```` or ```` ```json ```` right after one | compared with what that block printed |
| ```` ```console ```` | lines that begin with `$ ` are run by sh, the others are compared with the output |
| any with `title="train.py"` | written to that file, which a later block must name |

In expected output, a line `...` stands for any number of lines, and `...` inside a line for any text. A comment before
a block, or at the top of a page for all of its blocks, is a mark:

| mark | meaning |
|---|---|
| `<!-- needs: lightning -->` | run if `$WIDS_PACKAGES` names these packages: by `make test-frameworks` or `make test-interop` |
| `<!-- runs: lightning -->` | part of a program that a test looks up by this name, completes and runs |
| `<!-- not run: it needs a cluster -->` | not run, for the reason given |

Anything else, such as an indented block of code, is an error, so that no code on a page goes untested.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT = {"text", "json"}
RUN = {"python", "console"}
MARK = re.compile(r"\s*<!--\s*(needs|runs|not run):\s*(\S.*?)\s*-->\s*")
COMMENT = re.compile(r"\s*(?:<!--|-->)")
"""Blocks inside a comment are run like others, hidden from readers: to start a test server, for example."""
FENCE = re.compile(r"(\s*)(`{3,})\s*(\w*)(.*)")
TITLE = re.compile(r'title="([^"]+)"')
HOLDS_INDENTED = re.compile(r"(?:[-*+]|\d+\.|!!!|\?\?\?|===|\[\^)")
"""Starts of lists, notes, tabs and footnotes, whose indented text is not code."""


class PageError(ValueError):
    """A page cannot be run, or its output is not what it shows."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block between fences."""

    line: int
    """Line number of the opening fence, from 1."""
    language: str
    title: str | None
    text: str
    """Content without the indentation of the fence; ends with a newline unless empty."""
    marks: dict[str, str]

    @property
    def is_run_elsewhere(self) -> bool:
        """Whether it is not run with this page."""
        return bool({"not run", "runs"} & self.marks.keys())

    @property
    def needs(self) -> set[str]:
        """Packages without which the block cannot run."""
        return set(self.marks.get("needs", "").split())


def read_blocks(markdown: str) -> list[Block]:
    """Return the blocks of a page, in order, and check that each is used.

    Raises:
        PageError: A block is neither run, compared nor marked.
    """
    blocks = list(_find_blocks(markdown))
    prints = False
    for number, block in enumerate(blocks):
        if block.is_run_elsewhere:
            pass
        elif block.title is not None:
            name = re.compile(rf"\b{re.escape(block.title.removesuffix('.py'))}\b")
            if not any(name.search(later.text) for later in blocks[number + 1 :]):
                raise PageError(f"line {block.line}: no later block uses {block.title}")
        elif block.language in OUTPUT:
            if not prints:
                raise PageError(
                    f"line {block.line}: no block of Python right before this {block.language} could have printed it"
                )
        elif block.language not in RUN:
            raise PageError(
                f"line {block.line}: a block in {block.language or 'no language'} is not run; see tests/docs/blocks.py"
            )
        prints = block.language == "python" and block.title is None
    return blocks


def _find_blocks(markdown: str) -> Iterator[Block]:
    lines = iter(enumerate(markdown.splitlines(), 1))
    of_page: dict[str, str] = {}
    marks: dict[str, str] = {}
    in_head, after_blank, holder = True, True, ""
    for number, line in lines:
        fence = FENCE.fullmatch(line)
        mark = MARK.fullmatch(line)
        if fence is not None:
            text = _text_until(fence[1], fence[2], number, lines)
            title = TITLE.search(fence[4])
            yield Block(number, fence[3], title and title[1], text, {**of_page, **marks})
            marks = {}
        elif mark is not None:
            marks[mark[1]] = mark[2]
        elif line.strip() and not COMMENT.match(line):
            if marks and not in_head:
                raise PageError(f"line {number}: the mark before this is not before a block")
            of_page, marks = {**of_page, **marks}, {}
            if line.startswith("    ") and after_blank and not HOLDS_INDENTED.match(holder):
                raise PageError(f"line {number}: indented code is not run; put it between fences")
        if line.strip() and not line.startswith("  "):
            in_head = in_head and mark is not None
            holder = line
        after_blank = not line.strip()


def _text_until(indent: str, fence: str, first: int, lines: Iterator[tuple[int, str]]) -> str:
    inside: list[str] = []
    for _, line in lines:
        if line.startswith(indent + fence) and not line.strip().strip("`"):
            return textwrap.dedent("".join(f"{line}\n" for line in inside))
        inside.append(line)
    raise PageError(f"line {first}: this block has no end")


def split_console(text: str) -> list[tuple[str, str]]:
    r"""Return the commands of a console block, each with the output that the block shows.

    Examples:
        >>> split_console("$ echo a\na\n$ tool \\\n    --long\n")
        [('echo a', 'a\n'), ('tool \\\n    --long', '')]
    """
    pieces: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            pieces.append((line[2:], ""))
        elif not pieces:
            raise PageError(f"{line!r}: a console block begins with a command: `$ …`")
        else:
            command, shown = pieces[-1]
            continues = not shown and command.endswith("\\")
            pieces[-1] = (f"{command}\n{line}", "") if continues else (command, f"{shown}{line}\n")
    return pieces


def fits(shown: str, printed: str) -> bool:
    r"""Tell whether output is what a page shows.

    Examples:
        >>> fits("a\n...\nd\n", "a\nb\nc\nd\n"), fits("took ... s\n", "took 1.2 s\n"), fits("a\n", "a\nb\n")
        (True, True, False)
    """
    pattern = "".join(map(_line_pattern, shown.splitlines()))
    text = printed if printed.endswith("\n") or not printed else f"{printed}\n"
    return re.fullmatch(pattern, text) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.rstrip().split("..."))) + r"[ \t]*\n"
