"""The base of samplers that yield one rank's part; a torch `DistributedSampler`, so that frameworks leave it alone."""

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
    """A sampler whose epochs are divided among ranks."""

    _finder: RankFinder

    @property
    def rank(self) -> int:  # type: ignore[override]
        """Number of this rank, from 0."""
        return self._find_rank()[0]

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Number of ranks."""
        return self._find_rank()[1]

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """Number of indices that this rank yields in an epoch, under its name in torch's `DistributedSampler`."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """Number of indices that all ranks yield in an epoch, under its name in torch's `DistributedSampler`."""
        lanes = self._lanes(None)
        return len(self) * self.num_replicas if lanes.even else lanes.num_samples

    def _find_rank(self) -> tuple[int, int]:
        return self._finder.find()
