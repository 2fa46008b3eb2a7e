"""What advice should a reader give the system about files that are not in the page cache?

    make bench-cold

Samples are read in several orders, by this package as it is and from a plain map with each kind of `madvise` advice.
The files are dropped from the page cache before each measurement. Reported are microseconds per sample, and bytes read
from disk per byte of the pages that hold the samples. The answers: batches, and samples of 64 KiB and more, are
requested before they are touched, by MADV_WILLNEED on just their pages; small samples one at a time, and runs in order,
are left to the system's readahead.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corpus

import wids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OUT = corpus.OUT / "cold"
SIZES = {300: 400_000, 14_000: 20_000, 64 << 10: 5_000, 300 << 10: 1_200}
"""Bytes per sample, and samples in a shard: about 300 MB."""
READS = 1024
BATCH = 256
CHUNK = 2000
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PAGE = mmap.PAGESIZE
ADVICE = {"no advice": None, "random": mmap.MADV_RANDOM, "sequential": mmap.MADV_SEQUENTIAL}


def main() -> None:
    """Measure each size in each order, all sides in turn."""
    OUT.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
    sides = ("this package", *ADVICE)
    draw = random.Random(0)
    for size, count in SIZES.items():
        path = write_shard(size, count)
        print(f"\n{size:,} B a sample, {count:,} of them; us for a sample, and bytes read for each byte of their pages")
        print(f"{'':26}" + "".join(f"{side:>20}" for side in sides))
        for order, batches in orders(count).items():
            found: dict[str, list[tuple[float, float]]] = {side: [] for side in sides}
            for _ in range(ROUNDS):
                for side in draw.sample(sides, len(sides)):  # else a side would always follow the same other one
                    found[side].append(measure(path, count, side, batches))
            medians = {
                side: (statistics.median(time for time, _ in each), statistics.median(read for _, read in each))
                for side, each in found.items()
            }
            results.setdefault(str(size), {})[order] = medians
            cells = [f"{time:11.0f} {read:7.2f}x" for time, read in medians.values()]
            print(f"{order:26}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
    (corpus.OUT / "cold_files.json").write_text(json.dumps(results, indent=1))


def write_shard(size: int, count: int) -> Path:
    """Write a shard of samples with one field, unless it exists."""
    path = OUT / f"{size}.tar"
    if not path.exists():
        draw = random.Random(size)
        samples = ((f"{number:06d}.bin", draw.randbytes(size)) for number in range(count))
        corpus.write_tar(path.with_suffix(".part"), samples)
        path.with_suffix(".part").rename(path)
    return path


def orders(count: int) -> dict[str, list[list[int]]]:
    """Return the indices of each order, in batches that are requested together."""
    draw = random.Random(0)
    anywhere = draw.sample(range(count), min(READS, count))
    first = draw.randrange(max(1, count - READS))
    chunk = list(range(min(CHUNK, count)))
    draw.shuffle(chunk)
    return {
        "random, one at a time": [[index] for index in anywhere],
        f"random, batches of {BATCH}": batched(anywhere, BATCH),
        "chunk-shuffled, of 64": batched(chunk, 64),
        "in order, one at a time": [[index] for index in range(first, min(first + READS, count))],
    }


def batched(indices: list[int], size: int) -> list[list[int]]:
    """Return a list in pieces of `size`."""
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def measure(path: Path, count: int, side: str, batches: list[list[int]]) -> tuple[float, float]:
    """Return microseconds per sample, and bytes read per byte of the pages that hold the samples."""
    dataset = wids.ShardListDataset([(str(path), count)], transformations=[])
    places = {index: dataset.locate(index)[".bin"] for batch in batches for index in batch}
    spans = {index: (place.offset, place.offset + place.size) for index, place in places.items()}
    if side == "this package":
        read = dataset.__getitems__ if len(batches[0]) > 1 else lambda batch: [dataset[batch[0]]]
    else:
        read = mapped(path, ADVICE[side], spans)
    corpus.drop(path)
    before, started = bytes_read(), time.perf_counter()
    for batch in batches:
        read(batch)
    seconds, read_bytes = time.perf_counter() - started, bytes_read() - before
    pages = {page for start, stop in spans.values() for page in range(start // PAGE, (stop - 1) // PAGE + 1)}
    dataset.close()
    return 1e6 * seconds / len(spans), read_bytes / (len(pages) * PAGE)


def mapped(path: Path, advice: int | None, spans: dict[int, tuple[int, int]]) -> Callable[[list[int]], Any]:
    """Return a reader that slices a map."""
    with path.open("rb") as file:
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if advice is not None:
        whole.madvise(advice)
    return lambda batch: [whole[slice(*spans[index])] for index in batch]


def bytes_read() -> int:
    """Return how many bytes this process has read from disks."""
    return int(next(line.split()[1] for line in lines() if line.startswith("read_bytes")))


def lines() -> Iterator[str]:
    """Yield the lines in which the system reports this process's input and output."""
    yield from Path("/proc/self/io").read_text(encoding="ascii").splitlines()


if __name__ == "__main__":
    main()
