"""`ShardListDataset`: a dataset over tar shards, by index."""

from __future__ import annotations

import logging
import shlex
from io import BytesIO
from itertools import accumulate
from operator import index as as_index
from typing import TYPE_CHECKING, Any, overload

from wids.closing import Closing
from wids.dataset.join import Join
from wids.dataset.metadata import Metadata
from wids.dataset.pipeline import Pipeline
from wids.dataset.replace import DAMAGE, Replacer
from wids.dataset.sample import Sample
from wids.dataset.stored_rows import rows_from_json
from wids.decode import Decoder
from wids.descriptor import ShardOffsets, load_descriptor
from wids.errors import DecodeError, ShardMismatchError, TarFormatError, redact
from wids.fields import FieldFilter, find_field
from wids.shard_cache import ShardCache, default_lru_size
from wids.storage import Storage, StorageOptions
from wids.tar import StaleIndexError
from wids.words import counted, samples_in_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from io import BufferedReader
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


class ShardListDataset(Metadata, Pipeline, Closing, _Base):  # type: ignore[type-arg]
    """Samples of a list of tar shards, by index.

    `dataset[i]` is a dictionary of the sample's fields, decoded, and `__key__`, `__dataset__`, `__index__`, `__shard__`
    and `__shardindex__`. Reads of one dataset may come from several threads; it pickles and forks at any moment.

    Args:
        shards: A descriptor's path, URL or open file; a folder of tars; a pattern (`x-{000000..000099}.tar`,
            `dir/*.tar`); a list of shards (`{"url", "nsamples"}`, `(url, nsamples)`, paths or URLs) or of descriptors.
            Shards without a count are indexed once, here. A folder may be as img2dataset, Energon, DALI or a Hugging Face
            repository left it; the counts in it are used.
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
        split: Which split of a folder that has several, as Energon and Hugging Face leave them.

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
        split: str | None = None,
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
        descriptor = load_descriptor(
            shards,
            fetch=storage.read,
            list_folder=storage.list_folder,
            base=base,
            options=options,
            dataset_name=dataset_name,
            split=split,
        )
        self.spec = descriptor.spec
        self.dataset_name = descriptor.name
        self._source = descriptor.source
        self._cache = ShardCache(
            descriptor.shards,
            storage,
            default_lru_size() if lru_size is None else lru_size,
            verify_members=verify_members,
        )
        self._fill_counts(descriptor.shards)
        self._offsets = ShardOffsets([shard["nsamples"] for shard in descriptor.shards])
        # What the samples of a shard share: name of the dataset, URL, index of the first.
        self._shard_facts = [
            (str(shard.get("dataset") or ""), str(shard["url"]), first)
            for shard, first in zip(descriptor.shards, self._offsets.starts, strict=False)
        ]
        self._rows = None
        self._visits = None
        self._keys = None
        if descriptor.rows is not None:
            file = descriptor.source or "descriptor"
            self._rows = rows_from_json(descriptor.rows, len(self._offsets), self.fingerprint, file)
        self._columns = self._find_columns(descriptor.columns)
        self._filter = None if fields is None else FieldFilter(fields)
        self._replacer = Replacer(on_error)
        self._allow_pickle = allow_pickle
        self.transformations = self._make_steps(transformations)

    def _fill_counts(self, shards: list[dict[str, Any]]) -> None:
        unknown = [number for number, shard in enumerate(shards) if shard.get("nsamples") is None]
        for number, count in self._cache.count_samples(unknown).items():
            shards[number]["nsamples"] = count

    # Samples

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
                return self._view(range(len(self))[index])
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
            except DAMAGE as error:
                if isinstance(step, (Decoder, Join)):
                    return self._replace(error, shard, position, reader, index)
                if isinstance(error, DecodeError):
                    raise self._locate_error(error, first + position, shard, position, reader) from error
                raise
        return sample

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch, in the order of `indices`; torch's DataLoader calls this.

        What is read by ranges, or lies on a disk and not in memory, is asked for at once.
        """
        if self._joins():
            with self._reading_together([self._find(index) for index in indices]):
                return [self[index] for index in indices]
        if not self._cache.reads_ranges:
            self._cache.ask_for(map(self._find, indices), self._filter)
            return [self[index] for index in indices]
        with self._cache.read_together([self._find(index) for index in indices], self._filter):
            return [self[index] for index in indices]

    def __iter__(self) -> Iterator[Any]:
        """Yield every sample in order; an error is raised, never taken for the end."""
        # A generator turns a StopIteration out of user code into an error; map() would take it for the end.
        if not self._reads_ranges():
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
        for join, place in self._beside(index):
            theirs = join.find_field(field, place)
            if theirs is not None:
                return join.other.open(place, theirs)
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
        located = self._cache.get(shard).locate(position, self._shard_facts[shard][1])
        for join, place in self._beside(index):
            join.merge(located, join.other.locate(place))
        return located

    def key(self, index: int) -> str:
        """Return the key of one sample.

        Raises:
            IndexError: `index` is out of range.
        """
        shard, position = self._find(index)
        return self._cache.get(shard).key(position)

    def _find(self, index: int) -> tuple[int, int]:
        """Return `(shard, position)` of a sample of this dataset or view."""
        if self._rows is None:
            return self._offsets.find_shard(index)
        try:
            return self._offsets.find_shard(self._rows[as_index(index)])
        except IndexError:
            raise IndexError(
                f"index {index} is out of range for a view of {counted(len(self._rows), 'sample')}"
            ) from None

    def _read(self, index: int, make: Callable[[memoryview], Any], fields: Iterable[str] | None) -> dict[str, Any]:
        for step in self.transformations:
            if step.__class__ is Join:
                return self._read_beside(index, make, fields)
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

    def _read_beside(
        self, index: int, make: Callable[[memoryview], Any], fields: Iterable[str] | None
    ) -> dict[str, Any]:
        """Return what `_read` does where other datasets are joined to this one."""
        beside = self._beside(index)
        own = None if fields is None else list(fields)
        theirs: list[list[str]] = [[] for _ in beside]
        for name in [] if own is None else list(own):
            for names, (join, place) in zip(theirs, beside, strict=True):
                found = join.find_field(name, place)
                if found is not None and own is not None:
                    own.remove(name)
                    names.append(found)
                    break
        sample = self._derive(transformations=[])._read(index, make, own)
        for names, (join, place) in zip(theirs, beside, strict=True):
            if own is None or names:
                join.merge(sample, join.other._read(place, make, None if own is None else names))
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
        """Yield readers of the other samples that this dataset has of the shard, from the next one on, cyclically."""
        others = self._rows_in(self._offsets.starts[shard], self._offsets.starts[shard + 1])
        strict = self._derive(_rows=None, _replacer=Replacer("raise"))
        for other in [*others[others > index].tolist(), *others[others < index].tolist()]:
            place = asked.at(other) if hasattr(asked, "sample_seed") else other  # the seed that was asked for
            yield lambda place=place: strict[place]  # type: ignore[misc]

    def _locate_error(self, error: Exception, index: int, shard: int, position: int, reader: TarReader) -> Exception:
        command = f"; see it with: widsindex sample {shlex.quote(self._source)} {index}" if self._source else ""
        if isinstance(error, DecodeError):
            message = f"index {index}, shard {redact(self._shard_facts[shard][1])}, {error}{command}"
        else:
            message = f"index {index}, key {reader.key(position)!r}: {error}{command}"
        located = type(error)(message)
        located.__cause__ = error.__cause__ or error
        return located

    def _derive(self, **changes: Any) -> Self:
        """Return a dataset that shares everything with this one, open shards too, but for these attributes."""
        derived = object.__new__(type(self))
        derived.__dict__.update({**self.__dict__, "transformations": list(self.transformations), **changes})
        return derived

    # 0.1.11's attributes

    @property
    def cum_lengths(self) -> list[int]:
        """Index behind the last sample of each of `shards`."""
        return list(accumulate(self.lengths))

    @property
    def total_length(self) -> int:
        """How many samples there are."""
        return len(self)

    @property
    def cache_dir(self) -> str:
        """Folder of the disk cache; it exists only when something was written to it."""
        return self._cache.storage.cache_dir

    def get_shard(self, index: int) -> tuple[TarReader, int, Mapping[str, Any]]:
        """Return the open shard that holds a sample, the sample's position in it, and its entry in the descriptor."""
        shard, position = self._find(index)
        return self._cache.get(shard), position, self._cache.shards[shard]

    def get_stats(self) -> tuple[int, int]:
        """Return how many samples were read, and how many of the reads had to open a shard, in this process."""
        return self._cache.accesses, self._cache.misses

    def stats(self) -> dict[str, float]:
        """Return what was counted, summed over the processes of the job: this one, its workers, the dead ones too.

        `accesses`, of which `hits` found their shard open and `misses` opened it; `cache_hits` and `fetches`, the
        openings that found the shard in the disk cache or fetched it; `bytes_mapped`, `bytes_fetched`; `requests` for byte
        ranges; `seconds_waited` for shards and ranges; `retries`; `replacements` of damaged samples; `index_builds`.
        A process shows its accesses each time that it opens a shard. Of a join, both sides are counted.
        """
        found = self._count({})
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
        for join in self._joins():
            join.other.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None, "_visits": None}  # made anew where needed, instead of being sent

    def __repr__(self) -> str:
        name = f" {self.dataset_name!r}" if self.dataset_name else ""
        return f"<{type(self).__name__}{name}: {samples_in_shards(len(self), len(self.shards))}>"


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
