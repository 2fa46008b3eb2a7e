"""Make datasets of any size that take no disk space: a descriptor, an index pack, and shards that are nearly all holes.

    python benchmarks/synthetic.py FOLDER [SHARDS [SAMPLES_PER_SHARD]]

A shard contains only the headers of its first sample. The index agrees with the files in everything in which they are
compared: sizes, both ends, and the headers by which a pack recognizes its shard. The members' bytes lie in holes and
read as zeros. Keys are numbers of nine digits.
"""

from __future__ import annotations

import os
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wids.index_files import pack_index, write_pack
from wids.source import PreadSource
from wids.tar import TarIndex
from wids.tools import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

BLOCK = 512
KEY_DIGITS = 9


@dataclass(frozen=True)
class Recipe:
    """What a dataset is like; equal recipes give equal datasets."""

    num_shards: int = 1000
    samples_per_shard: int = 10_000
    fields: dict[str, tuple[int, int]] = field(default_factory=lambda: {".jpg": (10_000, 60_000), ".txt": (20, 300)})
    """Minimum and maximum bytes of each field, in the order of the archive."""
    missing: float = 0.1
    """Share of the samples that have only the first field."""
    shuffled: bool = False
    """Whether the keys are in random order across all shards."""
    seed: int = 0

    @property
    def num_samples(self) -> int:
        """Number of samples in all shards."""
        return self.num_shards * self.samples_per_shard


def write(folder: Path, recipe: Recipe) -> Path:
    """Write shards, pack and descriptor; return the descriptor's path."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.arange(recipe.num_samples)
    if recipe.shuffled:
        np.random.default_rng(recipe.seed).shuffle(numbers)
    shardlist: list[dict[str, object]] = []

    def entries() -> Iterator[tuple[str, str, bytes]]:
        for shard in range(recipe.num_shards):
            path = folder / f"train-{shard:06d}.tar"
            rng = np.random.default_rng((recipe.seed, shard))
            first = shard * recipe.samples_per_shard
            index = make_index(recipe, numbers[first : first + recipe.samples_per_shard], rng)
            size = write_shard(path, index)
            shardlist.append({"url": path.name, "nsamples": index.num_samples, "filesize": size})
            yield path.name, *pack_index(PreadSource(str(path)), index)

    write_pack(folder / "train.widx", "train.widx", entries())
    descriptor = folder / "train.json"
    write_json(descriptor, {"wids_version": 1, "name": "train", "index": "train.widx", "shardlist": shardlist})
    return descriptor


def make_index(recipe: Recipe, numbers: NDArray[np.int64], rng: np.random.Generator) -> TarIndex:
    """Return the index of a shard whose samples have these numbers as keys."""
    names = tuple(recipe.fields)
    count = len(numbers)
    kinds = (rng.random(count) < recipe.missing).astype(np.int64)
    sizes = np.stack([rng.integers(low, high + 1, count) for low, high in recipe.fields.values()], axis=1)
    there = np.ones((count, len(names)), np.bool_)
    there[kinds == 1, 1:] = False
    sizes = sizes[there]
    room = BLOCK + -(-sizes // BLOCK) * BLOCK
    digits = numbers[:, None] // 10 ** np.arange(KEY_DIGITS)[::-1] % 10 + ord("0")
    return TarIndex(
        starts=np.concatenate([[0], np.cumsum(there.sum(axis=1))]),
        offsets=np.cumsum(room) - room + BLOCK,
        sizes=sizes,
        kinds=kinds,
        fields_of_kind=[names, names[:1]],
        key_ends=np.arange(1, count + 1) * KEY_DIGITS,
        keys=digits.astype(np.uint8).tobytes(),
        sparse={},
        broken_links={},
        has_end_blocks=True,
        bytes_after_end=0,
    )


def write_shard(path: Path, index: TarIndex) -> int:
    """Write a sparse file with the first sample's headers, and return its size."""
    size = int(index.offsets[-1]) + -(-int(index.sizes[-1]) // BLOCK) * BLOCK + 2 * BLOCK
    key = bytes(index.keys[:KEY_DIGITS]).decode()
    with path.open("wb") as file:
        for number, name in enumerate(index.fields_of_kind[int(index.kinds[0])]):
            info = tarfile.TarInfo(key + name)
            info.size = int(index.sizes[number])
            os.pwrite(file.fileno(), info.tobuf(tarfile.USTAR_FORMAT), int(index.offsets[number]) - BLOCK)
        file.truncate(size)
    return size


if __name__ == "__main__":
    place, *counts = sys.argv[1:]
    print(write(Path(place), Recipe(*map(int, counts))))
