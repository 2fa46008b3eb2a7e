"""How long does one sample take, at random, in order and in batches, against every system that does the same job?

    make bench              # with the peers, in an environment of their own; writes docs/benchmarks.md and its plots
    make bench-quick        # this package, its floor and wids 0.1.11; under two minutes

The samples are bytes in memory on both sides, and compared before anything is timed. wids 0.1.11 and webshart read the same
tars as this package; Hugging Face datasets, ArrayRecord, MosaicML Streaming and LitData read copies in their own formats.
Each measurement is made by a fresh process, all sides in turn, and the table has medians. The floor is what is left when
everything but the slices and the dictionary is left out: offsets in a list, one slice of the map per member.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
import types
from bisect import bisect_right
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[1]
OUT = Path(__file__).parent / "out"
OLD = OUT / "wids-0.1.11"
READS = 3000
BATCH = 256
ROUNDS = int(os.environ.get("ROUNDS", "3"))
KINDS: dict[str, tuple[int, int, dict[str, int]]] = {
    "img": (4, 5_000, {"jpg": 14_000, "cls": 3}),
    "txt": (4, 50_000, {"txt": 300}),
    "many": (100, 1_000, {"bin": 2_000, "txt": 60}),
}
"""Shards, samples in each, and bytes of each field."""
FIGURES = ("random", "in order", "batch", "first")
PEERS = ("webshart", "datasets", "array_record", "mosaicml", "litdata")


def main() -> None:
    """Measure all sides that can be had, and print or write what was found."""
    OUT.mkdir(exist_ok=True)
    if not OLD.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(OLD), "wids==0.1.11"]
        subprocess.run(pip, check=True)
    sides = ["floor", "this", "wids 0.1.11", *filter(is_there, PEERS)]
    results: dict[str, dict[str, dict[str, float]]] = {}
    for kind in KINDS:
        write_shards(kind)
        results[kind] = measure_all(kind, sides)
        print_table(kind, results[kind])
    if "--write" in sys.argv:
        (OUT / "random_access.json").write_text(json.dumps(results, indent=1))


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed in the environment that runs this."""
    module = {"mosaicml": "streaming"}.get(peer, peer)
    if importlib.util.find_spec(module) is None:
        print(f"{peer} is not installed, and not measured", file=sys.stderr)
        return False
    return True


def measure_all(kind: str, sides: list[str]) -> dict[str, dict[str, float]]:
    """Return the medians of each side that reads the same bytes as the others."""
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
        if any(answer["digest"] != expected for answer in answers):
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
    """Print one kind's figures, and how many times as fast as each side this package is."""
    shards, count, fields = KINDS[kind]
    what = " + ".join(f"{size:,} B" for size in fields.values())
    print(
        f"\n{kind}: {shards} shards of {count:,} samples, {what}; us for a sample, ms for the first; x this package's"
    )
    print(f"{'':14}" + "".join(f"{figure:>20}" for figure in FIGURES))
    for side, figures in rows.items():
        cells = []
        for figure in FIGURES:
            value, ours = figures.get(figure), rows["this"].get(figure)
            cells.append(f"{'-':>20}" if value is None or ours is None else f"{value:11.2f} {value / ours:7.1f}x")
        print(f"{side:14}" + "".join(cells), flush=True)


# Data


def tars(kind: str) -> list[Path]:
    """Return where the shards of a kind lie."""
    return [OUT / kind / f"{kind}-{number:04d}.tar" for number in range(KINDS[kind][0])]


def samples(kind: str) -> Iterator[dict[str, bytes]]:
    """Yield all samples of a kind, as they are written everywhere."""
    shards, count, fields = KINDS[kind]
    draw = random.Random(kind)
    for _ in range(shards * count):
        yield {field: draw.randbytes(size) for field, size in fields.items()}


def write_shards(kind: str) -> None:
    """Write the tars of a kind, once."""
    if (OUT / kind / ".ready").exists():
        return
    shutil.rmtree(OUT / kind, ignore_errors=True)
    (OUT / kind).mkdir()
    every = samples(kind)
    for shard, path in enumerate(tars(kind)):
        write_tar(
            path,
            (
                (f"{shard:04d}{number:06d}.{field}", data)
                for number in range(KINDS[kind][1])
                for field, data in next(every).items()
            ),
        )
    (OUT / kind / ".ready").touch()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write `(name, data)` members, in their order."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def converted(kind: str, name: str, convert: Callable[[Path], None]) -> Path:
    """Return the folder of a copy in a peer's format, made once."""
    folder = OUT / kind / name
    if not (folder / ".ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        convert(folder)
        (folder / ".ready").touch()
    return folder


# Sides: each returns a function from index to {field: bytes}, and one for a batch where there is one


def open_this(kind: str) -> tuple[Any, Any]:
    """This package, undecoded."""
    import wids

    dataset = wids.ShardListDataset([(str(path), KINDS[kind][1]) for path in tars(kind)], transformations=[])
    return dataset.__getitem__, dataset.__getitems__


def open_old(kind: str) -> tuple[Any, Any]:
    """Wids 0.1.11."""
    sys.path.insert(0, str(OLD))
    import wids

    shards = [{"url": str(path), "nsamples": KINDS[kind][1]} for path in tars(kind)]
    dataset = wids.ShardListDataset(shards, transformations=[], lru_size=200, cache_dir=str(OUT / "cache"), keep=True)
    return dataset.__getitem__, None


def open_floor(kind: str) -> tuple[Any, Any]:
    """What is left when everything but slices and a dictionary is left out."""
    shards, count, fields = KINDS[kind]
    names = tuple(fields)
    maps, places = [], []
    for path in tars(kind):
        with path.open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with tarfile.open(path) as tar:
            places.append([(member.offset_data, member.offset_data + member.size) for member in tar])
    starts = [count * number for number in range(shards)]

    def read(index: int) -> dict[str, bytes]:
        shard = bisect_right(starts, index) - 1
        position = (index - starts[shard]) * len(names)
        whole, spans = maps[shard], places[shard]
        return {name: whole[slice(*spans[position + place])] for place, name in enumerate(names)}

    return read, None


def open_webshart(kind: str) -> tuple[Any, Any]:
    """webshart, which reads the tars by shard and file."""
    import webshart

    shards, count, fields = KINDS[kind]

    def index(folder: Path) -> None:
        folder.mkdir()
        webshart.MetadataExtractor().extract_metadata(source=str(OUT / kind), destination=str(folder))

    metadata = converted(kind, "webshart", index)
    dataset = webshart.discover_dataset(str(OUT / kind), metadata=str(metadata))
    readers = [dataset.open_shard(number) for number in range(shards)]
    names = tuple(sorted(fields))  # the order of its files

    def read(index: int) -> dict[str, bytes]:
        shard, position = divmod(index, count)
        first = position * len(names)
        return {name: readers[shard].read_file(first + place) for place, name in enumerate(names)}

    return read, None


def open_datasets(kind: str) -> tuple[Any, Any]:
    """Hugging Face datasets, on Arrow files."""
    import datasets

    fields = KINDS[kind][2]

    def convert(folder: Path) -> None:
        features = datasets.Features({field: datasets.Value("binary") for field in fields})
        made = datasets.Dataset.from_generator(
            samples, gen_kwargs={"kind": kind}, features=features, cache_dir=str(folder.parent / "hf-cache")
        )
        made.save_to_disk(str(folder))

    table = datasets.load_from_disk(str(converted(kind, "datasets", convert)))

    def batch(indices: list[int]) -> list[dict[str, bytes]]:
        columns = table[indices]
        return [dict(zip(fields, row, strict=True)) for row in zip(*(columns[field] for field in fields), strict=True)]

    return table.__getitem__, batch


def open_array_record(kind: str) -> tuple[Any, Any]:
    """ArrayRecord, one record per sample; a record is the fields end to end, whose sizes are known here."""
    from array_record.python import array_record_data_source, array_record_module

    fields = KINDS[kind][2]

    def convert(folder: Path) -> None:
        folder.mkdir()
        every = samples(kind)
        for shard in range(KINDS[kind][0]):
            writer = array_record_module.ArrayRecordWriter(str(folder / f"{shard:04d}.array_record"), "group_size:1")
            for _ in range(KINDS[kind][1]):
                writer.write(b"".join(next(every).values()))
            writer.close()

    folder = converted(kind, "array_record", convert)
    source = array_record_data_source.ArrayRecordDataSource(sorted(map(str, folder.glob("*.array_record"))))
    spans, start = {}, 0
    for field, size in fields.items():
        spans[field] = slice(start, start + size)
        start += size

    def split(record: bytes) -> dict[str, bytes]:
        return {field: record[span] for field, span in spans.items()}

    return (lambda index: split(source[index])), (lambda indices: [split(one) for one in source.__getitems__(indices)])


class Stub(types.ModuleType):
    """A module that has whatever name is asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def open_mosaicml(kind: str) -> tuple[Any, Any]:
    """MosaicML Streaming's MDS."""
    # It imports torchvision for data sets of its own, which are not used here and need the torch that it was built for.
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.datasets"):
        sys.modules[name] = Stub(name)
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    def convert(folder: Path) -> None:
        columns = dict.fromkeys(KINDS[kind][2], "bytes")
        with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 26) as writer:
            for sample in samples(kind):
                writer.write(sample)

    folder = converted(kind, "mosaicml", convert)
    clean_stale_shared_memory()
    return StreamingDataset(local=str(folder), shuffle=False, batch_size=1).__getitem__, None


def same(sample: dict[str, bytes]) -> dict[str, bytes]:
    """Return the sample: what LitData applies to each."""
    return sample


def open_litdata(kind: str) -> tuple[Any, Any]:
    """LitData's chunks."""
    import litdata

    def convert(folder: Path) -> None:
        litdata.optimize(fn=same, inputs=list(samples(kind)), output_dir=str(folder), chunk_bytes="64MB", num_workers=1)

    return litdata.StreamingDataset(str(converted(kind, "litdata", convert))).__getitem__, None


OPENERS = {
    "this": open_this,
    "wids 0.1.11": open_old,
    "floor": open_floor,
    "webshart": open_webshart,
    "datasets": open_datasets,
    "array_record": open_array_record,
    "mosaicml": open_mosaicml,
    "litdata": open_litdata,
}


def measure(side: str, kind: str) -> None:
    """Measure one side in this process, and print what was found as JSON."""
    shards, count, fields = KINDS[kind]
    OPENERS[side](kind)[0](0)  # what is made once is made now, and the files are in memory
    for path in (*tars(kind), *(OUT / kind).glob(f"{side}/*")):
        if path.is_file():
            hashlib.md5(path.read_bytes())
    started = time.perf_counter()
    single, batch = OPENERS[side](kind)
    single(shards * count // 2)
    found: dict[str, Any] = {}
    if side != "floor":  # which scans with tarfile, and stands for reading only
        found["first"] = 1e3 * (time.perf_counter() - started)
    draw = random.Random(1)
    digest = hashlib.sha256()
    for index in draw.sample(range(shards * count), 200):
        sample = single(index)
        digest.update(b"".join(content(sample, field) for field in fields))
    found["digest"] = digest.hexdigest()
    orders = {
        "random": [draw.randrange(shards * count) for _ in range(READS)],
        "in order": [(shards * count // 2 + place) % (shards * count) for place in range(READS)],
    }
    for figure, order in orders.items():
        found[figure] = min(timed(single, order) for _ in range(2))
    if batch is not None:
        batches = [draw.sample(range(shards * count), BATCH) for _ in range(8)]
        found["batch"] = min(timed(batch, batches) for _ in range(2)) / BATCH
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
