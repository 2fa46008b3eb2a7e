"""A folder of images in one folder per class, to shards: what torchvision's `ImageFolder` reads, in its order and with its labels.

    root/cat/001.jpg    ->    key `cat/001`, `.jpg`, `.cls` 0
    root/dog/x/a.png    ->    key `dog/x/a`, `.png`, `.cls` 1

The classes are the sorted names of the folders that hold images, as in `torchvision/datasets/folder.py` of
https://github.com/pytorch/vision; the descriptor lists them under `classes`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import orjson

from wids.errors import DescriptorError, WidsError
from wids.tools.progress import show_progress
from wids.tools.shard_names import ShardNames
from wids.tools.writer import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Of images, as torchvision has them."""


class Image(NamedTuple):
    """One image."""

    path: str
    """Of its file."""
    key: str
    """Of its sample: the file's path in the folder, without its extension."""
    label: int
    """Number of its class, from 0."""


class ImageFolder(NamedTuple):
    """What a folder holds."""

    classes: list[str]
    """Names of the folders with images, sorted; labels are their numbers."""
    images: list[Image]
    """Class by class, sorted in each."""


def holds_images(folder: Path) -> bool:
    """Tell whether a folder in this one holds an image."""
    return any(True for name in _folders_in(folder) for _ in _find_images(folder / name))


def list_images(folder: Path, split: str | None = None) -> ImageFolder:
    """Return the images in the folders of a folder.

    Args:
        folder: Holds one folder per class; or, if a split is named, one such folder per split.
        split: Name of the split's folder, whose folders are the classes even if each of them is divided further; None where
            there are no splits.

    Raises:
        DescriptorError: There is no such split, or one must be named.
        OSError: A folder cannot be looked into.
    """
    if split is not None and not (folder / split).is_dir():
        raise DescriptorError(f"{folder}: has no folder {split!r}; name the folder that holds the classes of the split")
    folder = folder / (split or "")
    found = {name: list(_find_images(folder / name)) for name in _folders_in(folder)}
    divided = [name for name, files in found.items() if files and all("/" in file for file in files)]
    if split is None and divided and len(divided) == sum(map(bool, found.values())):
        raise DescriptorError(
            f"{folder}: has folders of folders of images, {', '.join(divided[:5])}; name one as the split with --split, or as "
            f"the folder; if they are the classes, import {folder.absolute().parent} with --split {folder.absolute().name}"
        )
    classes = [name for name, files in found.items() if files]
    names = _Keys()
    images = [
        Image(str(folder / name / file), names.make(f"{name}/{file}"), label)
        for label, name in enumerate(classes)
        for file in found[name]
    ]
    return ImageFolder(classes, images)


def pack_images(
    folder: ImageFolder,
    output: Path,
    *,
    name: str | None = None,
    max_bytes: float | str | None = None,
    seed: int | None = None,
    resume: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Write images into shards, their files unchanged, and a descriptor; return what the descriptor says.

    Args:
        folder: The images.
        output: Path of the descriptor; the shards are named after it, `train-000000.tar` beside `train.json`.
        name: Of the dataset; None for that of the descriptor's file.
        max_bytes: Most bytes of a shard, or `"500MB"`; None for 1 GB.
        seed: Write them in the random order of this seed; None for class by class.
        resume: Continue after the shards that an earlier run with the same arguments left.
        progress: Show a bar when it takes more than a moment.

    Raises:
        DescriptorError: Shards cannot be named after this descriptor.
        WidsError: Existing shards hold other images.
        OSError: An image cannot be read, or a shard cannot be written. The shards that exist by then are whole.
    """
    images = list(folder.images)
    pattern = output.with_name(f"{output.stem.replace('%', '%%')}-%06d.tar")
    descriptor = ShardNames.parse(pattern).descriptor
    if descriptor != output.name:
        raise DescriptorError(f"{output}: shards named after it would have another descriptor; name it {descriptor}")
    if seed is not None:
        random.Random(seed).shuffle(images)  # noqa: S311 - an order, no secret
    facts = {"classes": folder.classes} if name is None else {"name": name, "classes": folder.classes}
    with ShardWriter(pattern, max_bytes=max_bytes, resume=resume, facts=facts) as writer:
        done = writer.num_samples
        if done and (done > len(images) or images[done - 1].key != writer.last_key):
            raise WidsError(f"{output}: the existing shards hold other images; write elsewhere, or remove them")
        rest = show_progress(images[done:], "packing", len(images), unit="image", num_done=done, is_shown=progress)
        for image in rest:
            data = Path(image.path).read_bytes()
            extension = Path(image.path).suffix.lower()
            writer.write({"__key__": image.key, extension: data, ".cls": image.label})
    content: dict[str, Any] = orjson.loads(output.read_bytes())
    return content


def _folders_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))


def _find_images(folder: Path) -> Iterator[str]:
    """Yield the images in and below a folder, as torchvision orders them; links to folders are followed.

    Raises:
        OSError: A folder cannot be looked into; without its images the others would have other labels.
    """
    for root, _, names in sorted(os.walk(folder, onerror=_refuse, followlinks=True)):
        place = os.path.relpath(root, folder)
        prefix = "" if place == "." else f"{place}/"
        for name in sorted(names):
            if name.lower().endswith(_EXTENSIONS) and not name.startswith("."):
                yield prefix + name


def _refuse(error: OSError) -> NoReturn:
    raise error


class _Keys:
    """Names of files to unique keys without a dot in their last part, where the field would begin."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def make(self, name: str) -> str:
        """Return the key of the next file."""
        place, slash, base = name.rpartition("/")
        wanted = place + slash + base.rpartition(".")[0].replace(".", "_")
        key = wanted
        number = 1
        while key in self._taken:
            number += 1
            key = f"{wanted}_{number}"
        self._taken.add(key)
        return key
