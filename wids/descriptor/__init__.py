"""Descriptors: what names the shards of a dataset, to a list of shards with resolved URLs and counts."""

from wids.descriptor.loader import Descriptor, load_descriptor
from wids.descriptor.offsets import ShardOffsets

__all__ = ["Descriptor", "ShardOffsets", "load_descriptor"]
