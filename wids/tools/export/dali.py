"""Shards to the index files that DALI's `fn.readers.webdataset` takes, one per shard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from wids.descriptor.urls import stem_of
from wids.errors import DescriptorError, WidsError, redact
from wids.tar import format_offsets
from wids.tools.export.samples import read_samples
from wids.tools.files import make_folder, write_file
from wids.tools.spread import map_in_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from wids.storage import Storage

_SUFFIX = ".idx"


def export_dali(
    shards: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    storage: Storage,
    executor: Executor | None = None,
    progress: bool = False,
) -> list[Path]:
    """Write an index file of version 1.2 for each shard, as DALI's `wds2idx` does.

    Hard links are listed with the bytes of their targets, and members without an extension are left out.

    Args:
        shards: Entries of a descriptor, with URLs resolved.
        folder: For the files, `NAME.idx` for `NAME.tar`; made when the first one is written.
        storage: Opens the shards.
        executor: Runs the work; None for one shard after the other in this thread.
        progress: Show a bar when it takes more than a moment.

    Returns:
        The files, in the order of `shards`: what `index_paths` takes.

    Raises:
        DescriptorError: Two shards have the same name.
        WidsError: A shard cannot be read, is compressed or empty, or has names that an index file cannot hold.
        OSError: A file cannot be written; those of earlier shards are whole.
    """
    paths = [folder / f"{stem_of(str(shard['url']))}{_SUFFIX}" for shard in shards]
    if len(set(paths)) < len(paths):
        double = next(path for number, path in enumerate(paths) if path in paths[:number])
        raise DescriptorError(f"{double}: would be the index of two shards; export them to separate folders")
    tables = map_in_order(partial(_make_table, storage), shards, executor, "indexing", progress=progress)
    for path, table in zip(paths, tables, strict=True):
        make_folder(folder)  # not before, so that nothing is left if the first shard cannot be read
        write_file(path, table)
    return paths


def _make_table(storage: Storage, shard: Mapping[str, Any]) -> bytes:
    samples = read_samples(shard, storage)
    name = redact(str(shard["url"]))
    if not samples:
        raise WidsError(f"{name}: has no samples, which DALI does not accept; leave it out of the descriptor")
    files = [file for sample in samples for file in sample.files]
    names = [[(file.extension, f"{sample.key}.{file.extension}") for file in sample.files] for sample in samples]
    try:
        return format_offsets(names, [file.offset for file in files], [file.size for file in files])
    except ValueError as error:
        raise WidsError(f"{name}: {error}") from error
