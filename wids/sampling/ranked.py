"""Samplers of which each rank yields its part: also `torch.utils.data.DistributedSampler`s, which frameworks leave as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.sampling.samplers import LaneSampler

if TYPE_CHECKING:
    from wids.sampling.rank import RankFinder

try:
    from torch.utils.data import DistributedSampler as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]


class RankedSampler(LaneSampler, _Base):  # type: ignore[type-arg]
    """A sampler whose epochs are dealt out to ranks."""

    _finder: RankFinder

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This replica's number."""
        return self._find_rank()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """How many replicas there are."""
        return self._find_rank()[1]

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """How many indices this rank yields in an epoch, as torch's `DistributedSampler` calls it."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """How many indices all ranks yield in an epoch, as torch's `DistributedSampler` calls it."""
        lanes = self._lanes(None)
        return len(self) * self.num_replicas if lanes.even else lanes.num_samples

    def _find_rank(self) -> tuple[int, int]:
        return self._finder.find()
