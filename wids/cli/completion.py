"""`widsindex completion`: a script with which a shell completes commands, options and file names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHELLS = ("bash", "zsh", "fish")
_FILES = frozenset(["file", "files", "output", "FILE", "FOLDER", "DIR"])
"""Destinations or metavariables of arguments that name files or folders."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "completion",
        run,
        title="print a completion script for a shell",
        description="Print a script with which a shell completes commands, options and file names. Source it in bash; for zsh "
        "put it into a folder of $fpath, for fish into its completions. It is made for this version; print it again after "
        "an update.",
        examples="""
widsindex completion bash > widsindex.bash
widsindex completion zsh > _widsindex
widsindex completion fish > widsindex.fish
""",
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell that is to complete them")


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
