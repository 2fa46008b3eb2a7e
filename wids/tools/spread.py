"""Work on many things by any executor: results as they are done, a bounded number of things at once; or in order."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import TYPE_CHECKING, TypeVar

from wids.errors import WidsError
from wids.tools.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

T = TypeVar("T")
R = TypeVar("R")

_IN_FLIGHT = 256
"""Things that an executor is given at once: enough for a cluster, few enough that neither tasks nor results pile up."""


def spread(work: Callable[[T], R], things: Iterable[T], executor: Executor | None) -> Iterator[tuple[T, R]]:
    """Yield each thing and what `work` returns for it, as they are done.

    Args:
        work: Must pickle small, as must things, if the executor's workers are other processes. What it raises ends everything.
        things: Taken one by one, as the executor has room.
        executor: Runs the work; None for one after the other in this thread.

    Raises:
        WidsError: A worker was ended from outside, and with it the executor; or it gave up for a reason of its own.

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
            future = executor.submit(work, thing)
            running[future] = thing
            # What is done at once, by an executor of this thread, is not held back either.
            if future.done() or len(running) >= _IN_FLIGHT:
                yield from _take_done(running)
        while running:
            yield from _take_done(running)
    except BrokenExecutor as error:
        yield from _take_results(running)  # submit may be the first to notice, when results have not been taken yet
        raise WidsError("a worker process was killed, perhaps for lack of memory; use fewer workers") from error
    finally:
        for future in running:
            future.cancel()


def map_in_order(
    work: Callable[[T], R],
    things: Sequence[T],
    executor: Executor | None,
    label: str,
    *,
    num_done: int = 0,
    chunksize: int = 1,
    progress: bool,
) -> Iterable[R]:
    """Return what `work` returns for each thing, in their order; the executor is given all of them at once.

    Args:
        work: Must pickle small, as must things, if the executor's workers are other processes.
        things: To work on.
        executor: Runs the work; None for one after the other in this thread.
        label: What is done with them, for the bar.
        num_done: Things that an earlier run has done, which the bar counts too.
        chunksize: Things that a process of the executor takes at once.
        progress: Show a bar when it takes more than a moment.

    Examples:
        >>> list(map_in_order(len, ["bcd", "a"], None, "measuring", progress=False))
        [3, 1]
    """
    results = map(work, things) if executor is None else executor.map(work, things, chunksize=chunksize)
    return show_progress(results, label, num_done + len(things), num_done=num_done, is_shown=progress)


def _take_done(running: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    """Wait until something is done; yield and forget all that is done, and only then raise what failed."""
    done = wait(running, return_when=FIRST_COMPLETED).done
    yield from _take_results(running)
    for future in done:
        try:
            future.result()
        except (BrokenExecutor, WidsError, OSError, ValueError):
            raise
        except Exception as error:  # a cluster's own kind, or that of work that was cancelled, which has no text
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise WidsError(
                f"the executor failed or cancelled the work on a shard: {reason}; fix the cause, then run again"
            ) from error


def _take_results(running: dict[Future[R], T]) -> Iterator[tuple[T, R]]:
    """Yield and forget what is done and did not fail."""
    for future in list(running):
        if future.done() and not future.cancelled() and future.exception() is None:
            yield running.pop(future), future.result()
