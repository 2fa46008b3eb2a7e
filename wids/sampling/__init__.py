"""Samplers: which indices, in which order, on which rank."""

from wids.sampling.distributed import DistributedChunkedSampler
from wids.sampling.order import iterate_ranges
from wids.sampling.samplers import ChunkedSampler, ShardedSampler, ShardListSampler

__all__ = ["ChunkedSampler", "DistributedChunkedSampler", "ShardListSampler", "ShardedSampler", "iterate_ranges"]
