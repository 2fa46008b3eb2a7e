"""Shards to what `energon prepare` writes beside them, so that Energon opens the folder.

    .nv-meta/.info.json     how many samples each shard has
    .nv-meta/split.yaml     which shards make which split
    .nv-meta/dataset.yaml   says that samples are crude: dictionaries for a cooker function of the user's
    .nv-meta/index.sqlite   where each sample and file lies, by key
    .nv-meta/index.uuid     changes with the index
    parts/000.tar.idx       uint64 offset of each sample's first header, and of the end

Formats as written by megatron-energon 7.4: `megatron/energon/flavors/webdataset/prepare.py`, `indexing.py` and `itar.py` in
https://github.com/NVIDIA/Megatron-Energon.
"""

from __future__ import annotations

import re
import secrets
import shutil
import sqlite3
import tarfile
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from wids.errors import DescriptorError, WidsError, redact
from wids.storage import locate
from wids.tar import first_headers, stops_of
from wids.tools.export.samples import Sample, read_samples
from wids.tools.files import explaining, write_file
from wids.tools.spread import map_in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.storage import Storage

_META = ".nv-meta"
_SKIPPED = re.compile(r"__[^/]*__($|/)")
"""Keys that Energon takes for metadata."""
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)")
_DATASET = b"__module__: megatron.energon\n__class__: CrudeWebdataset\n"
_TABLES = """
CREATE TABLE samples (
    tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, sample_index INTEGER NOT NULL,
    byte_offset INTEGER, byte_size INTEGER
);
CREATE TABLE sample_parts (
    tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, content_byte_offset INTEGER, content_byte_size INTEGER
);
"""
_INDEXES = """
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full ON
    sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
"""


class _Shard(NamedTuple):
    samples: list[Sample]
    bounds: list[int]
    """Offset of each sample's first header, and of the end of the last one."""


def export_energon(
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    *,
    storage: Storage,
    executor: Executor | None = None,
    progress: bool = False,
) -> Path:
    """Prepare a folder of shards for Energon, as `energon prepare` does.

    Args:
        splits: Name of each split to entries of a descriptor, with URLs resolved.
        folder: A folder of this machine that holds all shards; offset files go beside them, `.nv-meta` into the folder.
        storage: Opens the shards.
        executor: Runs the work; None for one shard after the other in this thread.
        progress: Show a bar when it takes more than a moment.

    Returns:
        The folder `.nv-meta`, which appears only when it is whole.

    Raises:
        DescriptorError: A shard is not in the folder, or the folder is prepared already.
        WidsError: A shard cannot be read, or two samples have the same key, which Energon does not support.
        OSError: A file cannot be written.
    """
    import yaml

    meta = folder / _META
    if meta.exists():
        raise DescriptorError(f"{meta}: already exists; remove it to have it written again")
    named = {split: [_name_in(folder, str(shard["url"])) for shard in shards] for split, shards in splits.items()}
    entries = {
        name: shard for split, shards in splits.items() for name, shard in zip(named[split], shards, strict=True)
    }
    part = meta.with_name(f"{_META}.{secrets.token_hex(8)}")
    try:
        with explaining(str(meta)):
            part.mkdir()
            looked_at = map_in_order(
                partial(_look_at, storage), list(entries.values()), executor, "indexing", progress=progress
            )
            bounds = _write_index(part / "index.sqlite", zip(entries, looked_at, strict=True))
            counts = {name: len(offsets) - 1 for name, offsets in bounds.items()}
            info = {"energon_version": None, "shard_counts": counts}
            (part / ".info.json").write_bytes(orjson.dumps(info, option=orjson.OPT_INDENT_2))
            (part / "split.yaml").write_text(yaml.safe_dump({"split_parts": named, "exclude": []}, sort_keys=False))
            (part / "dataset.yaml").write_bytes(_DATASET)
            (part / "index.uuid").write_text(str(uuid.uuid4()))
            for name, offsets in bounds.items():
                write_file((folder / name).with_suffix(".tar.idx"), offsets.astype("<u8").tobytes())
            part.rename(meta)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return meta


def _name_in(folder: Path, url: str) -> str:
    path = _path_of(url)
    if path is None or not path.is_relative_to(folder.absolute()):
        raise DescriptorError(
            f"{redact(url)}: is not in {folder}, and Energon accepts only shards directly in the folder; name their folder"
        )
    return path.relative_to(folder.absolute()).as_posix()


def _path_of(url: str) -> Path | None:
    location = locate(url)
    return Path(location.path).absolute() if location.kind == "local" else None


def _look_at(storage: Storage, shard: Mapping[str, Any]) -> _Shard:
    samples = [sample for sample in read_samples(shard, storage) if not _SKIPPED.match(sample.key)]
    if not samples:
        raise WidsError(
            f"{shard['url']}: has no samples, which Energon does not accept; leave it out of the descriptor"
        )
    files = [file for sample in samples for file in sample.files]
    offsets, sizes = (
        np.array(column, np.int64) for column in ([file.offset for file in files], [file.size for file in files])
    )
    headers = first_headers(offsets, sizes)
    if headers is None:
        return _Shard(samples, _scan_headers(locate(shard["url"]).path, len(samples)))
    firsts = np.cumsum([0, *(len(sample.files) for sample in samples[:-1])])
    return _Shard(samples, [*headers[firsts].tolist(), int(stops_of(offsets, sizes)[-1])])


def _scan_headers(path: str, num_samples: int) -> list[int]:
    """Return where samples begin as Energon finds it, in a shard that holds more than the files of samples."""
    bounds: list[int] = []
    last = None
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            match = _NAME.fullmatch(member.name) if member.isreg() and not _SKIPPED.match(member.name) else None
            if match is not None and match[1] != last:
                last = match[1]
                bounds.append(member.offset)
        bounds.append(tar.offset)
    if len(bounds) <= num_samples:
        raise WidsError(
            f"{path}: Energon finds {len(bounds) - 1} samples in it, and not {num_samples}; write the shard again without links"
        )
    return bounds[: num_samples + 1]


def _write_index(path: Path, shards: Iterable[tuple[str, _Shard]]) -> dict[str, NDArray[np.int64]]:
    """Write the database; return `(num_samples + 1,)` int64 for each shard: where samples begin, and the last one ends."""
    bounds = {}
    try:
        with closing(sqlite3.connect(path)) as database:
            database.executescript(f"PRAGMA journal_mode = OFF; {_TABLES}")
            for number, (name, shard) in enumerate(shards):
                _add_shard(database, number, name, shard)
                bounds[name] = np.array(shard.bounds, np.int64)
            database.executescript(_INDEXES)
            database.commit()
    except sqlite3.Error as error:
        raise OSError(
            f"{path.parent}: cannot be written: {error}; make room or get permission, or write elsewhere"
        ) from error
    return bounds


def _add_shard(database: sqlite3.Connection, number: int, name: str, shard: _Shard) -> None:
    for place, sample in enumerate(shard.samples):
        start, stop = shard.bounds[place], shard.bounds[place + 1]
        try:
            database.execute(
                "INSERT INTO samples VALUES (?, ?, ?, ?, ?)", (number, sample.key, place, start, stop - start)
            )
        except sqlite3.IntegrityError as error:
            raise WidsError(
                f"{name}: the key {sample.key!r} occurs twice, and Energon accepts each key only once; rename the files, or "
                "export without that shard"
            ) from error
        except UnicodeEncodeError as error:
            raise WidsError(
                f"{name}: the key {sample.key!r} is not UTF-8, which Energon cannot hold; rename it"
            ) from error
        rows = [(number, place, file.extension, file.offset, file.size) for file in sample.files]
        database.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", rows)
