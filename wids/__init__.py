"""Random access by index to datasets stored as tar shards.

>>> import wids
>>> dataset = wids.ShardListDataset("train.json")
>>> dataset[41]["txt"], dataset[41]["cls"]
('text of 41', 1)

Each name is imported on first use: `import wids` stays fast, and whatever does not need torch works without it.
"""

from __future__ import annotations

import importlib
from typing import Any

from wids._version import __version__
from wids.errors import (
    DecodeError,
    DescriptorError,
    EncodeError,
    FetchError,
    ShardMismatchError,
    TarFormatError,
    WidsError,
)

_LAZY = {
    "BucketBatchSampler": "wids.sampling",
    "ChunkedSampler": "wids.sampling",
    "DistributedChunkedSampler": "wids.sampling",
    "IndexedTarSamples": "wids.indexed",
    "MixtureSampler": "wids.sampling",
    "ShardListDataset": "wids.dataset",
    "ShardListSampler": "wids.sampling",
    "ShardWriter": "wids.tools",
    "ShardedSampler": "wids.sampling",
    "collate": "wids.decode",
    "concat": "wids.dataset.concat",
    "create_index": "wids.tools",
    "default_decoder": "wids.decode",
}

__all__ = [
    "BucketBatchSampler",
    "ChunkedSampler",
    "DecodeError",
    "DescriptorError",
    "DistributedChunkedSampler",
    "EncodeError",
    "FetchError",
    "IndexedTarSamples",
    "MixtureSampler",
    "ShardListDataset",
    "ShardListSampler",
    "ShardMismatchError",
    "ShardWriter",
    "ShardedSampler",
    "TarFormatError",
    "WidsError",
    "__version__",
    "collate",
    "concat",
    "create_index",
    "default_decoder",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'wids' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
