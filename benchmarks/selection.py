"""Can ten million samples in a thousand shards be selected from within seconds and half a gigabyte? How slow is a view?

    python benchmarks/selection.py

The dataset is made by `benchmarks/synthetic.py`: its index packs are as large as real ones, its shards take no space.
Each line is the median over fresh processes. Memory is the peak of the process, which includes importing torch and
numpy (about 220 MB). Before anything is timed, the answers are compared with the indexes, read sample by sample.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from peak_memory import peak_megabytes

FOLDER = Path(__file__).parent / "out" / "ten-million"
ROUNDS = int(os.environ.get("ROUNDS", "3"))
MOST_SECONDS, MOST_MEGABYTES, MOST_RATIO = 5.0, 500.0, 1.3
QUESTIONS = ("sizes", "has", "fields", "mask of 30 %", "select and pickle", "split", "fingerprint")


def main() -> None:
    """Write the dataset unless it exists, and measure each question in fresh processes."""
    if not (FOLDER / "train.json").exists():
        subprocess.run([sys.executable, Path(__file__).with_name("synthetic.py"), FOLDER], check=True)
    ask("check")
    print(f"{'median of ' + str(ROUNDS):24} {'s':>8} {'MB':>8}   aim: {MOST_SECONDS:g} s, {MOST_MEGABYTES:g} MB")
    for question in QUESTIONS:
        answers = [ask(question) for _ in range(ROUNDS)]
        seconds, megabytes, note = (
            statistics.median(answer[column] for answer in answers) for column in ("seconds", "megabytes", "bytes")
        )
        missed = "  MISSED" if seconds > MOST_SECONDS or megabytes > MOST_MEGABYTES else ""
        print(
            f"{question:24} {seconds:8.2f} {megabytes:8.0f}{f'   {note / 1e6:.2f} MB' if note else ''}{missed}",
            flush=True,
        )
    ratios = [ask("ratio")["seconds"] for _ in range(ROUNDS)]
    ratio = statistics.median(ratios)
    print(
        f"{'view[i] / dataset[i]':24} {ratio:8.2f} {'':8}   aim: {MOST_RATIO}{'  MISSED' if ratio > MOST_RATIO else ''}"
    )


def ask(question: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, question], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def load():
    import wids

    return wids.ShardListDataset(FOLDER / "train.json", transformations=[], lru_size=64)


def check() -> None:
    """Compare sizes, fields and keys with what the index says of random samples, one by one."""
    dataset = load()
    sizes, both, keys = dataset.sizes("txt"), dataset.has("jpg", "txt"), dataset.keys()
    for index in np.random.default_rng(0).integers(0, len(dataset), 300).tolist():
        there = dataset.locate(index)
        if (sizes[index], both[index], keys[index]) != (
            there[".txt"].size if ".txt" in there else -1, ".txt" in there, f"{index:09d}",
        ):  # fmt: skip
            sys.exit(f"sample {index} is not what its index says")


def answer(question: str) -> dict[str, float]:
    """Measure one thing in this process."""
    if question == "check":
        check()
        return {}
    dataset = load()
    if question == "ratio":
        return {"seconds": compare(dataset)}
    mask = np.random.default_rng(0).random(len(dataset)) < 0.3 if question in QUESTIONS[3:5] else None
    num_bytes = 0
    started = time.perf_counter()
    if question == "sizes":
        dataset.sizes("txt;jpg")
    elif question == "has":
        dataset.has("jpg", "txt")
    elif question == "fields":
        dataset.fields  # noqa: B018
    elif question == "mask of 30 %":
        dataset.select(mask)
    elif question == "select and pickle":
        num_bytes = len(pickle.dumps(dataset.select(mask)))
    elif question == "split":
        dataset.split({"train": 0.99, "val": 0.01})
    elif question == "fingerprint":
        dataset.select(np.arange(0, len(dataset), 3)).fingerprint  # noqa: B018
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "megabytes": peak_megabytes(), "bytes": num_bytes}


def compare(dataset) -> float:
    """Return the time for a sample of a view as a multiple of that for the same sample of the dataset, in turn."""
    chosen = np.random.default_rng(0).random(len(dataset)) < 0.3
    view = dataset.select(chosen)
    row_of = np.flatnonzero(chosen).tolist().__getitem__
    rows = np.sort(np.random.default_rng(1).integers(0, 30_000, 20_000)).tolist()
    pairs = {"view": (view, rows), "dataset": (dataset, [row_of(row) for row in rows])}
    for index in rows[:2000]:
        if view[index]["__key__"] != dataset.key(row_of(index)):
            sys.exit(f"row {index} is another sample")
    taken: dict[str, list[float]] = {"view": [], "dataset": []}
    for _ in range(7):
        for name, (data, indices) in pairs.items():
            started = time.perf_counter()
            for index in indices:
                data[index]
            taken[name].append(time.perf_counter() - started)
    return statistics.median(taken["view"]) / statistics.median(taken["dataset"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(answer(sys.argv[1])))
    else:
        main()
