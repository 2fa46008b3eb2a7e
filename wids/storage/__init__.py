"""Where shards lie, to opened sources: in place, or from the disk cache.

storage.py                        Storage: a shard's URL to a Source
options.py                        StorageOptions
stored.py                         StoredShards: shards as they are stored now, for those that check them
upcoming.py, ahead.py             what is needed next, and the process that fetches it
locations.py, names.py            what a URL means; what its cached file is called (text only)
disk_cache.py, part_file.py,      whole files under their final names, one fetch per machine
folder.py, space.py               where, how much, and what goes first
range_reads.py, ranges.py         objects read by byte ranges
fetch.py, retry.py, checks.py,    one object from its transport into a sink, tried again, compared, unpacked
compression.py
transport.py, web.py, stores.py,  where bytes come from: files, http(s), fsspec, commands
command.py
local.py, mounts.py               what a look at a local file tells; which files are safe to map
meter.py, progress.py, process.py what is counted and shown; what each process makes for itself
"""

from wids.storage.locations import locate
from wids.storage.options import StorageOptions
from wids.storage.process import PerProcess
from wids.storage.ranges import RangeSource, ReadAhead
from wids.storage.space import CachedShard, CacheSpace
from wids.storage.storage import Storage
from wids.storage.stored import StoredShard

__all__ = [
    "CacheSpace",
    "CachedShard",
    "PerProcess",
    "RangeSource",
    "ReadAhead",
    "Storage",
    "StorageOptions",
    "StoredShard",
    "locate",
]
