"""Do the samplers cope with 100,000 shards and 1e9 samples on 64 ranks, and with resuming on another number of ranks?

    python benchmarks/sampler_scale.py

Each line is measured in fresh processes. Before anything is timed, the order is compared with the plain loop of wids
0.1.11, on a dataset that is small enough for that.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from itertools import islice
from pathlib import Path

from peak_memory import peak_megabytes

OUT = Path(__file__).parent / "out"
SHARDS = 100_000
SAMPLES = 10_000  # per shard
TOTAL = SHARDS * SAMPLES
LANES = 64
CHUNK = 10_000
ROUNDS = 3


def main() -> None:
    """Measure each question in fresh processes, and print the results beside the aims."""
    OUT.mkdir(exist_ok=True)
    descriptor = OUT / "scale.json"
    if not descriptor.exists():
        shards = [{"url": f"data/train-{number:06d}.tar", "nsamples": SAMPLES} for number in range(SHARDS)]
        descriptor.write_text(json.dumps({"wids_version": 1, "name": "scale", "shardlist": shards}))
    check_order()
    print(f"{'median of ' + str(ROUNDS):58} {'measured':>10} {'aim':>8}")
    report("descriptor of 100,000 shards loaded, s", ask("load"), 0, 1.0)
    report("  memory for it, MB", ask("load"), 1, 150.0)
    report("sampler of 1e9 samples built, ms", ask("build"), 0, 10.0)
    first = 50 + TOTAL / LANES / CHUNK / 1000
    report("first index, 64 ranks, chunks of 10,000, ms", ask("walk", LANES), 0, first)
    report("indices a second, 64 ranks, thousands", ask("walk", LANES), 1, 500.0, more=True)
    for ranks in (48, 63, 1):
        report(f"  {ranks} ranks on 64 canonical replicas", ask("walk", ranks), 1, None)
    report("memory of the walk, 64 ranks, MB", ask("walk", LANES), 2, None)
    for ranks in (48, 63, 1):
        report(f"  {ranks} ranks", ask("walk", ranks), 2, None)
    report("resume at the middle of an epoch, 64 to 64 ranks, s", ask("resume", LANES), 0, 10.0)
    for ranks in (48, 63, 1):
        report(f"  64 to {ranks}", ask("resume", ranks), 0, None)
    report("the same with repartition_each_epoch, 64 to 64, s", ask("resume-repartitioned", LANES), 0, None)
    for ranks in (48, 63, 1):
        report(f"  64 to {ranks}", ask("resume-repartitioned", ranks), 0, None)
    for ranks in (64, 48, 63, 1):
        report(
            f"indices a second when repartitioned, {ranks} ranks, thousands", ask("walk-repartitioned", ranks), 1, None
        )


def report(name: str, answers: list[list[float]], column: int, aim: float | None, *, more: bool = False) -> None:
    value = statistics.median(answer[column] for answer in answers)
    met = "" if aim is None or (value >= aim if more else value <= aim) else "  MISSED"
    print(f"{name:58} {value:10.3g} {'' if aim is None else f'{aim:8.3g}'}{met}", flush=True)


def ask(question: str, ranks: int = LANES) -> list[list[float]]:
    answers = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, __file__, question, str(ranks)], check=True, capture_output=True)
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    return answers


def check_order() -> None:
    """Compare an epoch with the loop of 0.1.11."""
    from wids import DistributedChunkedSampler

    start, stop, chunk = 30_000, 40_000, 700
    rng = random.Random(1289738273 + 5)
    spans = [(low, min(low + chunk, stop)) for low in range(start, stop, chunk)]
    rng.shuffle(spans)
    expected = []
    for low, high in spans:
        indices = list(range(low, high))
        rng.shuffle(indices)
        expected += indices
    sampler = DistributedChunkedSampler(range(100_000), num_replicas=10, rank=3, chunksize=chunk, seed=5)
    sampler.set_epoch(1)
    if list(sampler) != expected:
        sys.exit("the order is not that of 0.1.11")


def answer(question: str, ranks: int) -> list[float]:
    """Measure one thing in this process."""
    from wids import DistributedChunkedSampler, ShardListDataset

    before = peak_megabytes()
    started = time.perf_counter()
    dataset = ShardListDataset(str(OUT / "scale.json"))
    loaded = time.perf_counter() - started
    if question == "load":
        return [loaded, peak_megabytes() - before]
    started = time.perf_counter()
    sampler = DistributedChunkedSampler(
        dataset, num_replicas=ranks, rank=ranks // 2, chunksize=CHUNK, num_canonical_replicas=LANES,
        repartition_each_epoch=question.endswith("repartitioned"),
    )  # fmt: skip
    built = time.perf_counter() - started
    if question == "build":
        return [built * 1e3]
    sampler.set_epoch(1)
    if question.startswith("resume"):
        state = {**sampler.state_dict(), "place": TOTAL // 2 // LANES * LANES}
        started = time.perf_counter()
        sampler.load_state_dict(state)
        next(iter(sampler))
        return [time.perf_counter() - started]
    before = peak_megabytes()
    started = time.perf_counter()
    iterator = iter(sampler)
    next(iterator)
    first = time.perf_counter() - started
    count = 1_000_000
    started = time.perf_counter()
    deque(islice(iterator, count), maxlen=0)
    return [first * 1e3, count / (time.perf_counter() - started) / 1e3, peak_megabytes() - before]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(answer(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
