"""Work on many things by any executor: a bounded number of them at once, results as they are done."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import TYPE_CHECKING, TypeVar

from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
R = TypeVar("R")

_IN_FLIGHT = 256
"""Things that an executor has at once: enough for a cluster, few enough that neither tasks nor results pile up."""


def spread(work: Callable[[T], R], things: Iterable[T], executor: Executor | None) -> Iterator[tuple[T, R]]:
    """Yield each thing and what `work` returns of it, in the order in which they are done.

    Args:
        work: Pickles small where the executor's workers are other processes, as things do; what it raises ends it all.
        things: Taken one by one, as room comes.
        executor: Runs the work; None for one after the other in this thread.

    Raises:
        WidsError: A worker was ended from outside, and with it the executor.

    Examples:
        >>> sorted(spread(len, ["a", "bcd"], None))
        [('a', 1), ('bcd', 3)]
    """
    if executor is None:
        for thing in things:
            yield thing, work(thing)
        return
    running: dict[Future[R], T] = {}
    try:
        for thing in things:
            running[executor.submit(work, thing)] = thing
            if len(running) >= _IN_FLIGHT:
                yield from _take_done(running)
        while running:
            yield from _take_done(running)
    except BrokenExecutor as error:
        yield from _take_results(running)  # submitting may notice before they were taken
        raise WidsError(
            "a process that read shards was ended from outside, for want of memory perhaps; give fewer workers"
        ) from error
    finally:
        for future in running:
            future.cancel()


def _take_done(running: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    """Wait until something is done; yield what is, and forget it; raise what failed only then."""
    done = wait(running, return_when=FIRST_COMPLETED).done
    yield from _take_results(running)
    for future in done:
        future.result()


def _take_results(running: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    """Yield what is done and did not fail, and forget it."""
    for future in list(running):
        if future.done() and not future.cancelled() and future.exception() is None:
            yield running.pop(future), future.result()
