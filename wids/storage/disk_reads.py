"""Whether this process has lately read from a disk, by the system's count of its block reads (getrusage(2))."""

from __future__ import annotations

import resource

_MOST_QUIET_BATCHES = 16
"""Batches in a row without a read from disk after which none is expected; reading ahead in vain costs a few percent."""


class DiskReads:
    """Predicts whether the next batch will be read from a disk; the first two answers are yes, before the counts can tell."""

    def __init__(self) -> None:
        self._num_blocks: int | None = None
        self._num_quiet = _MOST_QUIET_BATCHES - 3

    def are_likely(self) -> bool:
        """Return whether the next batch may have to be read from a disk; to be called once per batch."""
        # The count starts from zero in a forked child, so it differs from the parent's and the answer is yes there.
        num_blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        is_quiet = self._num_blocks in {None, num_blocks}
        self._num_quiet = self._num_quiet + 1 if is_quiet else 0
        self._num_blocks = num_blocks
        return self._num_quiet < _MOST_QUIET_BATCHES
