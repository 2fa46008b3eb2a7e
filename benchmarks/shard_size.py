"""How large should shards be, and how large the chunks that a sampler shuffles? Draws docs/images/shard_size.svg.

    make bench-shard-size

Shards: the same 256 MB of samples in shards of several sizes, from a server that waits 30 ms before each answer and
then sends 100 MB/s on each connection, as a distant store does. Measured are the seconds until the first sample and for
an epoch, in chunks of eight shards with `shards_ahead=2`. Every byte read is compared with what was stored.

Chunks: 100 shards of 1,000 samples, each shard of one of 10 classes. Computed are how uneven the classes in batches of
256 are, as a multiple of the unevenness after a perfect shuffle, and how many shards a batch touches. Nothing is timed.
"""

from __future__ import annotations

import io
import random
import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import wids
from tests.storage.web_server import Handler, WebServer, web_server

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLOT = Path(__file__).parents[1] / "docs" / "images" / "shard_size.svg"
ROUNDS = 3
TOTAL_MB = 256
SAMPLE_BYTES = 50_000
SHARD_MB = (1, 4, 16, 64, 256)
LATENCY_S = 0.03
BYTES_PER_S = 100e6
PIECE_BYTES = 500_000
NUM_SHARDS, PER_SHARD, NUM_CLASSES, BATCH = 100, 1000, 10, 256
CHUNK_SHARDS = (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 100)


def main() -> None:
    """Print both tables, and draw them."""
    shards = measure_shards()
    print(f"{'shards of':>12} {'number':>8} {'first sample, s':>16} {'epoch, s':>10}")
    for size, (count, first, epoch) in shards.items():
        print(f"{size:>9} MB {count:>8} {first:>16.2f} {epoch:>10.2f}")
    chunks = {size: measure_chunk(size) for size in CHUNK_SHARDS}
    print(f"{'chunks of':>19} {'shards in a batch':>18} {'unevenness':>11}")
    for size, (touched, unevenness) in chunks.items():
        print(f"{size:>12} shards {touched:>18.1f} {unevenness:>11.2f}")
    draw(shards, chunks)


def measure_shards() -> dict[int, tuple[int, float, float]]:
    """Return for each size the number of shards, and the median seconds until the first sample and for an epoch."""
    content = random.Random(0).randbytes(SAMPLE_BYTES)
    times: dict[int, list[tuple[float, float]]] = {size: [] for size in SHARD_MB}
    with web_server() as server:
        server.delay_s = LATENCY_S
        entries = {size: put_shards(server, size, content) for size in SHARD_MB}
        for _ in range(ROUNDS):
            for size, taken in times.items():
                for entry in entries[size]:
                    server.behaviours[entry["url"].rpartition("/")[2]] = [send_slowly]
                taken.append(time_epoch(entries[size], content))
    return {
        size: (len(entries[size]), *(statistics.median(column) for column in zip(*taken, strict=True)))
        for size, taken in times.items()
    }


def put_shards(server: WebServer, size_mb: int, content: bytes) -> list[dict[str, Any]]:
    """Serve shards of one size; return their descriptor entries."""
    per_shard = size_mb * 1_000_000 // SAMPLE_BYTES
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(per_shard):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = SAMPLE_BYTES
            tar.addfile(member, io.BytesIO(content))
    names = [f"{size_mb}-{number:04d}.tar" for number in range(TOTAL_MB // size_mb)]
    server.objects.update(dict.fromkeys(names, file.getvalue()))
    return [{"url": server.url(name), "nsamples": per_shard} for name in names]


def send_slowly(handler: Handler, content: bytes) -> None:
    """Answer at `BYTES_PER_S`, like a server that limits each connection."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    started = time.perf_counter()
    for start in range(0, len(content), PIECE_BYTES):
        piece = content[start : start + PIECE_BYTES]
        handler.wfile.write(piece)
        time.sleep(max(0, started + (start + len(piece)) / BYTES_PER_S - time.perf_counter()))


def time_epoch(entries: list[dict[str, Any]], content: bytes) -> tuple[float, float]:
    """Return the seconds until the first sample and for the whole epoch, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        dataset = wids.ShardListDataset(entries, cache_dir=cache, transformations=[])
        chunk = 8 * entries[0]["nsamples"]
        first = 0.0
        started = time.perf_counter()
        for index in wids.ChunkedSampler(dataset, chunksize=chunk, shards_ahead=2):
            if dataset.view(index)["bin"] != content:
                sys.exit(f"sample {index} has other bytes than were stored")
            first = first or time.perf_counter() - started
        epoch = time.perf_counter() - started
        dataset.close()
        return first, epoch


def measure_chunk(size: float) -> tuple[float, float]:
    """Return how many shards a batch touches, and its unevenness of classes as a multiple of a perfect shuffle's."""
    rng = np.random.default_rng(0)
    classes = rng.permutation(np.arange(NUM_SHARDS) % NUM_CLASSES)
    sampler = wids.ChunkedSampler(range(NUM_SHARDS * PER_SHARD), chunksize=int(size * PER_SHARD), shufflefirst=True)
    shards = np.fromiter(sampler, np.int64) // PER_SHARD
    batches = shards[: len(shards) // BATCH * BATCH].reshape(-1, BATCH)
    touched = float(np.mean([len(np.unique(batch)) for batch in batches]))
    perfect = rng.permutation(shards)[: batches.size].reshape(batches.shape)
    return touched, unevenness(classes[batches]) / unevenness(classes[perfect])


def unevenness(batches: NDArray[np.int64]) -> float:
    """Return the mean total variation distance of the classes in a batch from even shares, 0 to 1."""
    counts = np.stack([np.bincount(batch, minlength=NUM_CLASSES) for batch in batches])
    return float(np.abs(counts / BATCH - 1 / NUM_CLASSES).sum(axis=1).mean() / 2)


def draw(shards: dict[int, tuple[int, float, float]], chunks: dict[float, tuple[float, float]]) -> None:
    """Draw the results, one panel below the other so that they can be read on a phone."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "wids"  # equal results give equal files
    from matplotlib import pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(6, 6.4), constrained_layout=True)
    upper.plot(list(shards), [epoch for _, _, epoch in shards.values()], "o-", color="#1f77b4", label="an epoch")
    upper.plot(
        list(shards), [first for _, first, _ in shards.values()], "s--", color="#d62728", label="until the first sample"
    )
    upper.set(xlabel="size of a shard, MB", ylabel="seconds", title=f"{TOTAL_MB} MB from a server 30 ms away, 100 MB/s")
    upper.set_ylim(0, None)
    lower.plot(
        list(chunks), [uneven for _, uneven in chunks.values()], "o-", color="#1f77b4", label="unevenness of batches"
    )
    lower.plot(
        list(chunks), [touched for touched, _ in chunks.values()], "s--", color="#d62728", label="shards in a batch"
    )
    lower.set(xlabel="size of a chunk, shards", title=f"each shard of one class, batches of {BATCH}")
    lower.set_yscale("log")
    for panel, ticks in ((upper, SHARD_MB), (lower, CHUNK_SHARDS)):
        panel.set_xscale("log")
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend()
    lower.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main()
