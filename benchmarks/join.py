"""How long do columns, conditions and joins take over ten million samples in a thousand shards, and how much memory?

    python benchmarks/join.py [SHARDS [SAMPLES_PER_SHARD]]

Each task runs in a process of its own, on synthetic packs (benchmarks/synthetic.py) in the page cache, in ROUNDS (1)
rounds. Its answer is checked. Printed are the medians of the time, of the CPU time, and of the peak memory above that
before the task. The bounds are 5 s and 500 MB, at the default size. The peer of a join is a dictionary of the keys,
written by hand.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from peak_memory import peak_megabytes, reset_peak
from synthetic import Recipe, write

import wids
from wids.dataset.join import Join

TASKS = (
    "join with itself shuffled",
    "join with shuffled shards",
    "dictionary",
    "add_columns of Parquet",
    "column",
    "select(where=)",
)


ROUNDS = int(os.environ.get("ROUNDS", "1"))


def shuffled_rows(length: int) -> np.ndarray:
    return np.random.default_rng(1).permutation(length)


def prepare(folder: Path, recipe: Recipe) -> None:
    write(folder / "mine", recipe)
    write(folder / "other", Recipe(recipe.num_shards, recipe.samples_per_shard, shuffled=True, seed=2))
    rows = shuffled_rows(recipe.num_samples)
    keys = np.char.zfill(rows.astype(str), 9)
    table = pa.table(
        {"key": pa.array(keys), "width": pa.array(rows.astype(np.int32)), "score": pa.array(rows / len(rows))}
    )
    pyarrow.parquet.write_table(table, folder / "facts.parquet")


def run(task: str, folder: Path) -> None:
    mine = wids.ShardListDataset(folder / "mine" / "train.json", transformations=[], cache_dir=str(folder / "cache"))
    length = len(mine)
    other = mine
    if task == "join with shuffled shards":
        other = wids.ShardListDataset(
            folder / "other" / "train.json", transformations=[], cache_dir=str(folder / "cache")
        )
    elif task in {"join with itself shuffled", "dictionary"}:
        other = mine.select(shuffled_rows(length))
    elif task in {"column", "select(where=)"}:
        mine = mine.add_columns({"width": np.arange(length), "score": np.arange(length) / length}, on="index")
    reset_peak()
    before = peak_megabytes()
    start, start_processor = time.perf_counter(), time.process_time()
    if task == "dictionary":
        places = {key: place for place, key in enumerate(other.keys())}
        found = list(map(places.get, mine.keys()))
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        assert mine.key(5) == other.key(found[5])
    elif task.startswith("join"):
        joined = mine.join(other, prefix="o.")
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        assert len(joined) == length
        (join,) = (step for step in joined.transformations if isinstance(step, Join))
        assert all(mine.key(index) == other.key(join.find(index)) for index in range(0, length, length // 50))
    elif task == "add_columns of Parquet":
        added = mine.add_columns(folder / "facts.parquet")
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        assert np.array_equal(added.column("width"), np.arange(length))
    elif task == "column":
        total = int(mine.column("width").sum())
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        assert total == length * (length - 1) // 2
    else:
        chosen = mine.select(where="width % 2 == 0 and score > 0.4")
        seconds, processor = time.perf_counter() - start, time.process_time() - start_processor
        assert abs(len(chosen) - 0.3 * length) < 2
    memory = peak_megabytes() - before
    print(seconds, processor, memory)


def measure(folder: Path) -> None:
    """Print medians over rounds in which the tasks take turns."""
    found: dict[str, list[list[float]]] = {task: [] for task in TASKS}
    for _ in range(ROUNDS):
        for task, figures in found.items():
            command = [sys.executable, __file__, "--task", task, str(folder)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures.append([float(number) for number in output.split()])
    peer = statistics.median(seconds for seconds, _, _ in found["dictionary"])
    for task, figures in found.items():
        seconds, processor, memory = (statistics.median(column) for column in zip(*figures, strict=True))
        ratio = f"  {peer / seconds:5.1f} times the peer's speed" if task.startswith("join") else ""
        print(f"{task:26} {seconds:7.2f} s ({processor:6.2f} s of the processor) {memory:6.0f} MB{ratio}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as place:
            prepare(Path(place), Recipe(*map(int, sys.argv[1:])))
            measure(Path(place))
