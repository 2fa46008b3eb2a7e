"""The sides of a benchmark: this package, loops written by hand as its floors, and every system that does the same job.

Opening a side returns a function from an index to `{field: bytes}`, and one for a batch of indices, or None.
"""

from __future__ import annotations

import importlib.util
import io
import mmap
import random
import sys
import tarfile
import types
from bisect import bisect_right
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from corpus import EVERY_KIND, OLD, OUT, converted, samples, tars

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEERS = ("webshart", "datasets", "array_record", "mosaicml", "litdata", "energon")
FLOORS = ("floor", "stream floor", "view floor", "copy")
OURS = ("this", "streams")
"""`dataset.read(i)` and `dataset[i]`."""


def is_there(peer: str) -> bool:
    """Tell whether a peer is installed in this environment."""
    module = {"mosaicml": "streaming", "energon": "megatron"}.get(peer, peer)
    if importlib.util.find_spec(module) is None:
        print(f"{peer} is not installed, and not measured", file=sys.stderr)
        return False
    return True


def like(side: str) -> str:
    """Return which of this package's sides a side is to be compared with."""
    return "streams" if side in {"streams", "stream floor", "wids 0.1.11"} else "this"


def open_dataset(kind: str) -> Any:
    """Return this package's dataset, undecoded."""
    import wids

    return wids.ShardListDataset([(str(path), EVERY_KIND[kind][1]) for path in tars(kind)], transformations=[])


def open_this(kind: str) -> tuple[Any, Any]:
    """This package: the bytes of a sample."""
    read = open_dataset(kind).read
    return read, lambda indices: [read(index) for index in indices]


def open_streams(kind: str) -> tuple[Any, Any]:
    """This package: a sample of streams, as a DataLoader reads it."""
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
    """Return the map of each shard, the slices of its members, and the keys of its samples."""
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
    """The floor: nothing but one slice per member, and a dictionary."""
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
    """The floor of views: slices of a memoryview, which copy nothing."""
    read, _ = open_floor(kind, memoryview)
    return read, None


def open_stream_floor(kind: str) -> tuple[Any, Any]:
    """The floor of streams: samples of streams with key and place, made in one loop without calls of this package."""
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
    """A copy of as many bytes as a sample has, from as much memory as all samples take."""
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
    names = tuple(sorted(fields))  # the order in which it numbers files

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
    """ArrayRecord, one record per sample: its fields end to end, which have known sizes."""
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
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def open_mosaicml(kind: str) -> tuple[Any, Any]:
    """MosaicML Streaming's MDS."""
    # It imports torchvision for image datasets that are not used here, and which would need a matching torch.
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
    """Return the sample unchanged; LitData applies this function to each."""
    return sample


def open_litdata(kind: str) -> tuple[Any, Any]:
    """LitData's chunks."""
    import litdata

    def convert(folder: Path) -> None:
        litdata.optimize(fn=same, inputs=list(samples(kind)), output_dir=str(folder), chunk_bytes="64MB", num_workers=1)

    return litdata.StreamingDataset(str(converted(kind, "litdata", convert))).__getitem__, None


def open_energon(kind: str) -> tuple[Any, Any]:
    """Megatron-Energon, which reads the tars through its own index of the samples' offsets."""
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
