"""Stored indexes of shards: in the pack that the descriptor names, else in the cache folder.

    train.widx                          a pack: a file beside the descriptor, with an entry for each shard
    CACHE/.wids/index/DIGEST.widx       one shard's index, for the very file that was read

An index that does not fit its shard, is damaged or of another version is rebuilt, for that shard alone.
"""

from wids.index_files.cache import IndexCache
from wids.index_files.files import IndexFiles
from wids.index_files.pack import SUFFIX, IndexPack, entry_name, pack_index, unpack_index, write_pack
from wids.index_files.recalled import Recalled

__all__ = [
    "SUFFIX",
    "IndexCache",
    "IndexFiles",
    "IndexPack",
    "Recalled",
    "entry_name",
    "pack_index",
    "unpack_index",
    "write_pack",
]
