"""Things that end with a `with` block: objects with a `close` method, and pools of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self


class Closing:
    """A context manager that calls `close()` at the end of the block."""

    def close(self) -> None:
        """Release what is open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a pool of `number` threads for a `with` block, at whose end all submitted work is done.

    If the block is interrupted (Ctrl-C), pending work is cancelled, and running work is not waited for: it may be the
    transfer of a large shard, or a request to a server that does not answer.
    """
    pool = ThreadPoolExecutor(number)
    try:
        yield pool
    except Exception:
        pool.shutdown()
        raise
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
