"""How fast are shards written, compared with webdataset's own `ShardWriter`?

    make bench-write

Both write the same samples of bytes, in turn, in this process, into a fresh folder on the same disk; the time runs
until the last shard is closed. This package's writer also syncs each shard to disk and, in a second thread, reads its
headers back for the index pack; with `index=False` it only syncs. Before anything is timed, `tarfile` must read the
same names and bytes from what both have written.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import webdataset

import wids

ROUNDS = int(os.environ.get("ROUNDS", "5"))
KINDS = {
    # name: (number of samples, bytes of the image)
    "20,000 samples of 300 B + 2 B": (20_000, 300),
    "5,000 samples of 12 kB + 2 B": (5_000, 12_000),
    "2,000 samples of 110 kB + 2 B": (2_000, 110_000),
    "100 samples of 4 MB + 2 B": (100, 4_000_000),
}
NUM_SHARDS = 5


def main() -> None:
    """Print the table."""
    folder = Path(tempfile.mkdtemp(prefix="wids-write-", dir=os.environ.get("WIDS_BENCH_DIR")))
    sides = {"webdataset": write_with_webdataset, "wids": write_with_wids, "wids, index=False": write_without_index}
    print(f"MB/s, medians of {ROUNDS}" + " " * 20 + "".join(f"{side:>20}" for side in sides) + f"{'ratios':>16}")
    try:
        for name, (count, size) in KINDS.items():
            samples = make_samples(count, size)
            check(folder, sides, samples)
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(ROUNDS):
                for side, write in sides.items():
                    seconds[side].append(time_one(folder, write, samples))
            medians = {side: statistics.median(times) for side, times in seconds.items()}
            num_bytes = sum(len(sample["jpg"]) + len(sample["cls"]) for sample in samples)
            ratios = [medians["webdataset"] / medians[side] for side in list(sides)[1:]]
            speeds = "".join(f"{num_bytes / 1e6 / medians[side]:20.0f}" for side in sides)
            print(f"{name:44}{speeds}{ratios[0]:8.2f}{ratios[1]:8.2f}", flush=True)
    finally:
        shutil.rmtree(folder)


def make_samples(count: int, size: int) -> list[dict[str, object]]:
    """Return samples whose images are slices of random bytes."""
    noise = os.urandom(size + 4096)
    return [
        {"__key__": f"{number:09d}", "cls": b"%02d" % (number % 100), "jpg": noise[number % 4096 :][:size]}
        for number in range(count)
    ]


def write_with_webdataset(folder: Path, samples: list[dict[str, object]]) -> None:
    """Write with webdataset's own writer."""
    with webdataset.ShardWriter(
        f"{folder}/a-%06d.tar", maxcount=len(samples) // NUM_SHARDS, maxsize=1e12, verbose=0, mtime=0
    ) as writer:
        for sample in samples:
            writer.write(sample)


def write_with_wids(folder: Path, samples: list[dict[str, object]], *, index: bool = True) -> None:
    """Write with this package's writer, including descriptor and index pack."""
    with wids.ShardWriter(f"{folder}/a-%06d.tar", max_samples=len(samples) // NUM_SHARDS, index=index) as writer:
        for sample in samples:
            writer.write(sample)


def write_without_index(folder: Path, samples: list[dict[str, object]]) -> None:
    """Write with this package's writer, without an index pack."""
    write_with_wids(folder, samples, index=False)


def time_one(folder: Path, write: object, samples: list[dict[str, object]]) -> float:
    """Return the seconds that writing takes; the shards are removed afterwards."""
    place = folder / "one"
    place.mkdir()
    os.sync()
    start = time.perf_counter()
    write(place, samples)  # type: ignore[operator]
    seconds = time.perf_counter() - start
    shutil.rmtree(place)
    return seconds


def check(folder: Path, sides: dict[str, object], samples: list[dict[str, object]]) -> None:
    """Stop if the sides write different members."""
    found = set()
    for write in sides.values():
        place = folder / "check"
        place.mkdir()
        write(place, samples)  # type: ignore[operator]
        members = []
        for path in sorted(place.glob("*.tar")):
            with tarfile.open(path) as tar:
                members += [(info.name, info.size, hash(tar.extractfile(info).read())) for info in tar]  # type: ignore[union-attr]
        found.add(hash(tuple(members)))
        shutil.rmtree(place)
    if len(found) != 1:
        sys.exit("the sides write different members")


if __name__ == "__main__":
    main()
