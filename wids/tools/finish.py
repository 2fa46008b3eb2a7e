"""Finished shard files to published shards: described, given their names in order, and listed in a descriptor."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from wids.errors import WidsError, redact
from wids.index_files import unpack_index, write_pack
from wids.storage import Storage, StorageOptions
from wids.tools.describe import ShardDescription, Wanted, describe_shard
from wids.tools.files import encode_json, write_json
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wids.tar import TarIndex
    from wids.tools.shard_file import ShardFile
    from wids.tools.shard_names import ShardNames
    from wids.tools.targets import Target

_OF_SHARDS = frozenset({"__kind__", "wids_version", "index", "shardlist", "datasets", "base", "rows"})
"""Entries of a descriptor that say where its samples are."""
_OF_PLACES = frozenset({"name", "columns"})
"""Entries that hold for its own file, or its own order of samples."""


def finish_shard(shard: ShardFile, target: Target, *, index: bool, md5: bool) -> ShardDescription | None:
    """Publish a shard that was written whole; return what is in it if `index`, else None.

    The file is read back, by the code that reads it later: the description says what is in it, not what was meant to be.

    Raises:
        WidsError: The file does not hold what was written.
        OSError: It cannot be published.
    """
    found = None
    if index:
        found = describe_shard(str(shard.part.path), Storage(), Wanted(md5=md5, index=True))
        if found.num_samples != shard.num_samples:
            raise WidsError(
                f"{redact(target.url(shard.name))}: has {counted(found.num_samples, 'sample')}, but {counted(shard.num_samples, 'was', 'were')} written; "
                "is its disk damaged?"
            )
    target.publish(shard.part, shard.name)
    return found


def describe_existing(
    target: Target, name: str, storage_options: Mapping[str, Any] | None, *, md5: bool
) -> tuple[ShardDescription, TarIndex]:
    """Return what is in an existing shard, and its index.

    Raises:
        WidsError: It cannot be read.
    """
    storage = Storage(StorageOptions(storage_options=storage_options))
    found = describe_shard(target.url(name), storage, Wanted(md5=md5, index=True))
    assert found.packed is not None  # it was wanted
    return found, unpack_index(found.packed)


def facts_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a descriptor says that holds for other shards of its samples too: its classes, its license."""
    return {key: value for key, value in spec.items() if key not in _OF_SHARDS | _OF_PLACES}


def check_facts(facts: Mapping[str, Any], names: ShardNames) -> dict[str, Any]:
    """Return a copy of what a descriptor is to say besides its shards, checked before the shards are written.

    Raises:
        ValueError: One of the facts is about the shards.
        DescriptorError: JSON cannot hold it.
    """
    taken = _OF_SHARDS & facts.keys()
    if taken:
        raise ValueError(f"facts has {', '.join(sorted(taken))}, which the shards determine; leave that out")
    encode_json(facts, names.descriptor)
    return dict(facts)


def write_descriptor(
    names: ShardNames,
    target: Target,
    found: Sequence[tuple[str, ShardDescription]],
    facts: Mapping[str, Any],
) -> None:
    """Write the pack and the descriptor of shards, as `create_index` does with `index=True`.

    Args:
        names: Names of the shards, which the descriptor is named after.
        target: Where the shards are.
        found: Name and content of each shard, in order.
        facts: What the descriptor says besides.
    """
    entries = [(name, *shard.packed) for name, shard in found if shard.packed is not None]
    target.put(names.pack, lambda path: write_pack(path, names.pack, entries))
    content = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": names.stem,
        **facts,
        "index": names.pack,
        "shardlist": [shard.to_entry(name, md5=shard.md5 is not None) for name, shard in found],
    }
    target.put(names.descriptor, lambda path: write_json(path, content))


def remove_shards(names: ShardNames, target: Target, first: int) -> None:
    """Remove descriptor and pack, and the shards from number `first` up to the first gap."""
    target.remove(names.descriptor)
    target.remove(names.pack)
    stop = first
    while target.exists(names.name(stop)):
        stop += 1
    # The last one first: after a crash there is no gap before those that are left, and they are found again.
    for number in reversed(range(first, stop)):
        target.remove(names.name(number))


class Finisher:
    """Finishes shards in another thread, one after the other, while the next one is written.

    Args:
        finish: Finishes one shard; called in that thread.
    """

    def __init__(self, finish: Callable[[ShardFile], None]) -> None:
        self._finish = finish
        self._pool: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def submit(self, shard: ShardFile) -> None:
        """Finish a shard in the thread; waits for the one before, so that at most one is unfinished.

        Raises:
            Exception: What finishing the one before raised.
        """
        self.wait()
        self._pool = self._pool or ThreadPoolExecutor(1, "wids-writer")
        self._last = self._pool.submit(self._finish, shard)

    def wait(self) -> None:
        """Wait until all are finished.

        Raises:
            Exception: What finishing the last one raised.
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def close(self) -> None:
        """End the thread."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
