"""Where shards lie, to opened sources: in place, or from the disk cache."""

from wids.storage.options import StorageOptions
from wids.storage.storage import Storage

__all__ = ["Storage", "StorageOptions"]
