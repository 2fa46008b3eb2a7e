"""A descriptor to one that agrees with what its shards hold now, and its index pack with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.errors import WidsError
from wids.index_files import IndexPack, write_pack
from wids.tools.describe import Wanted
from wids.tools.files import explaining
from wids.tools.journal import Journal
from wids.tools.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from wids.storage import Storage


def recount(
    entries: Iterable[dict[str, Any]],
    shards: Iterable[Mapping[str, Any]],
    storage: Storage,
    *,
    pack: Path | None = None,
    executor: Executor | None = None,
    progress: bool = False,
) -> list[tuple[str, Any, Any]]:
    """Set `nsamples`, and `filesize` and `md5sum` in entries that have them, to what the shards hold now.

    Args:
        entries: The descriptor's `shardlist`, changed in place.
        shards: The same shards with their URLs resolved.
        storage: Opens them.
        pack: Absolute path of the descriptor's index pack, which is made anew, with checksums if it had them or cannot be
            read; None if it has none.
        executor: Reads the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.

    Returns:
        `(url, count before, count now)` of each shard whose count changed.

    Raises:
        WidsError: A shard cannot be read; entries and pack are untouched.
    """
    entries = list(entries)
    urls = [str(shard["url"]) for shard in shards]
    wanted = Wanted(
        md5=any("md5sum" in entry for entry in entries),
        index=pack is not None,
        checksums=pack is not None and _has_checksums(pack, storage),
    )
    with Journal(None, None) as journal:
        survey = Survey(journal, storage, wanted)
        errors = survey.run({url: url for url in urls}, executor, progress=progress)
        if errors:
            raise WidsError("; ".join(errors.values()))
        if pack is not None:
            with explaining(str(pack)):
                write_pack(pack, str(pack), ((url, *survey.packed(url, url)) for url in urls))
    changes = []
    for entry, url in zip(entries, urls, strict=True):
        found = survey.found[url]
        before = entry.get("nsamples")
        if before != found.num_samples:
            changes.append((str(entry["url"]), before, found.num_samples))
        entry["nsamples"] = found.num_samples
        for name, value in (("filesize", found.size), ("md5sum", found.md5)):
            if name in entry:
                entry[name] = value
    return changes


def _has_checksums(pack: Path, storage: Storage) -> bool:
    try:
        return IndexPack(storage.open({"url": str(pack)}), str(pack)).has_checksums
    except Exception:  # zipfile raises half a dozen kinds for what is no ZIP
        return True  # checksums that nobody wanted do no harm; missing ones stop readers that compare
