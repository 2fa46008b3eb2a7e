"""Signals that end the program to exceptions, so that half-written files are removed on the way out."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, by `kill`, and when the terminal is closed."""

_RETRY_S = 0.01
"""After so long an exception that was lost is raised again."""


class Signalled(KeyboardInterrupt):
    """A signal ends the program; its only argument is the signal's number."""


@contextmanager
def raising(replaced: Container[object] = (signal.SIG_DFL, signal.default_int_handler)) -> Iterator[None]:
    """Raise `Signalled` in a block for signals that end the program, and from it, whatever became of the exception inside.

    Python prints and drops an exception that is raised in a finalizer or a weak reference's callback: it is raised again a
    moment later. Other code may catch it, or raise another one for it: then it is raised at the end of the block. What this
    process has not finished to write is removed before.

    Args:
        replaced: Only signals that have one of these handlers raise.
    """
    if threading.current_thread() is not threading.main_thread():  # the only one that may set handlers
        yield
        return
    came: list[int] = []

    def end(number: int, _: object) -> None:
        came.append(number)
        # Another signal does not cut short the clean-up that this one begins; but Ctrl-C can be repeated.
        disregard(other for other in handlers if not other == number == signal.SIGINT)
        logging.disable(logging.WARNING)  # that what it interrupts was not closed is nothing to warn of
        raise Signalled(number)

    handlers = {number: handler for number, handler in _handlers().items() if handler in replaced}
    level = logging.root.manager.disable
    hook = sys.unraisablehook
    sys.unraisablehook = functools.partial(_raise_again, hook)
    try:
        for number in handlers:
            signal.signal(number, end)
        yield
        _raise_first(came)
    except (Signalled, GeneratorExit):
        raise
    except BaseException:
        _raise_first(came)
        raise
    finally:
        if came:
            # Here, where further signals have no effect: after the block they end the process at once.
            disregard(handlers)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _remove_unfinished()
        logging.disable(level)
        sys.unraisablehook = hook
        _restore(handlers)


def _remove_unfinished() -> None:
    # Imported here: until main() runs, a Ctrl-C shows a traceback.
    from wids.storage.part_file import remove_unfinished

    remove_unfinished()


def _raise_first(came: list[int]) -> None:
    if came:
        raise Signalled(came[0])


def _raise_again(hook: Callable[[Any], object], lost: Any) -> None:
    """Raise `Signalled` again, which cannot be raised where it was; pass other exceptions on to the hook."""
    if not isinstance(lost.exc_value, Signalled):
        hook(lost)
        return
    error = lost.exc_value

    def end(*_: object) -> None:
        raise error

    # Nothing else ends what the main thread may be waiting for.
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _RETRY_S)


@contextmanager
def held_back() -> Iterator[None]:
    """Deliver the signals that arrive during a block at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = _handlers()
    for number, handler in handlers.items():
        if callable(handler):
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        _restore(handlers)
    for number in came:
        signal.raise_signal(number)


def disregard(numbers: Iterable[int] = ENDING) -> None:
    """Ignore signals from now on."""
    for number in numbers:
        # Not SIG_IGN: Python complains about a signal that arrived before, when it finds no handler to call.
        signal.signal(number, lambda *_: None)


def _handlers() -> dict[int, Any]:
    """Return the handlers of the signals, but for those that were not set from Python."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
