"""How long does reading remote shards take with and without prefetching and by ranges, and what does a small cache hit?

    make bench-remote

The server runs on localhost and waits before each answer, as a distant store does. All figures of a table come from one
run, in which the sides take turns; times are medians.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import wids
from tests.storage.test_space import epochs, farthest_hits, lru_hits
from tests.storage.web_server import WebServer, web_server
from tests.support import write_tar
from wids.storage import Storage, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENCY_S = 0.03
ROUNDS = 3
NUM_SHARDS = 24
PER_SHARD = 200
SAMPLE_BYTES = 20_000
STEP_S = 0.0004


def main() -> None:
    """Print all tables."""
    with tempfile.TemporaryDirectory() as folder, web_server() as server:
        server.has_ranges = True
        entries = put_shards(server, Path(folder))
        server.delay_s = LATENCY_S
        print_ahead(entries)
        print_ranges(server, entries)
    print_hits()


def put_shards(server: WebServer, folder: Path) -> list[dict[str, Any]]:
    """Write, index and serve shards; return their descriptor entries."""
    draw = random.Random(1)
    paths = []
    for number in range(NUM_SHARDS):
        members = [(f"{number:03d}{n:05d}.bin", draw.randbytes(SAMPLE_BYTES)) for n in range(PER_SHARD)]
        paths.append(write_tar(folder / f"{number:03d}.tar", members))
        server.objects[paths[-1].name] = paths[-1].read_bytes()
    wids.create_index([str(path) for path in paths], folder / "train.json", index=True)
    server.objects["train.widx"] = (folder / "train.widx").read_bytes()
    return [
        {
            "url": server.url(path.name),
            "nsamples": PER_SHARD,
            "filesize": path.stat().st_size,
            "index": server.url("train.widx"),
        }
        for path in paths
    ]


@contextmanager
def opened(entries: list[dict[str, Any]], **options: Any) -> Iterator[wids.ShardListDataset]:
    """Open a dataset with an empty cache."""
    with (
        tempfile.TemporaryDirectory() as cache,
        wids.ShardListDataset(entries, cache_dir=cache, transformations=[], **options) as dataset,
    ):
        yield dataset


def print_ahead(entries: list[dict[str, Any]]) -> None:
    """Compare an epoch with and without prefetching; each sample is used for `STEP_S`."""
    times: dict[int, list[float]] = {0: [], 2: []}
    for _ in range(ROUNDS):
        for shards_ahead, taken in times.items():
            with opened(entries) as dataset:
                started = time.perf_counter()
                for index in wids.ShardListSampler(dataset, shards_ahead=shards_ahead):
                    dataset.read(index)
                    time.sleep(STEP_S)
                taken.append(time.perf_counter() - started)
    without, ahead = (statistics.median(taken) for taken in times.values())
    used = len(entries) * PER_SHARD * STEP_S
    print(f"one epoch over {len(entries)} shards of {PER_SHARD} samples, {LATENCY_S * 1000:.0f} ms to the server, s")
    print(
        f"  shards_ahead=0 {without:6.2f}   shards_ahead=2 {ahead:6.2f}   ratio {without / ahead:4.2f}   no wait at all {used:4.2f}+"
    )


def print_ranges(server: WebServer, entries: list[dict[str, Any]]) -> None:
    """Compare sparse access: 100 random samples, one at a time and as one batch."""
    indices = random.Random(3).sample(range(NUM_SHARDS * PER_SHARD), 100)
    print("100 samples of 20 kB anywhere in 24 shards              s       MB   requests")
    for label, access, together in (
        ("whole shards, one at a time", "download", False),
        ("ranges, one at a time", "range", False),
        ("ranges, as a batch", "range", True),
    ):
        seconds, sent, requests = [], 0, 0
        for _ in range(ROUNDS):
            with opened(entries, access=access) as dataset:
                before = server.num_bytes, len(server.requests)
                started = time.perf_counter()
                if together:
                    dataset.__getitems__(indices)
                else:
                    for index in indices:
                        dataset.read(index)
                seconds.append(time.perf_counter() - started)
                sent, requests = server.num_bytes - before[0], len(server.requests) - before[1]
        print(f"  {label:<45} {statistics.median(seconds):8.2f} {sent / 1e6:8.1f} {requests:10d}")


def print_hits() -> None:
    """Compare the cache's hit rate with that of plain LRU and with the best possible one."""
    print("share of openings that hit, epochs 2 to 4                    this      LRU  farthest next use")
    with web_server() as server:
        for share in (0.5, 0.8):
            order = epochs(100, 4, random.Random(5))
            print_row(f"100 shards in shuffled epochs, {share:.0%} fit", server, order, int(share * 100), 100)
        for skew in (0.8, 1.0, 1.2):
            order = random.Random(7).choices(range(100), [1 / (rank + 1) ** skew for rank in range(100)], k=2000)
            print_row(f"100 shards, Zipf {skew}, 20% fit", server, order, 20, 0)


def print_row(label: str, server: WebServer, order: list[int], capacity: int, skip: int) -> None:
    """Print the hit rates for one sequence of openings."""
    size = 1000
    with tempfile.TemporaryDirectory() as cache:
        storage = Storage(StorageOptions(cache_dir=cache, cache_size=capacity * size))
        fetched = 0
        for place, shard in enumerate(order):
            if place == skip:
                fetched = sum(server.bodies.values())
            server.objects.setdefault(f"{shard}.tar", bytes(size))
            storage.open({"url": server.url(f"{shard}.tar")})
        hits = 1 - (sum(server.bodies.values()) - fetched) / (len(order) - skip)
    lru, best = lru_hits(order, capacity, skip), farthest_hits(order, capacity, skip)
    print(f"  {label:<54} {hits:8.3f} {lru:8.3f} {best:18.3f}")


if __name__ == "__main__":
    main()
