"""Where shards are stored, to open sources: mapped or read in place, from the disk cache, or by ranges.

storage.py                        Storage: a shard's URL to a Source
options.py                        StorageOptions
stored.py                         StoredShards: shards as they are stored now, past the disk cache
upcoming.py, ahead.py             what is needed next, and the process that fetches it
locations.py, names.py            the meaning of a URL; the name of its cached file (text only)
disk_cache.py, part_file.py       complete files under their final names, one fetch per machine
folder.py, space.py               the cache folder; its limit, and what is removed first
range_reads.py, ranges.py         objects read by byte ranges
fetch.py, retry.py, checks.py,    one object from its transport into a sink: retried, compared, unpacked
compression.py
transport.py, web.py, stores.py,  where bytes come from: files, http(s), fsspec, commands
command.py
local.py, mounts.py,              facts about local files; which are safe to map; whether a disk is being read
disk_reads.py
meter.py, progress.py, process.py counters and progress; values that each process makes for itself
"""

from wids.storage.disk_reads import DiskReads
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
    "DiskReads",
    "PerProcess",
    "RangeSource",
    "ReadAhead",
    "Storage",
    "StorageOptions",
    "StoredShard",
    "locate",
]
