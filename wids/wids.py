"""0.1.11's import path `wids.wids`; the names live elsewhere now."""

from wids.dataset import ShardListDataset
from wids.indexed import IndexedTarSamples
from wids.legacy import compute_num_samples, group_by_key, splitname
from wids.sampling import (
    ChunkedSampler,
    DistributedChunkedSampler,
    ShardedSampler,
    ShardListSampler,
    iterate_ranges,
)

__all__ = [
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "IndexedTarSamples",
    "ShardListDataset",
    "ShardListSampler",
    "ShardedSampler",
    "compute_num_samples",
    "group_by_key",
    "iterate_ranges",
    "splitname",
]
