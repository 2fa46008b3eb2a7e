"""Arguments to commands; an error is one line on stderr and exit status 1."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from wids._version import __version__
from wids.cli.terminal import printable
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXAMPLES = """\
examples:
  widsindex create 'shards/train-{000000..000099}.tar' -o train.json -n train
  widsindex info train.json
  widsindex sample train.json 1900
  widsindex sample train.json 1900 --cat json
  widsindex update train.json --recount
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    options = make_parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); what is left to flush must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (WidsError, OSError, LookupError, ValueError, ImportError) as error:
        message = str(error.args[0]) if isinstance(error, LookupError) and error.args else str(error)
        print(f"widsindex: {printable(' '.join(message.split()))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("widsindex: interrupted", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    from wids.cli import create, info, sample, update

    parser = argparse.ArgumentParser(
        prog="widsindex",
        description="Index datasets of tar shards, and look into them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wids {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (create, info, sample, update):
        command.add_parser(commands)
    return parser
