"""How long does one sample take, at random, in order and in batches, against every system that does the same job?

    make bench              # with the peers, in an environment of their own; writes docs/benchmarks.md and its plots
    make bench-quick        # this package, its floor and wids 0.1.11; under two minutes
    make bench-size         # time for one sample against the number of shards, and of members in a shard

Samples are bytes on all sides, the files are in the page cache, and the samples are compared before anything is timed.
wids 0.1.11, webshart and Megatron-Energon read the same tars as this package; Hugging Face datasets, ArrayRecord,
MosaicML Streaming and LitData read copies in their own formats. `dataset.read(i)`, which returns bytes, is compared
with the peers. `dataset[i]`, which returns streams and adds the key and the sample's place, is compared with that of
wids 0.1.11, which does the same.

Each measurement is a fresh process; the sides take turns, and the table has medians. The floor does nothing but slice:
it has the offsets in a list, and makes one slice of the map per member and a dictionary. The floor of streams makes
what `dataset[i]` returns.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from corpus import EVERY_KIND, KINDS, OUT, SCALES, install_old, tars, write_shards
from sides import FLOORS, OPENERS, OURS, PEERS, is_there, like

if TYPE_CHECKING:
    from collections.abc import Callable

READS = 3000
BATCH = 256
ROUNDS = int(os.environ.get("ROUNDS", "3"))
FIGURES = ("random", "again", "in order", "batch", "view", "first", "next shard")


def main() -> None:
    """Measure all sides that are installed, and print or write the results."""
    OUT.mkdir(exist_ok=True)
    install_old()
    by_size = "--sizes" in sys.argv
    sides = [*FLOORS, *OURS, "wids 0.1.11", *filter(is_there, PEERS)]
    if by_size:  # the others convert for minutes
        sides = [
            side for side in sides if side in {"floor", "this", "streams", "wids 0.1.11", "webshart", "array_record"}
        ]
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in [kind for kinds in SCALES.values() for kind in kinds.values()] if by_size else KINDS:
        write_shards(kind)
        results[kind] = measure_all(kind, ["floor", *OURS] if kind == "one" else sides)
        print_table(kind, results[kind])
    if "--write" in sys.argv:
        (OUT / ("data_size.json" if by_size else "random_access.json")).write_text(json.dumps(results, indent=1))


def measure_all(kind: str, sides: list[str]) -> dict[str, dict[str, float]]:
    """Return the medians of each side; a side that fails or reads other bytes is left out."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side in list(found):
            done = subprocess.run([sys.executable, __file__, side, kind], capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{side} fails on {kind}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
                del found[side]
                continue
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
    expected = found["floor"][0]["digest"]
    for side, answers in list(found.items()):
        if side != "copy" and any(answer["digest"] != expected for answer in answers):
            print(f"{side} reads other bytes than were written as {kind}, and is left out", file=sys.stderr)
            del found[side]
    return {
        side: {
            figure: statistics.median(answer[figure] for answer in answers)
            for figure in FIGURES
            if figure in answers[0]
        }
        for side, answers in found.items()
        if answers
    }


def print_table(kind: str, rows: dict[str, dict[str, float]]) -> None:
    """Print the figures for one kind of data, each also as a multiple of this package's."""
    shards, count, fields = EVERY_KIND[kind]
    what = " + ".join(f"{size:,} B" for size in fields.values())
    print(
        f"\n{kind}: {shards} shards of {count:,} samples, {what}; us for a sample, ms for the first; x this package's"
    )
    print(f"{'':14}" + "".join(f"{figure:>20}" for figure in FIGURES))
    for side, figures in rows.items():
        cells = []
        for figure in FIGURES:
            value, ours = figures.get(figure), rows[like(side)].get(figure)
            cells.append(f"{'-':>20}" if value is None or ours is None else f"{value:11.2f} {value / ours:7.1f}x")
        print(f"{side:14}" + "".join(cells), flush=True)


def measure(side: str, kind: str) -> None:
    """Measure one side in this process, and print the result as JSON."""
    shards, count, fields = EVERY_KIND[kind]
    warm = OPENERS[side](kind)[0]  # whatever is made only once is made now, and the files get into the page cache
    for shard in range(shards):
        warm(shard * count)
    for path in (*tars(kind), *(OUT / kind).glob(f"{side}/*")):
        if path.is_file():
            hashlib.md5(path.read_bytes())
    started = time.perf_counter()
    single, batch = OPENERS[side](kind)
    single(shards * count // 2)
    found: dict[str, Any] = {}
    if side not in FLOORS:  # they scan with tarfile; only their reading counts
        found["first"] = 1e3 * (time.perf_counter() - started)
    if side in {*OURS, "wids 0.1.11"} and shards > 1:  # these open a shard at its first sample
        others = [shard * count + count // 3 for shard in range(min(shards, 50)) if shard != shards // 2]
        found["next shard"] = statistics.median(timed(single, [index]) for index in others) / 1e3
    draw = random.Random(1)
    digest = hashlib.sha256()
    for index in draw.sample(range(shards * count), min(200, shards * count)):
        sample = single(index)
        digest.update(b"".join(content(sample, field) for field in fields) if side != "copy" else b"")
    found["digest"] = digest.hexdigest()
    orders = {
        "random": [draw.randrange(shards * count) for _ in range(READS)],
        "in order": [(shards * count // 2 + place) % (shards * count) for place in range(READS)],
    }
    for figure, order in orders.items():
        found[figure] = min(timed(single, order) for _ in range(2))
    if side in {"floor", *OURS, "webshart"}:  # once the processor's caches hold these very samples
        found["again"] = min(timed(single, orders["random"]) for _ in range(6))
    if batch is not None:
        batches = [draw.sample(range(shards * count), min(BATCH, shards * count)) for _ in range(8)]
        # As a worker does to send it. Until a large block was freed once, malloc returns small ones to the system.
        pickle.dumps(batch(batches[0]))
        found["batch"] = min(timed(batch, batches) for _ in range(2)) / len(batches[0])
    if side == "this":
        view = single.__self__.view
        others = [draw.randrange(shards * count) for _ in range(READS)]
        found["view"] = min(timed(view, others) for _ in range(2))
    elif side == "view floor":
        found["view"] = found.pop("random")
        del found["in order"]
    print(json.dumps(found))


def content(sample: Any, field: str) -> bytes:
    """Return the bytes of a field, however a side gives them."""
    value = sample.get(field) if field in sample else sample[f".{field}"]
    return bytes(value if isinstance(value, (bytes, bytearray, memoryview)) else value.read())


def timed(function: Callable[[Any], Any], arguments: list[Any]) -> float:
    """Return the microseconds that a call takes, when they are made in a row."""
    started = time.perf_counter()
    for argument in arguments:
        function(argument)
    return 1e6 * (time.perf_counter() - started) / len(arguments)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    measure(*arguments) if arguments else main()
