"""How long do columns, conditions and joins take over ten million samples in a thousand shards, and how much memory?

    python benchmarks/join.py [SHARDS [SAMPLES_PER_SHARD]]

Each is done in a process of its own, on synthetic packs (benchmarks/synthetic.py), the page cache warm: the answer is checked, then seconds
and the most memory beyond that of the imports are printed. The bound of each is 5 s and 500 MB, for the default size. The peer of the
join is a dictionary of the keys, as one would write it without an index, given the keys as a list at once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
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


def most_memory() -> int:
    """Return the most kilobytes that this process had in memory."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


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
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is counted from here
    before = most_memory()
    start = time.perf_counter()
    if task == "dictionary":
        places = {key: place for place, key in enumerate(other.keys())}
        found = list(map(places.get, mine.keys()))
        seconds = time.perf_counter() - start
        assert mine.key(5) == other.key(found[5])
    elif task.startswith("join"):
        joined = mine.join(other, prefix="o.")
        seconds = time.perf_counter() - start
        assert len(joined) == length
        (join,) = (step for step in joined.transformations if isinstance(step, Join))
        assert all(mine.key(index) == other.key(join.find(index)) for index in range(0, length, length // 50))
    elif task == "add_columns of Parquet":
        added = mine.add_columns(folder / "facts.parquet")
        seconds = time.perf_counter() - start
        assert np.array_equal(added.column("width"), np.arange(length))
    elif task == "column":
        total = int(mine.column("width").sum())
        seconds = time.perf_counter() - start
        assert total == length * (length - 1) // 2
    else:
        chosen = mine.select(where="width % 2 == 0 and score > 0.4")
        seconds = time.perf_counter() - start
        assert abs(len(chosen) - 0.3 * length) < 2
    memory = (most_memory() - before) / 1024
    print(f"{task:32} {seconds:7.2f} s {memory:7.0f} MB", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--task"]:
        run(sys.argv[2], Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory(dir="/tmp") as place:
            prepare(Path(place), Recipe(*map(int, sys.argv[1:])))
            for task in TASKS:
                subprocess.run([sys.executable, __file__, "--task", task, place], check=True)
