"""What ends with a `with` block: what has a `close`, and threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self


class Closing:
    """Closed at the end of a `with` block."""

    def close(self) -> None:
        """Let go of what is open."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def threads(number: int) -> Iterator[ThreadPoolExecutor]:
    """Run a block with a pool of so many threads, which has done all its work when the block ends.

    Where the block is interrupted (Ctrl-C), nothing more is begun, and what is being done is not waited for: that may be the
    transfer of a large shard, or a server that does not answer.
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
