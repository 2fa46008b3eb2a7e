"""Samplers: which indices, in which order, on which rank."""

from wids.sampling.buckets import BucketBatchSampler
from wids.sampling.distributed import DistributedChunkedSampler
from wids.sampling.mixture import MixtureSampler
from wids.sampling.order import iterate_ranges
from wids.sampling.samplers import ChunkedSampler, ShardedSampler, ShardListSampler

__all__ = [
    "BucketBatchSampler",
    "ChunkedSampler",
    "DistributedChunkedSampler",
    "MixtureSampler",
    "ShardListSampler",
    "ShardedSampler",
    "iterate_ranges",
]
