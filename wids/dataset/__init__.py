"""`ShardListDataset`: from an index to a sample, by way of the open shards and the user's transformations."""

from wids.dataset.dataset import ShardListDataset
from wids.dataset.sample import Sample

__all__ = ["Sample", "ShardListDataset"]
