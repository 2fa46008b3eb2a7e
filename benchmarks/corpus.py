"""The shards that benchmarks read, written once into the folder `out` beside them."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]
OUT = Path(__file__).parent / "out"
OLD = OUT / "wids-0.1.11"
KINDS: dict[str, tuple[int, int, dict[str, int]]] = {
    "img": (4, 5_000, {"jpg": 14_000, "cls": 3}),
    "txt": (4, 50_000, {"txt": 300}),
    "many": (100, 1_000, {"bin": 2_000, "txt": 60}),
    "one": (1, 100_000, {"bin": 2_000, "txt": 60}),
}
"""Shards, samples per shard, and bytes of each field; `one` is `many` in a single shard, for this package alone."""
SCALES: dict[str, dict[int, str]] = {
    "shards": {number: f"shards-{number}" for number in (1, 10, 100, 1000)},
    "members": {number: f"members-{number}" for number in (100, 1_000, 10_000, 100_000, 200_000)},
}
"""What grows, and the kind of data at each size: shards of 100 samples of 2 kB, or one shard of samples of 100 B."""
EVERY_KIND = {
    **KINDS,
    **{kind: (number, 100, {"bin": 2_000}) for number, kind in SCALES["shards"].items()},
    **{kind: (1, number, {"bin": 100}) for number, kind in SCALES["members"].items()},
}


def install_old() -> None:
    """Install wids 0.1.11 into the folder `OLD`, unless it is there."""
    if not OLD.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(OLD), "wids==0.1.11"]
        subprocess.run(pip, check=True)


def drop(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # dirty pages would stay
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_through(path: Path) -> None:
    """Fill the page cache with a file."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def tars(kind: str) -> list[Path]:
    """Return the paths of the shards of a kind."""
    return [OUT / kind / f"{kind}-{number:04d}.tar" for number in range(EVERY_KIND[kind][0])]


def samples(kind: str) -> Iterator[dict[str, bytes]]:
    """Yield all samples of a kind, the same ones for every format."""
    shards, count, fields = EVERY_KIND[kind]
    draw = random.Random(kind)
    for _ in range(shards * count):
        yield {field: draw.randbytes(size) for field, size in fields.items()}


def write_shards(kind: str) -> None:
    """Write the tars of a kind, unless they exist."""
    if (OUT / kind / ".ready").exists():
        return
    shutil.rmtree(OUT / kind, ignore_errors=True)
    (OUT / kind).mkdir()
    every = samples(kind)
    for shard, path in enumerate(tars(kind)):
        write_tar(
            path,
            (
                (f"{shard:04d}{number:06d}.{field}", data)
                for number in range(EVERY_KIND[kind][1])
                for field, data in next(every).items()
            ),
        )
    (OUT / kind / ".ready").touch()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write `(name, data)` members, in order."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def converted(kind: str, name: str, convert: Callable[[Path], None]) -> Path:
    """Return the folder of a copy in a peer's format, which is made unless it exists."""
    folder = OUT / kind / name
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        convert(folder)
        (folder / ".ready").touch()
    return folder
