"""A folder that `energon prepare` has processed, to its splits.

    .nv-meta/.info.json     {"energon_version": …, "shard_counts": {"parts/000.tar": 1000, …}}; older: .info.yaml
    .nv-meta/split.yaml     {"split_parts": {"train": ["parts/{000..127}.tar", …], …}, "exclude": [… ]}; or split.json
    .nv-meta/index.sqlite   where each file is, for look-ups by key; not used here
    parts/000.tar.idx       offset of each sample's first header, and of the end

Names are relative to the folder; patterns have braces. Formats as read and written by megatron-energon 7.4:
`megatron/energon/flavors/webdataset/metadata.py`, `structs.py` and `itar.py` in https://github.com/NVIDIA/Megatron-Energon.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from wids.descriptor.documents import parse_document
from wids.descriptor.folders import Count, Layout
from wids.descriptor.schema import describe_type
from wids.descriptor.urls import expand_braces
from wids.errors import DescriptorError

if TYPE_CHECKING:
    from collections.abc import Collection

    from wids.descriptor.folders import Folder

_log = logging.getLogger(__name__)

MAIN_FOLDER = ".nv-meta/"
INFO = ".info.json"
SPLITS = "split.yaml"

_OLD_INFO = ".info.yaml"
_OTHER_SPLITS = "split.json"


def read_layout(folder: Folder, kind: str | None = None) -> Layout | None:
    """Return the splits of a prepared folder; None when the folder is not prepared, or `kind` is another kind.

    Raises:
        DescriptorError: A file in `.nv-meta` is missing or malformed.
        FetchError: A file in `.nv-meta` cannot be read.
    """
    if kind not in {None, "energon"} or (kind is None and MAIN_FOLDER not in folder.names):
        return None
    there = folder.names_in(MAIN_FOLDER)
    counts = _read_counts(folder, there)
    name = next((name for name in (SPLITS, _OTHER_SPLITS) if name in there), None)
    if name is None:
        return Layout("energon", {}, undivided=list(counts), counts=counts)
    return Layout("energon", _read_splits(folder, MAIN_FOLDER + name, counts), counts=counts)


def _read_counts(folder: Folder, there: Collection[str]) -> dict[str, Count]:
    name = next((name for name in (INFO, _OLD_INFO) if name in there), None)
    if name is None:
        raise DescriptorError(
            f"{folder.name}: there is no {MAIN_FOLDER}{INFO}, which lists the shards; run energon prepare "
            "again, or index the shards with: widsindex create"
        )
    file = f"{folder.name}/{MAIN_FOLDER}{name}"
    counts = parse_document(folder.read(MAIN_FOLDER + name), file).get("shard_counts")
    if not isinstance(counts, dict):
        raise DescriptorError(
            f"{file}: shard_counts is {describe_type(counts)}; it must give each shard's number of samples"
        )
    for shard, count in counts.items():
        if not isinstance(shard, str) or type(count) is not int or count < 0:
            raise DescriptorError(
                f"{file}: shard_counts[{str(shard)[:200]!r}] is {describe_type(count)}; it must be an integer of at least 0"
            )
        _check_name(shard, f"{file}: shard_counts")
    return {shard: Count(count, MAIN_FOLDER + name) for shard, count in counts.items()}


def _read_splits(folder: Folder, name: str, counts: dict[str, Count]) -> dict[str, list[str]]:
    file = f"{folder.name}/{name}"
    content = parse_document(folder.read(name), file)
    parts = content.get("split_parts")
    if not isinstance(parts, dict):
        raise DescriptorError(f"{file}: split_parts is {describe_type(parts)}; it must name the shards of each split")
    excluded = set(_expand(content.get("exclude") or [], f"{file}: exclude"))
    single = len(excluded - counts.keys())
    if single:
        _log.warning(
            "%s: excludes %d single samples, which are read all the same: only whole shards can be left out",
            file,
            single,
        )
    return {
        str(split): [
            shard for shard in _expand(patterns or [], f"{file}: split_parts.{split}") if shard not in excluded
        ]
        for split, patterns in parts.items()
    }


def _expand(patterns: Any, where: str) -> list[str]:
    if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
        raise DescriptorError(f"{where} is {describe_type(patterns)}; it must be a list of names")
    names = [name for pattern in patterns for name in expand_braces(pattern)]
    for name in names:
        _check_name(name, where)
    return names


def _check_name(name: str, where: str) -> None:
    if name.startswith("/") or ".." in name.split("/"):
        raise DescriptorError(f"{where} has {name[:200]!r}, which is not in the folder; name shards relative to it")
