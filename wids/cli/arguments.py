"""What the commands' parsers have in common: arguments that several take, and help that fits the terminal."""

from __future__ import annotations

import argparse
import copy
import re
import textwrap
from typing import Any


class HelpFormatter(argparse.HelpFormatter):
    """Help that fits the terminal: paragraphs are filled; an indented line stays one, and wraps under its last column."""

    def add_argument(self, action: argparse.Action) -> None:
        """Add an argument, or the commands; before 3.13 argparse measures their names without the indentation."""
        super().add_argument(action)
        for command in self._iter_indented_subactions(action):
            length = len(self._format_action_invocation(command)) + self._current_indent
            self._action_max_length = max(self._action_max_length, length)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(_fill_line(line, width) for line in text.rstrip().splitlines())


class CommandParser(argparse.ArgumentParser):
    """The parser of one command; its options may stand anywhere among its arguments."""

    _is_intermixed = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse arguments; return the namespace that they fill, and those that are not understood."""
        found, left = super().parse_known_args(args, copy.copy(namespace))
        if not left or self._is_intermixed or self._subparsers is not None:
            return found, left
        # argparse gives up on an optional positional as soon as an option comes before it; the intermixed parser does
        # not, but calls this method again.
        self._is_intermixed = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixed = False


def _fill_line(line: str, width: int) -> str:
    """Return a line within so many columns.

    Examples:
        >>> print(_fill_line("  damage  the shard is damaged, or no tar", 30))
          damage  the shard is
                  damaged, or no tar
    """
    columns = [gap.end() for gap in re.finditer(r"(?<=\S) {2,}(?=\S)", line) if gap.end() <= width // 2]
    leading = len(line) - len(line.lstrip())
    hanging = columns[-1] if columns else leading and leading + 4
    return textwrap.fill(line, width, subsequent_indent=" " * hanging, break_long_words=False, break_on_hyphens=False)


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Any,
    *,
    title: str,
    description: str,
    examples: str,
    more: str = "",
) -> argparse.ArgumentParser:
    """Add a command to the command line, and return its parser.

    Args:
        commands: The commands of the whole program, to which this one is added.
        name: What the user types.
        run: Called with the parsed options; returns the exit status, None for 0.
        title: What the command does, in a few words.
        description: What it does, in sentences.
        examples: Command lines, one a line.
        more: Text that the help has before the examples.
    """
    lines = "".join(f"  {line}\n" for line in examples.strip().splitlines())
    parser = commands.add_parser(
        name,
        help=title,
        description=description,
        epilog=f"{more}examples:\n{lines}",
        formatter_class=HelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_data_set(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the dataset to read."""
    parser.add_argument("file", help="descriptor, folder, pattern or shard; - for a descriptor or shard on stdin")


def add_cache_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--cache-dir`."""
    parser.add_argument("--cache-dir", metavar="DIR", help="cache folder ($WIDS_CACHE, or the private default)")


def add_workers(parser: argparse.ArgumentParser, work: str = "read shards") -> None:
    """Add `--workers`; the help says that the processes do this `work`."""
    parser.add_argument("-w", "--workers", type=int, default=1, help=f"processes that {work} (%(default)s)")


def add_key_filter(parser: argparse.ArgumentParser) -> None:
    """Add `--keys` and `--shard`, which limit a command to some of the samples."""
    parser.add_argument("--keys", metavar="PATTERN", help="only samples whose keys match, as 'n01*' or '*_0?'")
    parser.add_argument(
        "--shard", metavar="WHICH", help="only this shard (3), these (0-99), or those whose names match ('*-00??.tar')"
    )
