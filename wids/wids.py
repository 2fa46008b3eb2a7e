"""The import path `wids.wids` of wids 0.1.11, kept for existing code: re-exports only."""

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
