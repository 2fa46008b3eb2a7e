"""Processes that do a command's work on shards, and end when it does."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any, TypeVar

from wids.cli.signals import ENDING, Signalled, held_back, raising
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, Future

T = TypeVar("T")

_MOST_SECONDS_TO_END = 5.0
"""After this, a process that a signal ends does so without cleaning up, and is waited for no longer."""


@contextmanager
def workers(number: int) -> Iterator[Executor | None]:
    """Yield an executor of `number` processes; None for 1, where this process does the work.

    Raises:
        ValueError: `number` is below 1.
        WidsError: One of the processes was ended by somebody else.
    """
    if number < 1:
        raise ValueError(f"--workers is {number}; it must be at least 1")
    if number == 1:
        yield None
        return
    with _pool(number) as executor:
        try:
            yield executor
        except BrokenExecutor as error:
            raise WidsError("a worker process was killed, perhaps for lack of memory; use fewer --workers") from error


@contextmanager
def _pool(number: int) -> Iterator[Executor]:
    """Yield a pool of processes, which is waited for at the end of the block, unless a signal ends the program."""
    hook = threading.excepthook
    threading.excepthook = functools.partial(_report_unless_cancelled, hook)
    executor = _Executor(number, _Context(), initializer=_set_up_worker)
    try:
        yield executor
        executor.shutdown()
    except KeyboardInterrupt:
        _end_workers()
        # Waited for in a thread: the pool's own one may wait for the rest of a result that never comes.
        ending = threading.Thread(target=executor.shutdown, name="wids-shutdown", daemon=True)
        ending.start()
        ending.join(_MOST_SECONDS_TO_END)
        raise
    except BaseException as error:
        if isinstance(error.__cause__, BrokenExecutor):
            _end_workers()  # a process that was just being started when the pool broke is not known to it, and would never end
        executor.shutdown()
        raise
    finally:
        threading.excepthook = hook


def _end_workers() -> None:
    """End all processes of the pool; a signal from a terminal was sent to them too, one from elsewhere was not."""
    processes = multiprocessing.active_children()
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _MOST_SECONDS_TO_END
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
    finally:
        for process in processes:
            process.kill()


def _report_unless_cancelled(
    hook: Callable[[threading.ExceptHookArgs], object], raised: threading.ExceptHookArgs
) -> None:
    """Hide what a pool's own thread raises when its processes die and it finds their work cancelled."""
    if not issubclass(raised.exc_type, InvalidStateError):
        hook(raised)


class _Executor(ProcessPoolExecutor):
    """A pool whose processes clean up after the work that a signal ends."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return super().submit(_work, fn, *args, **kwargs)


class _Process(SpawnProcess):
    """A process that gets Ctrl-C only once it has a handler for it."""

    def start(self) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the new process inherits it
        try:
            with held_back():  # a process that got only half of its instructions would print a traceback
                super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class _Context(SpawnContext):
    Process = _Process


def _set_up_worker() -> None:
    """End at Ctrl-C, which the terminal sends to all processes, and with the first process, however that ends."""
    from tqdm import tqdm

    threading.Thread(target=_end_with_parent, name="wids-parent", daemon=True).start()
    os.environ["WIDS_VERBOSE"] = "0"  # the first process shows how far the work is
    tqdm.set_lock(threading.RLock())  # the usual one would be said to have leaked where a signal ends this process
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as SIGINT is in the background of a shell
            signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _end(number: int, _: object) -> None:
    """End this process, which does nothing that an exception would clean up, and whose pool would print a traceback."""
    os._exit(128 + number)


def _work(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function; if a signal ends it, end the process too: the pool would take the exception for a result."""
    try:
        with raising(replaced={_end}):
            return function(*args, **kwargs)
    except Signalled as error:
        os._exit(128 + int(error.args[0]))


def _end_with_parent() -> None:
    """End this process when the one that started it is gone; the pool's pipes never tell, as the workers hold both ends."""
    parent = multiprocessing.parent_process()
    main = threading.main_thread().ident
    if parent is not None and main is not None:
        parent.join()
        signal.pthread_kill(main, signal.SIGTERM)
        time.sleep(_MOST_SECONDS_TO_END)
        os._exit(1)
