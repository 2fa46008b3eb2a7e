"""Descriptors: everything that can name the shards of a dataset, to a list of shards with resolved URLs and counts."""

from wids.descriptor.folders import KINDS, Folder, open_folder, read_folder
from wids.descriptor.loader import Descriptor, load_descriptor
from wids.descriptor.offsets import ShardOffsets
from wids.descriptor.urls import local_path, stem_of

__all__ = [
    "KINDS",
    "Descriptor",
    "Folder",
    "ShardOffsets",
    "load_descriptor",
    "local_path",
    "open_folder",
    "read_folder",
    "stem_of",
]
