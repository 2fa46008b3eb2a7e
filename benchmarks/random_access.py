"""How long does one sample take, at random, in order and in batches, against every system that does the same job?

    make bench              # with the peers, in an environment of their own; writes docs/benchmarks.md and its plots
    make bench-quick        # this package, its floor and wids 0.1.11; under two minutes
    make bench-size         # the cost of one sample against the number of shards and of their members

The samples are bytes in memory on all sides, and compared before anything is timed. wids 0.1.11 and webshart read the same
tars as this package; Hugging Face datasets, ArrayRecord, MosaicML Streaming and LitData read copies in their own formats.
Bytes are compared with bytes: `dataset.read(i)` with the peers, and `dataset[i]`, which makes streams and adds the key and
the sample's place, with that of wids 0.1.11, which does the same.
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
import pickle
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
    "one": (1, 100_000, {"bin": 2_000, "txt": 60}),
}
"""Shards, samples in each, and bytes of each field; `one` is `many` in one shard, for this package alone."""
SCALES: dict[str, dict[int, str]] = {
    "shards": {number: f"shards-{number}" for number in (1, 10, 100, 1000)},
    "members": {number: f"members-{number}" for number in (100, 1_000, 10_000, 100_000, 200_000)},
}
"""What grows, and the kind of data at each size: shards of 100 samples of 2 kB, or one shard of samples of 100 B."""
EVERY_KIND = {
    **KINDS,
    **{kind: (number, 100, {"bin": 2_000}) for number, kind in SCALES["shards"].items()},
    **{kind: (1, number, {"bin": 100}) for number, kind in SCALES["members"].items()},
}
FIGURES = ("random", "again", "in order", "batch", "view", "first", "next shard")
PEERS = ("webshart", "datasets", "array_record", "mosaicml", "litdata", "energon")
FLOORS = ("floor", "stream floor", "view floor", "copy")
OURS = ("this", "streams")
"""`dataset.read(i)` and `dataset[i]`."""


def main() -> None:
    """Measure all sides that can be had, and print or write what was found."""
    OUT.mkdir(exist_ok=True)
    if not OLD.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(OLD), "wids==0.1.11"]
        subprocess.run(pip, check=True)
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


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed in the environment that runs this."""
    module = {"mosaicml": "streaming", "energon": "megatron"}.get(peer, peer)
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


def like(side: str) -> str:
    """Return which of this package's sides does the same as a side."""
    return "streams" if side in {"streams", "stream floor", "wids 0.1.11"} else "this"


def print_table(kind: str, rows: dict[str, dict[str, float]]) -> None:
    """Print one kind's figures, and how many times as fast as each side the like of it in this package is."""
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


# Data


def tars(kind: str) -> list[Path]:
    """Return where the shards of a kind lie."""
    return [OUT / kind / f"{kind}-{number:04d}.tar" for number in range(EVERY_KIND[kind][0])]


def samples(kind: str) -> Iterator[dict[str, bytes]]:
    """Yield all samples of a kind, as they are written everywhere."""
    shards, count, fields = EVERY_KIND[kind]
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
                for number in range(EVERY_KIND[kind][1])
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


def open_dataset(kind: str) -> Any:
    """Return this package's dataset, undecoded."""
    import wids

    return wids.ShardListDataset([(str(path), EVERY_KIND[kind][1]) for path in tars(kind)], transformations=[])


def open_this(kind: str) -> tuple[Any, Any]:
    """This package: the bytes of a sample."""
    read = open_dataset(kind).read
    return read, lambda indices: [read(index) for index in indices]


def open_streams(kind: str) -> tuple[Any, Any]:
    """This package: a sample of streams, as a DataLoader asks for it."""
    dataset = open_dataset(kind)
    return dataset.__getitem__, dataset.__getitems__


def open_old(kind: str) -> tuple[Any, Any]:
    """Wids 0.1.11."""
    sys.path.insert(0, str(OLD))
    import wids

    shards = [{"url": str(path), "nsamples": EVERY_KIND[kind][1]} for path in tars(kind)]
    dataset = wids.ShardListDataset(shards, transformations=[], lru_size=1000, cache_dir=str(OUT / "cache"), keep=True)
    return dataset.__getitem__, None


def map_shards(kind: str) -> tuple[list[mmap.mmap], list[list[slice]], list[list[str]]]:
    """Return the map of each shard, where its members lie, and the keys of its samples."""
    maps, places, keys = [], [], []
    num_fields = len(EVERY_KIND[kind][2])
    for path in tars(kind):
        with path.open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with tarfile.open(path) as tar:
            members = tar.getmembers()
        places.append([slice(member.offset_data, member.offset_data + member.size) for member in members])
        keys.append([member.name.partition(".")[0] for member in members[::num_fields]])
    return maps, places, keys


def open_floor(kind: str, look: Callable[[mmap.mmap], Any] = lambda whole: whole) -> tuple[Any, Any]:
    """What is left when everything but slices and a dictionary is left out."""
    shards, count, fields = EVERY_KIND[kind]
    names = tuple(fields)
    maps, places, _ = map_shards(kind)
    wholes = [look(whole) for whole in maps]
    starts = [count * number for number in range(shards)]

    def read(index: int) -> dict[str, bytes]:
        shard = bisect_right(starts, index) - 1
        position = (index - starts[shard]) * len(names)
        whole, spans = wholes[shard], places[shard]
        return {name: whole[spans[position + place]] for place, name in enumerate(names)}

    return read, None


def open_view_floor(kind: str) -> tuple[Any, Any]:
    """The floor, but slices of a memoryview, which copy nothing."""
    read, _ = open_floor(kind, memoryview)
    return read, None


def open_stream_floor(kind: str) -> tuple[Any, Any]:
    """What is left of a sample of streams with its key and place, in a loop over the batch without any call of our own."""
    shards, count, fields = EVERY_KIND[kind]
    names = tuple(fields)
    maps, places, keys = map_shards(kind)
    starts = [count * number for number in range(shards)]
    urls = [str(path) for path in tars(kind)]

    def batch(indices: list[int]) -> list[dict[str, Any]]:
        samples = []
        for index in indices:
            shard = bisect_right(starts, index) - 1
            position = index - starts[shard]
            whole, spans, first = maps[shard], places[shard], position * len(names)
            sample: dict[str, Any] = {}
            for place, name in enumerate(names):
                sample[name] = io.BytesIO(whole[spans[first + place]])
            sample["__key__"] = keys[shard][position]
            sample["__dataset__"] = kind
            sample["__shard__"] = urls[shard]
            sample["__index__"] = index
            sample["__shardindex__"] = position
            samples.append(sample)
        return samples

    return (lambda index: batch([index])[0]), batch


def open_copy(kind: str) -> tuple[Any, Any]:
    """A copy of as many bytes as a sample has, from as many places of memory."""
    shards, count, fields = EVERY_KIND[kind]
    size = sum(fields.values())
    whole = random.Random(0).randbytes(1 << 20) * (1 + shards * count * size // (1 << 20))
    return (lambda index: {"bytes": whole[index * size : (index + 1) * size]}), None


def open_webshart(kind: str) -> tuple[Any, Any]:
    """webshart, which reads the tars by shard and file."""
    import webshart

    shards, count, fields = EVERY_KIND[kind]

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

    fields = EVERY_KIND[kind][2]

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

    fields = EVERY_KIND[kind][2]

    def convert(folder: Path) -> None:
        folder.mkdir()
        every = samples(kind)
        for shard in range(EVERY_KIND[kind][0]):
            writer = array_record_module.ArrayRecordWriter(str(folder / f"{shard:04d}.array_record"), "group_size:1")
            for _ in range(EVERY_KIND[kind][1]):
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
        columns = dict.fromkeys(EVERY_KIND[kind][2], "bytes")
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


def open_energon(kind: str) -> tuple[Any, Any]:
    """Megatron-Energon, which reads the tars through its own index of where samples begin."""
    from megatron.energon.epathlib import EPath
    from megatron.energon.flavors.webdataset.itar_reader import ShardInfosITarReader
    from megatron.energon.flavors.webdataset.prepare import WebdatasetPreparator
    from megatron.energon.flavors.webdataset.structs import ShardInfo

    shards, count, _ = EVERY_KIND[kind]
    names = [path.name for path in tars(kind)]

    def index(folder: Path) -> None:
        folder.mkdir()
        for path in tars(kind):
            (folder / path.name).symlink_to(path)
        WebdatasetPreparator.prepare_dataset(folder, names, split_parts_ratio=[("train", 1.0)], workers=2)

    folder = EPath(converted(kind, "energon", index))
    infos = [ShardInfo(name=name, path=folder / name, count=count) for name in names]
    return ShardInfosITarReader(base_path=folder, shard_infos=infos, itar_cache_size=shards).__getitem__, None


OPENERS = {
    "this": open_this,
    "streams": open_streams,
    "wids 0.1.11": open_old,
    "floor": open_floor,
    "stream floor": open_stream_floor,
    "view floor": open_view_floor,
    "copy": open_copy,
    "webshart": open_webshart,
    "datasets": open_datasets,
    "array_record": open_array_record,
    "mosaicml": open_mosaicml,
    "litdata": open_litdata,
    "energon": open_energon,
}


def measure(side: str, kind: str) -> None:
    """Measure one side in this process, and print what was found as JSON."""
    shards, count, fields = EVERY_KIND[kind]
    warm = OPENERS[side](kind)[0]  # what is made once is made now, and the files are in memory
    for shard in range(shards):
        warm(shard * count)
    for path in (*tars(kind), *(OUT / kind).glob(f"{side}/*")):
        if path.is_file():
            hashlib.md5(path.read_bytes())
    started = time.perf_counter()
    single, batch = OPENERS[side](kind)
    single(shards * count // 2)
    found: dict[str, Any] = {}
    if side not in FLOORS:  # which scan with tarfile, and stand for reading only
        found["first"] = 1e3 * (time.perf_counter() - started)
    if side in {*OURS, "wids 0.1.11"} and shards > 1:  # which open a shard at its first sample
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
    if side in {"floor", *OURS, "webshart"}:  # when the processor's caches have learnt these very samples
        found["again"] = min(timed(single, orders["random"]) for _ in range(6))
    if batch is not None:
        batches = [draw.sample(range(shards * count), min(BATCH, shards * count)) for _ in range(8)]
        pickle.dumps(batch(batches[0]))  # as a worker sends it; malloc gives small blocks back to the system until then
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
