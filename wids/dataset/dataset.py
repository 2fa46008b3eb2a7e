"""`ShardListDataset`: a dataset over tar shards, by index."""

from __future__ import annotations

import logging
from io import BytesIO
from itertools import islice
from operator import index as as_index
from typing import TYPE_CHECKING, Any, overload

from wids.dataset.keys import KeyTable
from wids.dataset.replace import Replacer
from wids.dataset.sample import FieldFilter, Sample, find_field
from wids.dataset.steps import REQUIRED, Rename, SelectFields, ToTuple, alternatives
from wids.decode import Decoder, default_decoder, stack_columns
from wids.descriptor import ShardOffsets, load_descriptor
from wids.errors import DecodeError, ShardMismatchError, TarFormatError, redact
from wids.shard_cache import ShardCache, default_lru_size
from wids.storage import Storage, StorageOptions
from wids.tar import StaleIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from io import BufferedReader
    from types import TracebackType
    from typing import Literal, SupportsIndex

    from typing_extensions import Self

    from wids.tar import MemberLocation, TarReader

try:
    from torch.utils.data import Dataset as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]

logger = logging.getLogger(__name__)

_READ_TOGETHER = 64
"""Samples that an iteration over remote shards asks for at once."""

Transform = "Callable[[Any], Any]"


class ShardListDataset(_Base):  # type: ignore[type-arg]
    """Samples of a list of tar shards, by index.

    `dataset[i]` is a dictionary of the sample's fields, decoded, and `__key__`, `__dataset__`, `__index__`, `__shard__`
    and `__shardindex__`. Reads of one dataset may come from several threads; it pickles and forks at any moment.

    Args:
        shards: A descriptor's path, URL or open file; a folder of tars; a pattern (`x-{000000..000099}.tar`,
            `dir/*.tar`); a list of shards (`{"url", "nsamples"}`, `(url, nsamples)`, paths or URLs) or of descriptors.
            Shards without a count are indexed once, here.
        transformations: `"PIL"`, `"numpy"`, an image spec of webdataset, a callable, a list of callables; `[]` or None
            leaves each field an `io.BytesIO`.
        fields: The only fields to read, as `"jpg"` or `".jpg"`; None for all.
        on_error: `"raise"`; `"replace"` takes the next readable sample of the shard for one that is damaged; a callable
            `(error, index)` gives the sample to take.
        access: `"download"`: a remote shard comes whole into the disk cache when it is first read; `"range"`: only the
            bytes that are asked for, which are not kept; `"auto"`: those, until half of a shard was read so in a process,
            and the whole shard from then on.
        cache_dir: Folder of the disk cache; None for `$WIDS_CACHE`, else a folder of the user's own in the node's
            temporary folder. Made when something is written.
        cache_size: Most bytes of shards in the cache folder, or `"200GB"`; None for `$WIDS_CACHE_SIZE`, else half of what
            its disk has free. What exceeds it for a moment: a shard per process that fetches, and one per process that
            reads.
        keep: Remove nothing from the cache folder.
        cache_local: Copy local shards into the cache too, instead of opening them where they lie.
        checksum: What a shard is compared with in the descriptor: `"none"`, `"size"`, `"md5"`.
        verify_members: Compare each member on every read with the checksum that the descriptor's index has of it;
            `open` streams, and compares nothing.
        io: `"mmap"`, `"pread"`, or `"auto"`: mmap, but pread on network file systems.
        lru_size: Open shards; None for as many as a quarter of the file descriptor limit allows.
        storage_options: Passed on to fsspec.
        allow_pipe: Allow `pipe:` URLs, which run commands.
        allow_pickle: Allow decoders that can run code: `.pkl`, object arrays, full `.pt` files.
        localname: URL to name in the cache folder, as in 0.1.11.
        base: What relative URLs are resolved against; None for the descriptor's own place.
        options: Keys that replace the descriptor's, as in 0.1.11.
        dataset_name: Replaces the descriptor's name.

    Raises:
        DescriptorError: The descriptor is wrong; names the place in it.
        FetchError: It cannot be read.
        ValueError: An argument is none of those that it may be.

    Examples:
        >>> dataset = ShardListDataset("train.json")
        >>> dataset
        <ShardListDataset 'train': 100 samples in 2 shards>
        >>> sample = dataset[-1]
        >>> sample["txt"], sample["cls"], sample["__key__"], sample["__index__"]
        ('text of 99', 9, '000099', 99)
        >>> dataset.to_tuple("txt", "cls")[41]
        ('text of 41', 1)
    """

    def __init__(
        self,
        shards: Any,
        *,
        transformations: Any = "PIL",
        fields: Iterable[str] | None = None,
        on_error: Literal["raise", "replace"] | Callable[[Exception, int], Any] = "raise",
        access: Literal["download", "range", "auto"] = "download",
        cache_dir: str | None = None,
        cache_size: float | str | None = None,
        keep: bool = False,
        cache_local: bool = False,
        checksum: Literal["none", "size", "md5"] = "size",
        verify_members: bool = False,
        io: Literal["auto", "mmap", "pread"] = "auto",
        lru_size: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        allow_pipe: bool = False,
        allow_pickle: bool = False,
        localname: Callable[[str], str] | None = None,
        base: str | None = None,
        options: Mapping[str, Any] | None = None,
        dataset_name: str | None = None,
    ) -> None:
        storage = Storage(
            StorageOptions(
                access=access,
                cache_dir=None if cache_dir is None else str(cache_dir),
                cache_size=cache_size,
                keep=keep,
                cache_local=cache_local,
                checksum=checksum,
                io=io,
                storage_options=storage_options,
                allow_pipe=allow_pipe,
                localname=localname,
            )
        )
        descriptor = load_descriptor(shards, fetch=storage.read, base=base, options=options, dataset_name=dataset_name)
        self.spec = descriptor.spec
        self.shards = descriptor.shards
        self.dataset_name = descriptor.name
        self._source = descriptor.source
        self._cache = ShardCache(
            self.shards,
            storage,
            default_lru_size() if lru_size is None else lru_size,
            verify_members=verify_members,
        )
        self._fill_counts()
        self._offsets = ShardOffsets([shard["nsamples"] for shard in self.shards])
        # What the samples of a shard share: name of the dataset, URL, index of the first.
        self._shard_facts = [
            (str(shard.get("dataset") or ""), str(shard["url"]), first)
            for shard, first in zip(self.shards, self._offsets.starts, strict=False)
        ]
        self._rows: range | None = None
        self._keys: KeyTable | None = None
        self._filter = None if fields is None else FieldFilter(fields)
        self._allow_pickle = allow_pickle
        self._replacer = Replacer(on_error)
        self.transformations: list[Any] = self._make_steps(transformations)

    def _fill_counts(self) -> None:
        unknown = [number for number, shard in enumerate(self.shards) if shard.get("nsamples") is None]
        for number, count in self._cache.count_samples(unknown).items():
            self.shards[number]["nsamples"] = count

    def _make_steps(self, transformations: Any) -> list[Any]:
        if transformations is None:
            return []
        if isinstance(transformations, str):
            return [default_decoder(transformations, allow_pickle=self._allow_pickle)]
        if callable(transformations):
            return [transformations]
        steps = list(transformations)
        for place, step in enumerate(steps):
            if not callable(step):
                raise TypeError(f"transformations[{place}] is {step!r}; it must be callable")
        return steps

    # Samples

    def __len__(self) -> int:
        return len(self._offsets) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: slice) -> Self: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    def __getitem__(self, index: Any) -> Any:
        """Return one sample, or for a slice a view.

        Raises:
            IndexError: `index` is out of range.
            DecodeError: A field cannot be decoded; names index, shard, key and field.
            TarFormatError: The shard is damaged.
            ShardMismatchError: The shard is not what its descriptor says.
            FetchError: The shard cannot be opened.
        """
        seed = None
        if index.__class__ is not int:
            if isinstance(index, slice):
                return self._derive(_rows=(range(len(self)) if self._rows is None else self._rows)[index], _keys=None)
            seed = getattr(index, "sample_seed", None)  # what samplers give with sample_seeds=True
        shard, position = self._find(index) if self._rows is not None else self._offsets.find_shard(index)
        reader = self._cache.get(shard, index)
        sample: Any = Sample()
        try:
            reader.read_into(sample, position, BytesIO, self._filter)
        except StaleIndexError:
            self._cache.reindex(shard)
            return ShardListDataset.__getitem__(self, index)
        except (TarFormatError, ShardMismatchError) as error:
            return self._replace(error, shard, position, reader, index)
        sample["__key__"] = reader.key(position)
        sample["__dataset__"], sample["__shard__"], first = self._shard_facts[shard]
        sample["__index__"] = first + position
        sample["__shardindex__"] = position
        if seed is not None:
            sample["__seed__"] = seed
        for step in self.transformations:
            try:
                sample = step(sample)
            except DecodeError as error:
                if not isinstance(step, Decoder):
                    raise self._locate_error(error, first + position, shard, position, reader) from error
                return self._replace(error, shard, position, reader, index)
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch, in the order of `indices`; torch's DataLoader calls this.

        What is read by ranges, or lies on a disk and not in memory, is asked for at once.
        """
        if not self._cache.reads_ranges:
            self._cache.ask_for(map(self._find, indices), self._filter)
            return [self[index] for index in indices]
        with self._cache.read_together([self._find(index) for index in indices], self._filter):
            return [self[index] for index in indices]

    def __iter__(self) -> Iterator[Any]:
        """Yield every sample in order; an error is raised, never taken for the end."""
        # A generator turns a StopIteration out of user code into an error; map() would take it for the end.
        if not self._cache.reads_ranges:
            for index in range(len(self)):
                yield self[index]
            return
        for first in range(0, len(self), _READ_TOGETHER):
            yield from self.__getitems__(range(first, min(first + _READ_TOGETHER, len(self))))

    def read(self, index: int, fields: Iterable[str] | None = None) -> dict[str, bytes]:
        """Return `{field: bytes}` of one sample, undecoded.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._read(index, bytes, fields)

    def view(self, index: int, fields: Iterable[str] | None = None) -> dict[str, memoryview]:
        """Return `{field: memoryview}` of one sample, without a copy where the shard is mapped.

        A view stays valid whatever becomes of the dataset, the cache or the file's name.

        Raises:
            IndexError: `index` is out of range.
        """
        return self._read(index, memoryview, fields)

    def open(self, index: int, field: str) -> BufferedReader:
        """Return a seekable binary file over one member, without a copy.

        Raises:
            IndexError: `index` is out of range.
            KeyError: The sample has no such field; lists those that it has.
        """
        shard, position = self._find(index)
        reader = self._cache.get(shard, index)
        try:
            return reader.open(position, _find_field(field, reader, position))
        except StaleIndexError:
            self._cache.reindex(shard)
            reader = self._cache.get(shard)
            return reader.open(position, _find_field(field, reader, position))

    def locate(self, index: int) -> dict[str, MemberLocation]:
        """Return `{field: MemberLocation(url, offset, size)}` of one sample; nothing but the index is read.

        Raises:
            IndexError: `index` is out of range.
        """
        shard, position = self._find(index)
        return self._cache.get(shard).locate(position, self._shard_facts[shard][1])

    def key(self, index: int) -> str:
        """Return the key of one sample.

        Raises:
            IndexError: `index` is out of range.
        """
        shard, position = self._find(index)
        return self._cache.get(shard).key(position)

    def index_of(self, key: str) -> int:
        """Return the lowest index of the sample with this key; the first call indexes every shard.

        Raises:
            KeyError: There is none; names its neighbours in sorted order.
        """
        if self._keys is None:
            self._keys = KeyTable(self._iterate_keys, self.key, len(self))
        return self._keys.find(key)

    def _iterate_keys(self) -> Iterator[str]:
        if self._rows is not None:
            yield from map(self.key, range(len(self)))
            return
        for shard, length in enumerate(self._offsets.lengths):
            if length:
                yield from islice(self._cache.get(shard).keys(), length)

    def _find(self, index: int) -> tuple[int, int]:
        """Return `(shard, position)` of a sample of this dataset or view."""
        if self._rows is None:
            return self._offsets.find_shard(index)
        try:
            return self._offsets.find_shard(self._rows[as_index(index)])
        except IndexError:
            raise IndexError(f"index {index} is out of range for a view of {len(self._rows)} samples") from None

    def _read(self, index: int, make: Callable[[memoryview], Any], fields: Iterable[str] | None) -> dict[str, Any]:
        shard, position = self._find(index)
        reader = self._cache.get(shard, index)
        if fields is None:
            wanted = self._filter
        else:
            names = [_find_field(name, reader, position) for name in fields]
            wanted = FieldFilter(names) & self._filter
        sample = Sample()
        try:
            reader.read_into(sample, position, make, wanted)
        except StaleIndexError:
            self._cache.reindex(shard)
            self._cache.get(shard).read_into(sample, position, make, wanted)
        return sample

    # Damaged samples

    def _replace(self, error: Exception, shard: int, position: int, reader: TarReader, asked: Any) -> Any:
        """Return what stands for a damaged sample, or raise with all that is known of it."""
        index = self._offsets.starts[shard] + position
        located = self._locate_error(error, index, shard, position, reader)
        before = self._replacer.replacements.total()
        try:
            return self._replacer.replace(
                located, index, self._shard_facts[shard][1], self._cache.accesses, self._others(index, shard, asked)
            )
        finally:
            self._cache.storage.meter.add("replacements", self._replacer.replacements.total() - before)

    def _others(self, index: int, shard: int, asked: Any) -> Iterator[Callable[[], Any]]:
        """Yield readers of the shard's other samples, from the next one on, cyclically."""
        first, stop = self._offsets.starts[shard], self._offsets.starts[shard + 1]
        strict = self._derive(_rows=None, _replacer=Replacer("raise"))
        for other in [*range(index + 1, stop), *range(first, index)]:
            place = asked.at(other) if hasattr(asked, "sample_seed") else other  # the seed that was asked for
            yield lambda place=place: strict[place]  # type: ignore[misc]

    def _locate_error(self, error: Exception, index: int, shard: int, position: int, reader: TarReader) -> Exception:
        command = f"; see it with: widsindex sample {self._source} {index}" if self._source else ""
        if isinstance(error, DecodeError):
            message = f"index {index}, shard {redact(self._shard_facts[shard][1])}, {error}{command}"
        else:
            message = f"index {index}, key {reader.key(position)!r}: {error}{command}"
        located = type(error)(message)
        located.__cause__ = error.__cause__ or error
        return located

    # Datasets made from this one

    def decode(self, spec: Any = "PIL", *, size: int | tuple[int, int] | None = None, jpeg: str = "pillow") -> Self:
        """Return a dataset that decodes by `spec` (what `transformations` takes), in place of the present decoding.

        The decoding step is replaced wherever it stands; where there is none, the new one comes first.

        Args:
            spec: What `transformations` takes.
            size: With the name of an image format: pixels that the shorter side of each image becomes, or
                `(height, width)`; see `default_decoder`.
            jpeg: With the name of an image format: what decodes JPEGs, `"pillow"` or `"simplejpeg"`.

        Raises:
            ValueError: `size` or `jpeg` are none, or do not go with `spec`.
        """
        if isinstance(spec, str):
            spec = default_decoder(spec, size=size, jpeg=jpeg, allow_pickle=self._allow_pickle)
        elif size is not None or jpeg != "pillow":
            raise ValueError(f"size and jpeg go with the name of an image format, not with {spec!r}; give both to it")
        new = self._make_steps(spec)
        steps = list(self.transformations)
        place = next((place for place, step in enumerate(steps) if isinstance(step, Decoder)), None)
        if place is None:
            return self._derive(transformations=[*new, *steps])
        return self._derive(transformations=[*steps[:place], *new, *steps[place + 1 :]])

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return a dataset that applies `function` to each sample after what is done already."""
        return self._derive(transformations=[*self.transformations, function])

    def to_tuple(self, *fields: str, missing: Any = REQUIRED) -> Self:
        """Return a dataset of tuples: one value per field, the first that is there of `"jpg;png"`.

        Args:
            fields: In the order of the tuple.
            missing: What stands for a field that is not there; without it that is a `KeyError`.
        """
        return self._narrow(fields, ToTuple(fields, missing))

    def select_fields(self, fields: Iterable[str] | str, missing: Any = REQUIRED) -> Self:
        """Return a dataset whose samples have only these fields."""
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        return self._narrow(names, SelectFields(names, missing))

    def rename(self, **names: str) -> Self:
        """Return a dataset whose fields are renamed: `rename(image="jpg;png")`."""
        for spec in names.values():
            alternatives(spec)
        return self.map(Rename(tuple(names.items())))

    def batched(self, batch_size: int, *, drop_last: bool = False) -> Batches:
        """Return an iterable over batches in order: of tuples, one column per place, stacked where values are alike.

        Raises:
            ValueError: `batch_size` is less than 1.
        """
        return Batches(self, batch_size, drop_last)

    def add_transform(self, transform: Callable[[Any], Any]) -> Self:
        """Append a transformation to this very dataset, as in 0.1.11, and return it."""
        self.transformations.append(transform)
        return self

    def _narrow(self, fields: tuple[str, ...], step: Any) -> Self:
        wanted = [name for spec in fields for name in alternatives(spec)]
        steps = [*self.transformations, step]
        # A function of the user's may look at any field; decoders look at each alone.
        if all(isinstance(earlier, Decoder) for earlier in self.transformations):
            return self._derive(transformations=steps, _filter=FieldFilter(wanted) & self._filter)
        return self._derive(transformations=steps)

    def _derive(self, **changes: Any) -> Self:
        """Return a dataset that shares everything with this one, open shards too, but for these attributes."""
        derived = object.__new__(type(self))
        derived.__dict__.update({**self.__dict__, "transformations": list(self.transformations), **changes})
        return derived

    # 0.1.11's attributes

    @property
    def lengths(self) -> list[int]:
        """How many samples each shard has; of a view, how many of them it has."""
        if self._rows is None:
            return list(self._offsets.lengths)
        return lengths_of_rows(self._rows, self._offsets.starts)

    @property
    def cum_lengths(self) -> list[int]:
        """Index behind the last sample of each shard."""
        return self._offsets.starts[1:]

    @property
    def total_length(self) -> int:
        """How many samples there are."""
        return len(self)

    @property
    def cache_dir(self) -> str:
        """Folder of the disk cache; it exists only when something was written to it."""
        return self._cache.storage.cache_dir

    def get_shard(self, index: int) -> tuple[TarReader, int, dict[str, Any]]:
        """Return the open shard that holds a sample, the sample's position in it, and its entry in the descriptor."""
        shard, position = self._find(index)
        return self._cache.get(shard), position, self.shards[shard]

    def get_stats(self) -> tuple[int, int]:
        """Return how many samples were read, and how many of the reads had to open a shard, in this process."""
        return self._cache.accesses, self._cache.misses

    def stats(self) -> dict[str, float]:
        """Return what was counted, summed over the processes of the job: this one, its workers, the dead ones too.

        `accesses`, of which `hits` found their shard open and `misses` opened it; `cache_hits` and `fetches`, the
        openings that found the shard in the disk cache or fetched it; `bytes_mapped`, `bytes_fetched`; `requests` for byte
        ranges; `seconds_waited` for shards and ranges; `retries`; `replacements` of damaged samples; `index_builds`.
        A process shows its accesses each time that it opens a shard.
        """
        found = self._cache.count()
        return {
            "hits": int(found["accesses"] - found["misses"]),
            **{name: number if name == "seconds_waited" else int(number) for name, number in found.items()},
        }

    def in_flight(self) -> list[dict[str, Any]]:
        """Return what the processes of the job are waiting for, the longest first; also of those that were killed.

        Each is a dictionary of `what` is done, the `shard`, the `index` of the sample that it is needed for, `seconds` since it
        began, `pid`, and whether that process is `alive`.
        """
        return self._cache.storage.meter.in_flight()

    def prefetch(self, upcoming: Sequence[int]) -> None:
        """Have shards fetched before they are needed, the next one first; return at once.

        Samplers with `shards_ahead` call it. Another process fetches them into the disk cache, no more than it can hold;
        local shards are read ahead by the system.

        Args:
            upcoming: Numbers of shards, in place of those named before.
        """
        self._cache.fetch_ahead(upcoming)

    def check_cache_misses(self) -> None:
        """Log a warning when more than three in ten of at least a hundred reads had to open a shard."""
        accesses, misses = self.get_stats()
        if accesses > 100 and misses / accesses > 0.3:
            logger.warning(
                "%d of %d reads had to open a shard; raise lru_size (%d), or sample by chunks (ChunkedSampler)",
                misses,
                accesses,
                self._cache.lru_size,
            )

    def close(self) -> None:
        """Let go of maps and files; the dataset can be used again, and views that are out stay valid."""
        self._cache.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None}  # made anew where it is needed, instead of being sent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        name = f" {self.dataset_name!r}" if self.dataset_name else ""
        return f"<{type(self).__name__}{name}: {len(self)} samples in {len(self.shards)} shards>"


def _find_field(name: str, reader: TarReader, position: int) -> str:
    """Return which of a sample's fields is meant.

    Raises:
        KeyError: None is; lists those that are there.
    """
    there = reader.fields(position)
    found = find_field(name, there)
    if found is None:
        raise KeyError(f"{name!r}: sample {reader.key(position)!r} has no such field; it has {', '.join(there)}")
    return found


class Batches:
    """Batches of a dataset in order; can be iterated again and again.

    Args:
        dataset: Where the samples come from.
        batch_size: Samples in a batch, at least 1.
        drop_last: Leave out a last batch that is smaller.
    """

    def __init__(self, dataset: ShardListDataset, batch_size: int, drop_last: bool) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        self._dataset = dataset
        self._batch_size = batch_size
        self._drop_last = drop_last

    def __len__(self) -> int:
        whole, rest = divmod(len(self._dataset), self._batch_size)
        return whole + (rest > 0 and not self._drop_last)

    def __iter__(self) -> Iterator[Any]:
        for batch in range(len(self)):
            first = batch * self._batch_size
            stop = min(first + self._batch_size, len(self._dataset))
            samples = self._dataset.__getitems__(range(first, stop))
            if not isinstance(samples[0], tuple):
                raise TypeError(
                    f"batched() takes tuples, but sample {first} is a {type(samples[0]).__name__}; call to_tuple() before"
                )
            yield stack_columns(samples)


def lengths_of_rows(rows: range, starts: Sequence[int]) -> list[int]:
    """Return how many of `rows` lie in each shard, in the order in which `rows` come to them.

    Examples:
        >>> lengths_of_rows(range(2, 9, 2), [0, 3, 3, 10])
        [1, 0, 3]
    """
    ordered = rows if rows.step > 0 else rows[::-1]
    counts = []
    done = 0
    for stop in starts[1:]:
        below = len(range(ordered.start, min(stop, ordered.stop), ordered.step))
        counts.append(below - done)
        done = below
    return counts if rows.step > 0 else counts[::-1]
