"""Arguments to commands; an error is one line on stderr and exit status 1, or what the command says in its place."""

from __future__ import annotations

import argparse
import atexit
import io
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from wids._version import __version__
from wids.cli.arguments import CommandParser, HelpFormatter
from wids.cli.signals import ENDING, Signalled, disregard, held_back, raising
from wids.cli.terminal import printable
from wids.errors import OUT_OF_SPACE, WidsError, remedy_for

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIGNALLED = 128
"""A shell adds the signal's number to this for the exit status of a program that a signal ended."""
_BY_SIGNAL = frozenset(_SIGNALLED + number for number in ENDING)
"""Exit statuses of this program where a signal ended it."""
_MORE = """\
exit status:
  0    done
  1    an error, which is one line on stderr; or something was found wrong
  2    the arguments are not understood
  130  interrupted (Ctrl-C)
  141  the reader of the output has gone (| head)
  143  ended by SIGTERM (kill), 129 by SIGHUP

examples:
  widsindex create 'shards/train-{000000..000099}.tar' -o train.json -n train
  widsindex import prepared/ --split train -o train.json
  widsindex info train.json
  widsindex sample train.json 1900
  widsindex ls train.json --keys 'n01*' --json
  widsindex cat train.json 1900 jpg > x.jpg
  widsindex update train.json --recount
  widsindex verify train.json --workers 8
  widsindex reshard train.json -o new/train-%06d.tar --max-bytes 1GB
  widsindex fetch train.json --shards 0-99
  widsindex diff old.json new.json
  widsindex columns train.json --from-json width,height
  widsindex select train.json --where 'width >= 512' -o large.json
  widsindex cache ls
  widsindex export train.json --to dali -o idx/
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Args:
        arguments: Of the command line; None for those of this process, which then ends here where a signal ends it.
    """
    status = _run(arguments)
    if arguments is None and status in _BY_SIGNAL:
        _end(status)
    return status


def _run(arguments: Sequence[str] | None) -> int:
    _set_up_streams()
    options = argparse.Namespace(error_status=1)
    try:
        with raising():
            with held_back():  # an exception ends the process in a module of C that is just being imported
                parser = make_parser()
            parser.parse_args(arguments, options)
            status: int = options.run(options) or 0
            sys.stdout.flush()
    except BrokenPipeError:
        return _SIGNALLED + signal.SIGPIPE  # The reader of our output has gone, and knows.
    except (WidsError, OSError, LookupError, ValueError, ImportError) as error:
        print(f"widsindex: {printable(' '.join(_describe(error).split()))}", file=sys.stderr)
        return int(options.error_status)
    except KeyboardInterrupt as error:
        number = error.args[0] if isinstance(error, Signalled) else signal.SIGINT
        print(f"widsindex: {'interrupted' if number == signal.SIGINT else 'terminated'}", file=sys.stderr)
        return _SIGNALLED + int(number)
    finally:
        _drop_what_cannot_be_written()
    return status


def _end(status: int) -> NoReturn:
    """End this process without waiting for its threads, which may be in the middle of a transfer."""
    disregard()
    atexit._run_exitfuncs()  # noqa: SLF001 - nothing else has what was registered done without waiting for threads
    os._exit(status)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    from wids.cli import (
        cache,
        cat,
        columns,
        completion,
        create,
        diff,
        export,
        fetch,
        import_,
        info,
        ls,
        repair,
        reshard,
        sample,
        select,
        update,
        verify,
    )

    parser = argparse.ArgumentParser(
        prog="widsindex",
        description="Index datasets of tar shards, and look into them.",
        epilog=_MORE,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wids {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    for command in (
        create,
        import_,
        info,
        ls,
        cat,
        sample,
        update,
        verify,
        repair,
        reshard,
        fetch,
        columns,
        select,
        diff,
        cache,
        export,
        completion,
    ):
        command.add_parser(commands)
    return parser


def _describe(error: Exception) -> str:
    """Return an error's message; one of the operating system's gets the form that our own have."""
    if isinstance(error, LookupError) and error.args:
        return str(error.args[0])
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    if error.filename is None:
        # An error of opening a file names it; writing to stdout is what fails without a name.
        where = "stdout" if error.errno in OUT_OF_SPACE else "the system"
    else:
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else str(error.filename)
    # Where the number tells nothing, the path is likely to be mistyped.
    return f"{where}: {error.strerror}; {remedy_for(error, 'is the path right?')}"


class _OneLine(logging.Formatter):
    """Log records as single lines with control characters escaped: they may quote names from shards."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _set_up_streams() -> None:
    # Python sets a stream to None that was closed when the program started.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters of names that the terminal's encoding lacks are shown as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_what_cannot_be_written() -> None:
    """Discard buffered output that cannot be written, about which Python would complain at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
