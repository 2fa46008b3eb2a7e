"""Small files beside shards to the shards' sample counts.

    00000_stats.json    img2dataset: {"successes": 9871, …}, written when the shard is whole
    00000.idx           DALI: `v1.2 9871`, then a line per sample of `extension offset size name` for each file; v1.1 has no names
    00000.tar.idx       Energon: int64 offset of each sample's first header, and of the end

DALI's may also be in a folder beside the shards. Formats: `img2dataset/logger.py` in https://github.com/rom1504/img2dataset,
`tools/wds2idx.py` and `dali/operators/reader/loader/webdataset_loader.cc` in https://github.com/NVIDIA/DALI,
`megatron/energon/flavors/webdataset/itar.py` in https://github.com/NVIDIA/Megatron-Energon.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from wids.closing import threads
from wids.descriptor.documents import parse_document
from wids.descriptor.folders import Count
from wids.descriptor.urls import TAR_NAME, local_path
from wids.errors import DescriptorError
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.descriptor.folders import Folder

_log = logging.getLogger(__name__)

_STATS = "_stats.json"
_DALI_FOLDERS = ("idx/", "index/", "idx_files/")
"""Folders in which DALI's files are looked for when they are not beside the shards."""
_DALI_HEAD = re.compile(rb"(v1\.[12]) (\d{1,18})\s")
_HEAD_BYTES = 64
_OFFSET_BYTES = 8
_BLOCK_BYTES = 512
_READ_AT_ONCE = 16


def find_counts(folder: Folder, names: list[str]) -> dict[str, Count]:
    """Return the sample counts that files beside the shards give.

    Args:
        folder: Folder of the shards.
        names: Names of the shards, relative to the folder.

    Returns:
        Counts by name; a shard without a usable file is left out.

    Raises:
        FetchError: A file cannot be read.
    """
    files = {name: file for name in names if (file := next(_find_files(folder, name), None)) is not None}
    with threads(_READ_AT_ONCE) as pool:
        read = pool.map(partial(_read_count, folder), files.values())
        counts = {name: count for name, count in zip(files, read, strict=True) if count is not None}
    if any(file.endswith(_STATS) for file in files.values()) and len(counts) < len(names):
        missing = [name for name in names if name not in counts]
        in_all = counted(len(missing), "shard")
        _log.warning(
            "%s: img2dataset has not written its statistics of %s (%s in all), as it does when a shard is whole",
            folder.name,
            missing[0],
            in_all,
        )
    return counts


def _find_files(folder: Folder, name: str) -> Iterator[str]:
    """Yield the names of existing files that may have a shard's sample count, the most reliable first."""
    parent, slash, base = name.rpartition("/")
    parent += slash
    stem = TAR_NAME.sub("", base)
    there = folder.names_in(parent)
    for file in (f"{stem}{_STATS}", f"{stem}.tar.idx", f"{stem}.idx"):
        if file in there:
            yield parent + file
    for place in _DALI_FOLDERS:
        if place in there and f"{stem}.idx" in folder.names_in(parent + place):
            yield f"{parent}{place}{stem}.idx"


def _read_count(folder: Folder, file: str) -> Count | None:
    if not file.endswith(_STATS):
        return _read_idx(folder, file)
    where = f"{folder.name}/{file}"
    try:
        count = parse_document(folder.read(file), where).get("successes")
    except DescriptorError as error:
        _log.warning("%s; the shard's samples are counted instead", error)
        return None
    if type(count) is not int or count < 0:
        _log.warning("%s: successes is %r, which is not a number of samples; they are counted instead", where, count)
        return None
    return Count(count, file)


def _read_idx(folder: Folder, file: str) -> Count | None:
    """Return the count in a file of DALI or Energon; None when it is neither's."""
    head, size = _read_head(folder, file)
    dali = _DALI_HEAD.match(head)
    if dali is not None:
        return Count(int(dali[2]), file, offsets=file if dali[1] == b"v1.2" else None)
    first = int.from_bytes(head[:_OFFSET_BYTES], "little")
    if size >= _OFFSET_BYTES and size % _OFFSET_BYTES == 0 and first % _BLOCK_BYTES == 0:
        return Count(size // _OFFSET_BYTES - 1, file)
    _log.debug("%s/%s: is of neither DALI nor Energon, and not used", folder.name, file)
    return None


def _read_head(folder: Folder, file: str) -> tuple[bytes, int]:
    """Return the first bytes of a file, and its size in bytes; a local file is not read any further."""
    path = local_path(folder.url(file))
    if path is None:
        data = folder.read(file)
        return data[:_HEAD_BYTES], len(data)
    with Path(path).open("rb") as opened:
        return opened.read(_HEAD_BYTES), Path(path).stat().st_size
