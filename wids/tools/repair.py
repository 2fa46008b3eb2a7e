"""Damaged shards to mended ones where possible: cached copies are fetched again, damage in local shards is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from wids.descriptor import load_descriptor
from wids.errors import WidsError, redact
from wids.storage import Storage, StorageOptions
from wids.tools.check_shard import ShardChecker
from wids.tools.spread import map_in_order

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from wids.tools.findings import Finding

Outcome = Literal["whole", "fetched again", "damaged", "not cached"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about one shard."""

    shard: str
    """Its URL, without secrets."""
    outcome: Outcome
    """"damaged" is what could not be mended: a local shard, or one that is damaged where it comes from."""
    errors: list[Finding] = field(default_factory=list)
    """What was wrong, or still is."""


def repair(
    shards: Any, *, executor: Executor | None = None, progress: bool = False, storage: Storage | None = None
) -> list[Repair]:
    """Check the cached copies of a dataset's shards and fetch damaged ones again; check local shards where they lie.

    Shards are compared with the descriptor (counts, `filesize`, `md5sum`), and their members with an index pack that has
    checksums. A shard that is not in the cache is not fetched.

    Args:
        shards: What `ShardListDataset` takes: a descriptor, a folder, a pattern, …
        executor: Checks and fetches the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        storage: Has the cache; None for one with the defaults that compares MD5.

    Returns:
        What was done about each shard, in order.

    Raises:
        DescriptorError: The descriptor cannot be read.

    Examples:
        >>> [repaired.outcome for repaired in repair("train.json")]
        ['whole', 'whole']
    """
    storage = storage or Storage(StorageOptions(checksum="md5"))
    listed = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder).shards
    work = partial(_repair_shard, ShardChecker(storage), storage)
    return list(map_in_order(work, listed, executor, "repairing", progress=progress))


def _repair_shard(checker: ShardChecker, storage: Storage, shard: Mapping[str, Any]) -> Repair:
    name = redact(str(shard["url"]))
    if storage.is_read_in_place(shard):
        errors = checker(shard).errors
        return Repair(name, "damaged" if errors else "whole", errors)
    report = checker.check_cached(shard)
    if report is None:
        return Repair(name, "not cached")
    if not report.errors:
        return Repair(name, "whole")
    try:
        storage.remove_cached(shard)
        storage.open(shard)
    except (WidsError, OSError) as error:
        report.add("unreadable", str(error))
        return Repair(name, "damaged", report.errors)
    again = checker.check_cached(shard)
    if again is None or not again.errors:
        return Repair(name, "fetched again", report.errors)
    return Repair(name, "damaged", again.errors)
