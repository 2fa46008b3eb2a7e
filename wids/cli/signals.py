"""Signals that end the program to exceptions, so that half-written files are removed on the way out."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, by `kill`, and when the terminal is closed."""


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C's ends the program; its only argument is the signal's number."""


@contextmanager
def raising() -> Iterator[None]:
    """Raise `Terminated` in a block for signals that would otherwise end the program at once."""
    if threading.current_thread() is not threading.main_thread():  # the only one that may set handlers
        yield
        return
    handlers = _handlers()
    for number, handler in handlers.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _raise)
    try:
        yield
    finally:
        _restore(handlers)


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


def disregard() -> None:
    """Ignore further signals: they would cut short the clean-up that the first one began."""
    for number in ENDING:
        # Not SIG_IGN: Python complains about a signal that arrived before, when it finds no handler to call.
        signal.signal(number, lambda *_: None)


def _raise(number: int, _: object) -> None:
    disregard()
    raise Terminated(number)


def _handlers() -> dict[int, Any]:
    """Return the handlers of the signals, but for those that were not set from Python."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
