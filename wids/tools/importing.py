"""A folder that another tool made, to a descriptor; counts that its files state are not made again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wids.descriptor import open_folder, read_folder
from wids.errors import DescriptorError, redact
from wids.storage import Storage
from wids.tools.create import name_shards
from wids.tools.describe import Wanted, describe_shard
from wids.tools.files import check_place, refuse_shards, write_json
from wids.tools.image_folder import holds_images, list_images, pack_images
from wids.tools.spread import map_in_order

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from wids.descriptor import Folder
    from wids.tools.image_folder import ImageFolder


IMAGE_FOLDER = "imagefolder"
"""The kind of folder that holds images and no shards yet."""


class Imported(NamedTuple):
    """What was made of a folder."""

    content: dict[str, Any]
    """The descriptor."""
    kind: str
    """What the folder was taken for: one of `wids.descriptor.KINDS`, or `IMAGE_FOLDER`."""
    num_counted: int
    """Shards whose samples had to be counted, because no file in the folder states how many they are."""


def import_folder(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    kind: str | None = None,
    name: str | None = None,
    max_bytes: float | str | None = None,
    seed: int | None = None,
    resume: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    storage: Storage | None = None,
) -> Imported:
    """Write the descriptor of a folder made by img2dataset, Energon or DALI, or of a Hugging Face repository; return it.

    Counts found in the folder are used; a shard that turns out to have fewer samples is an error when it is first read.
    Images in one folder per class are first written into shards beside the descriptor.

    Args:
        source: Path or URL of the folder.
        output: Path of the descriptor; it appears only whole. Shards under its folder are named relative to it.
        split: Which split of a folder that has several.
        kind: What the folder is, one of `wids.descriptor.KINDS` or `IMAGE_FOLDER`; None to tell it from its files.
        name: Of the dataset; None for the name of the split or the folder, or for images that of the descriptor.
        max_bytes: For images, most bytes of a shard, or `"500MB"`; None for 1 GB.
        seed: For images, write them in the random order of this seed; None for class by class.
        resume: For images, continue after the shards that an earlier run with the same arguments left.
        executor: Counts samples where that is needed; None for one shard after the other in this thread.
        progress: Show a bar when that takes more than a moment.
        storage: Reads the folder; None for one with the defaults.

    Raises:
        DescriptorError: There is no such folder or split, or what describes its shards is wrong.
        WidsError: A shard whose samples are counted cannot be read.
        OSError: The descriptor cannot be written.

    Examples:
        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/birds/test-%04d.tar", index=False) as writer:
        ...     writer.write({"__key__": "wren", "cls": 3})
        >>> imported = import_folder(f"{folder}/birds", f"{folder}/birds.json")
        >>> counts = [shard["nsamples"] for shard in imported.content["shardlist"]]
        >>> imported.kind, imported.num_counted, counts
        ('tars', 1, [1])
    """
    storage = storage or Storage()
    path = Path(output)
    check_place(path)
    folder = open_folder(str(source), storage.list_folder, storage.read)
    if folder is None:
        raise DescriptorError(f"{redact(str(source))}: is not a folder; name the folder that holds the shards")
    if kind is None and (max_bytes, seed, resume) != (None, None, False):
        kind = IMAGE_FOLDER  # these options are for images only
    images = _find_images(folder, split, kind)
    if images is not None:
        content = pack_images(images, path, name=name, max_bytes=max_bytes, seed=seed, resume=resume, progress=progress)
        return Imported(content, IMAGE_FOLDER, 0)
    found_kind, shards = read_folder(folder, split, kind)
    refuse_shards(path, (str(shard["url"]) for shard in shards))
    unknown = [number for number, shard in enumerate(shards) if "nsamples" not in shard]
    _count(shards, unknown, storage, executor, progress)
    content = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": name or split or folder.name.rpartition("/")[2],
        "shardlist": _name_from(shards, path.parent.absolute()),
    }
    write_json(path, content)
    return Imported(content, found_kind, len(unknown))


def _find_images(folder: Folder, split: str | None, kind: str | None) -> ImageFolder | None:
    """Return the images of a folder of images; None for any other folder.

    Raises:
        DescriptorError: `kind` is `IMAGE_FOLDER` and the folder holds no images; or it holds shards too, and `kind` is None.
    """
    if kind not in {None, IMAGE_FOLDER} or "://" in folder.location:
        return None
    path = Path(folder.location)
    if kind is None and folder.tars_below:
        if not folder.is_described and holds_images(path):
            raise DescriptorError(f"{path}: holds shards and folders of images; say which are meant with --format")
        return None
    if holds_images(path):
        return list_images(path, split)
    if kind == IMAGE_FOLDER:
        raise DescriptorError(f"{path}: holds no folders with images; name the folder whose folders are the classes")
    return None


def _count(
    shards: Sequence[dict[str, Any]],
    unknown: Sequence[int],
    storage: Storage,
    executor: Executor | None,
    progress: bool,
) -> None:
    uncounted = [shards[number] for number in unknown]
    found = map_in_order(partial(_count_one, storage), uncounted, executor, "counting", progress=progress)
    for number, (num_samples, size) in zip(unknown, found, strict=True):
        shards[number] |= {"nsamples": num_samples, "filesize": size}


def _count_one(storage: Storage, shard: dict[str, Any]) -> tuple[int, int]:
    described = describe_shard(str(shard["url"]), storage, Wanted(md5=False))
    return described.num_samples, described.size


def _name_from(shards: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Return the entries of shards, as a descriptor in `folder` calls them."""
    urls = name_shards([shard["url"] for shard in shards], folder, None)
    entries = [{"url": url, "nsamples": shard["nsamples"]} for url, shard in zip(urls, shards, strict=True)]
    for entry, shard in zip(entries, shards, strict=True):
        if "filesize" in shard:
            entry["filesize"] = shard["filesize"]
        if "offsets" in shard:
            entry["offsets"] = name_shards([shard["offsets"]], folder, None)[0]
    return entries
