"""Set-up shared by several tests: real tar shards and descriptors, written without the code under test."""

from __future__ import annotations

import io
import os
import tarfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CORPORA = Path(os.environ.get("WIDS_CORPORA", Path(__file__).parents[2] / "shared" / "corpora"))
"""Tar archives of other projects; tests that need them are skipped where the folder is missing."""

_NOBODY = 65534


def make_tar(members: Iterable[tuple[str, bytes]], *, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Return a tar of `(name, data)` members, in order, as CPython's `tarfile` writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tar_format) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]], *, tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    """Write a tar of `(name, data)` members, as `make_tar` makes it, and return its path."""
    path.write_bytes(make_tar(members, tar_format=tar_format))
    return path


def sample_members(num_samples: int, *, first: int = 0) -> list[tuple[str, bytes]]:
    """Return the members of samples `000000`, `000001`, …, each with a `.txt` and a `.cls`."""
    members = []
    for number in range(first, first + num_samples):
        members.append((f"{number:06d}.txt", f"text of {number}".encode()))
        members.append((f"{number:06d}.cls", str(number % 10).encode()))
    return members


def write_shards(folder: Path, counts: Iterable[int]) -> list[tuple[str, int]]:
    """Write one shard per count, with samples numbered consecutively across shards; return `(path, count)` pairs."""
    shards = []
    first = 0
    for shard, count in enumerate(counts):
        path = write_tar(folder / f"shard-{shard:04d}.tar", sample_members(count, first=first))
        shards.append((str(path), count))
        first += count
    return shards


def write_descriptor(path: Path, shardlist: Iterable[Mapping[str, object]], **extra: object) -> Path:
    """Write a version 1 descriptor."""
    path.write_bytes(orjson.dumps({"wids_version": 1, "shardlist": list(shardlist), **extra}))
    return path


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run a `with` block as the user `nobody` if this process runs as root, to whom no file is unreadable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
