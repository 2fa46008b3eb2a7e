"""`widsindex completion`: what has a shell complete commands, options and file names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset(["file", "files", "output", "FILE", "FOLDER", "DIR"])
"""Names of arguments that are files or folders, or their metavariables."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "completion",
        run,
        title="print what has a shell complete this program's arguments",
        description="Print a script for a shell, which has it complete commands, options and file names: sourced by bash, "
        "in a folder of zsh's $fpath, or in fish's completions. It is made from this very program; print it anew after an "
        "update.",
        examples="""
widsindex completion bash > widsindex.bash
widsindex completion zsh > _widsindex
widsindex completion fish > widsindex.fish
""",
    )
    parser.add_argument("shell", choices=_SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    from wids.cli.command_line import make_parser

    parser = make_parser()
    for action in _actions(parser):
        if action.dest in _FILES or action.metavar in _FILES:
            action.complete = shtab.FILE
    print(shtab.complete(parser, options.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to look at a parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
