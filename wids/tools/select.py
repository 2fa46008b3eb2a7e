"""A selection of samples to a descriptor of its own, so that it can be shared and pinned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.descriptor.urls import is_url
from wids.errors import DescriptorError
from wids.tools.create import name_shards
from wids.tools.files import check_place, refuse_shards, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wids.dataset import ShardListDataset

_OWN = {"shardlist", "datasets", "base", "index", "rows"}
"""What a selection's descriptor states itself, and does not copy from the first one."""


def write_selection(descriptor: Any, rows: Any, output: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the descriptor of some samples of a dataset, and return what it says.

    It lists all shards, so that `__index__` stays what it is in the dataset, and the rows as bits or ranges, whichever is
    shorter. A fingerprint pins it: when the shards have other names, counts or order later, loading it is an error.

    Args:
        descriptor: What `ShardListDataset` takes, a selection too; or a `ShardListDataset`.
        rows: What `ShardListDataset.select` takes: a mask or indices.
        output: Path of the new descriptor; it appears only whole. Shards under its folder are named relative to it.

    Raises:
        DescriptorError: `descriptor` cannot be read, or `output` cannot be a descriptor.
        OSError: `output` cannot be written.
        TypeError: `rows` is neither a mask nor indices.
        ValueError: A mask has another length.
        IndexError: An index is out of range; names it.

    Examples:
        >>> import wids
        >>> content = write_selection("train.json", range(0, 100, 10), "tenth.json")
        >>> len(wids.ShardListDataset("tenth.json"))
        10
    """
    from wids.dataset import ShardListDataset

    path = Path(output)
    check_place(path)
    if isinstance(descriptor, (str, os.PathLike)) and path.exists() and Path(descriptor).exists():
        _refuse_same(path, Path(descriptor))
    dataset = descriptor if isinstance(descriptor, ShardListDataset) else ShardListDataset(descriptor)
    refuse_shards(path, (str(shard["url"]) for shard in dataset.spec["shardlist"]))
    selected = dataset.select(rows)
    content = {key: value for key, value in dataset.spec.items() if key not in _OWN}
    content |= {"wids_version": 1, **_list_shards(dataset, path), "rows": selected.describe_rows()}
    if content.get("columns"):
        urls = name_shards(list(content["columns"].values()), path.parent.absolute(), None)
        content["columns"] = dict(zip(content["columns"], urls, strict=True))
    write_json(path, content)
    return content


def _refuse_same(path: Path, descriptor: Path) -> None:
    if path.samefile(descriptor):
        raise DescriptorError(f"{path}: is the descriptor to select from; name another file to write")


def _list_shards(dataset: ShardListDataset, path: Path) -> dict[str, Any]:
    """Return the entries that list the shards of a dataset and their indexes, with URLs relative to a descriptor."""
    shards: Sequence[Mapping[str, Any]] = dataset.spec["shardlist"]
    folder = path.parent.absolute()
    names = name_shards([str(shard["url"]) for shard in shards], folder, None)
    listed = [
        {key: value for key, value in {**shard, "url": name}.items() if key not in {"dataset", "index"}}
        for shard, name in zip(shards, names, strict=True)
    ]
    for entry, shard in zip(listed, shards, strict=True):
        if shard.get("dataset") and shard["dataset"] != dataset.spec.get("name"):
            entry["dataset"] = shard["dataset"]
    packs = {shard.get("index") for shard in shards}
    if len(packs) == 1 and None not in packs:
        return {"index": name_shards([str(packs.pop())], folder, None)[0], "shardlist": listed}
    for entry, shard in zip(listed, shards, strict=True):
        if shard.get("index"):  # absolute: readers resolve only the descriptor's own
            entry["index"] = _absolute(str(shard["index"]))
    return {"shardlist": listed}


def _absolute(url: str) -> str:
    return url if is_url(url) else os.path.abspath(url)  # noqa: PTH100 - resolve() would follow links
