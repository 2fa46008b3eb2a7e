"""How many samples per second does a DataLoader deliver, against webdataset's streaming, wids 0.1.11, and a bare loop?

    make bench-loader

Two workers, chunk-shuffled; the files are in the page cache.

- `raw`: undecoded samples of 14 kB, in lists.
- `large`: the same with 1 MB per sample; also as tensors, which reach the main process through shared memory instead of
  a pipe.
- `decoded`: JPEGs of 640 by 427 pixels, decoded, scaled to 224 by 224 and stacked, by the same function on all sides.
  The bare loop calls that function on bytes in memory, in as many processes as there are workers.

Each measurement is a fresh process, which reads the data once before it is timed. The sides take turns, and the table
has medians.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import corpus
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

OUT = corpus.OUT / "loader"
WORKERS = int(os.environ.get("WORKERS", "2"))
EVERY_NUMBER = (0, 1, 2, 4, 8)
"""Further numbers of workers with which `raw` is measured."""
BATCH = 64
ROUNDS = int(os.environ.get("ROUNDS", "3"))
KINDS = {"raw": (4, 5_000), "large": (4, 200), "decoded": (4, 640)}
"""Shards, and samples per shard; chosen so that two workers decode equal numbers of batches."""
SIDES = {
    "raw": ("this", "webdataset", "wids 0.1.11"),
    "large": ("this", "this, tensors", "webdataset", "wids 0.1.11"),
    "decoded": ("this", "this, size=", "webdataset", "wids 0.1.11", "bare loop"),
}


def main() -> None:
    """Measure all sides in turn, and print samples per second."""
    results: dict[str, dict[str, float]] = {}
    for kind, sides in SIDES.items():
        write_shards(kind)
        found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side in sides:
                found[side].append(run(side, kind, WORKERS))
        digests = {answer["digest"] for side, answers in found.items() for answer in answers if side != "this, size="}
        if len(digests) != 1:
            sys.exit(f"{kind}: the sides do not give the same samples: {digests}")
        results[kind] = {
            side: statistics.median(answer["rate"] for answer in answers) for side, answers in found.items()
        }
        print(f"\n{kind}: {KINDS[kind][0]} shards of {KINDS[kind][1]:,}; samples a second; x this package's")
        for side, rate in results[kind].items():
            print(f"  {side:14}{rate:10,.0f} {rate / results[kind]['this']:7.2f}x", flush=True)
    by_number = measure_by_number()
    for side, rates in by_number.items():
        print(f"{side}, raw, by workers: " + ", ".join(f"{number}: {rate:,.0f}" for number, rate in rates.items()))
    (corpus.OUT / "dataloader.json").write_text(json.dumps({"kinds": results, "workers": by_number}, indent=1))


def measure_by_number() -> dict[str, dict[int, float]]:
    """Return the median of raw samples per second, by side and number of workers."""
    rates: dict[str, dict[int, list[float]]] = {side: {n: [] for n in EVERY_NUMBER} for side in ("this", "webdataset")}
    for _ in range(ROUNDS):
        for number in EVERY_NUMBER:
            for side, found in rates.items():
                found[number].append(run(side, "raw", number)["rate"])
    return {side: {n: statistics.median(every) for n, every in found.items()} for side, found in rates.items()}


def run(side: str, kind: str, workers: int) -> dict[str, Any]:
    """Measure one side in a process of its own."""
    command = [sys.executable, __file__, side, kind]
    environment = {**os.environ, "WORKERS": str(workers)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{side} fails on {kind}: {done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def paths(kind: str) -> list[str]:
    """Return the paths of the shards of a kind."""
    shards, count = KINDS[kind]
    return [str(OUT / f"{kind}-{count}-{number:04d}.tar") for number in range(shards)]


def write_shards(kind: str) -> None:
    """Write the shards of a kind, unless they exist."""
    OUT.mkdir(parents=True, exist_ok=True)
    draw = random.Random(kind)
    photographs = list(cut_photographs(draw)) if kind == "decoded" else []
    for path in map(Path, paths(kind)):
        if path.exists():
            continue
        members = []
        for number in range(KINDS[kind][1]):
            size = 14_000 if kind == "raw" else 1_000_000
            data = draw.choice(photographs) if photographs else draw.randbytes(size)
            members += [
                (f"{path.stem}-{number:05d}.jpg", data),
                (f"{path.stem}-{number:05d}.cls", b"%03d" % (number % 999)),
            ]
        corpus.write_tar(path.with_suffix(".part"), members)
        path.with_suffix(".part").rename(path)


def cut_photographs(draw: random.Random) -> Iterator[bytes]:
    """Yield JPEGs of 640 by 427 pixels: enlarged parts of the photographs that scikit-learn ships."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    for pixels in load_sample_images().images:
        for _ in range(50):
            width = draw.randrange(320, 640)
            left, top = draw.randrange(640 - width + 1), draw.randrange(427 - width * 427 // 640 + 1)
            part = Image.fromarray(pixels).crop((left, top, left + width, top + width * 427 // 640))
            file = io.BytesIO()
            part.resize((640, 427)).save(file, "JPEG", quality=90)
            yield file.getvalue()


def decode(data: bytes) -> torch.Tensor:
    """Return a JPEG as a `(3, 224, 224)` uint8 tensor."""
    import numpy as np
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224))
    return torch.from_numpy(np.array(picture).transpose(2, 0, 1).copy())


def decode_sample(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    """Return the image and class of an undecoded sample of any side."""
    values = [sample[name] if name in sample else sample[name[1:]] for name in (".jpg", ".cls")]
    data, label = (value if isinstance(value, bytes) else value.read() for value in values)
    return decode(data), int(label)


def to_tensors(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample whose large field is a uint8 tensor."""
    return {**sample, ".jpg": torch.frombuffer(bytearray(sample[".jpg"].getbuffer()), dtype=torch.uint8)}


def leave_as_list(samples: list[Any]) -> list[Any]:
    """Return a batch unchanged, as a list of samples."""
    return samples


def make_loader(side: str, kind: str) -> Any:
    """Return a DataLoader over one side's samples."""
    from torch.utils.data import DataLoader, default_collate

    collate = default_collate if kind == "decoded" else leave_as_list
    options: dict[str, Any] = {"num_workers": WORKERS, "collate_fn": collate}
    options["persistent_workers"] = WORKERS > 0
    if side == "webdataset":
        import webdataset

        stream = webdataset.WebDataset(paths(kind), shardshuffle=100, empty_check=False).shuffle(1000)
        if kind == "decoded":
            stream = stream.map(decode_sample)
        return DataLoader(stream, batch_size=BATCH, **options)
    if side == "wids 0.1.11":
        sys.path.insert(0, str(corpus.OLD))
    import wids

    shards = [{"url": path, "nsamples": KINDS[kind][1]} for path in paths(kind)]
    if side == "wids 0.1.11":
        dataset = wids.ShardListDataset(shards, transformations=[], cache_dir=str(OUT / "cache"), keep=True)
        if kind == "decoded":
            dataset.add_transform(decode_sample)
    else:
        dataset = wids.ShardListDataset(shards, transformations=[])
        if side == "this, size=":
            dataset = dataset.decode("torchrgb8", size=(224, 224)).to_tuple("jpg", "cls")
        elif side == "this, tensors":
            dataset = dataset.map(to_tensors)
        elif kind == "decoded":
            dataset = dataset.map(decode_sample)
    sampler = wids.ChunkedSampler(dataset, chunksize=2000, shuffle=True)
    return DataLoader(dataset, batch_size=BATCH, sampler=sampler, **options)


def measure(side: str, kind: str) -> None:
    """Print samples per second, and a digest of the samples that does not depend on their order."""
    torch.set_num_threads(1)
    if side == "bare loop":
        print(json.dumps(measure_bare(kind)))
        return
    loader = make_loader(side, kind)
    digest = 0
    for batch in loader:
        digest ^= fold(batch, kind)
    started = time.perf_counter()
    count = sum(len(batch if kind != "decoded" else batch[1]) for batch in loader)
    rate = count / (time.perf_counter() - started)
    if count != KINDS[kind][0] * KINDS[kind][1]:
        sys.exit(f"{side} gave {count} samples")
    print(json.dumps({"rate": rate, "digest": digest}))


def fold(batch: Any, kind: str) -> int:
    """Return a digest of a batch that does not depend on the order of its samples."""
    found = 0
    if kind == "decoded":
        for image, label in zip(*batch, strict=True):
            found ^= number_of(bytes([int(label) % 256]) + image.numpy().tobytes())
        return found
    for sample in batch:
        value = sample[".jpg"] if ".jpg" in sample else sample["jpg"]
        if isinstance(value, torch.Tensor):
            value = value.numpy().tobytes()
        found ^= number_of(value if isinstance(value, bytes) else value.getvalue())
    return found


def number_of(data: bytes) -> int:
    """Return a digest of some bytes as a number."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def measure_bare(kind: str) -> dict[str, Any]:
    """Return samples per second of decoding alone, on bytes in memory, in as many processes as there are workers."""
    with ProcessPoolExecutor(WORKERS) as pool:
        found = list(pool.map(loop, [paths(kind)[worker::WORKERS] for worker in range(WORKERS)]))
    digest = 0
    for _, part in found:
        digest ^= part
    return {"rate": sum(rate for rate, _ in found), "digest": digest}


def loop(shards: list[str]) -> tuple[float, int]:
    """Decode the samples of some shards; return samples per second and a digest."""
    import wids

    torch.set_num_threads(1)
    dataset = wids.ShardListDataset(shards, transformations=[])
    samples = [dataset.read(index) for index in range(len(dataset))]
    digest = 0
    for sample in samples:
        image, label = decode_sample(sample)
        digest ^= number_of(bytes([label % 256]) + image.numpy().tobytes())
    started = time.perf_counter()
    for sample in samples:
        decode_sample(sample)
    return len(samples) / (time.perf_counter() - started), digest


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
