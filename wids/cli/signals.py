"""Signals that end the program to exceptions, so that it removes on its way out what it had half written."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, `kill`, and a terminal that is closed."""


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C's ends the program; its only argument is the signal's number."""


@contextmanager
def raising() -> Iterator[None]:
    """Have signals raise `Terminated` in a block that would end the program without another word."""
    if threading.current_thread() is not threading.main_thread():  # which alone has signals
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
    """Have signals do what they do behind a block, and not in it."""
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
    """Have further signals do nothing: they would cut short what the first one has begun."""
    for number in ENDING:
        # Not SIG_IGN, under which Python complains of one that has come already.
        signal.signal(number, lambda *_: None)


def _raise(number: int, _: object) -> None:
    disregard()
    raise Terminated(number)


def _handlers() -> dict[int, Any]:
    """Return who handles the signals, where that is known."""
    handlers = {number: signal.getsignal(number) for number in ENDING}
    return {number: handler for number, handler in handlers.items() if handler is not None}


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
