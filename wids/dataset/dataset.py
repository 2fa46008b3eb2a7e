"""`ShardListDataset`: random access by index to the samples of a list of tar shards."""

from __future__ import annotations

import logging
import shlex
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from wids.closing import Closing
from wids.dataset.access import Access
from wids.dataset.join import Join
from wids.dataset.pipeline import Pipeline
from wids.dataset.replace import DAMAGE, Replacer
from wids.dataset.sample import Sample
from wids.dataset.stored_rows import selected_rows
from wids.decode import Decoder
from wids.descriptor import ShardOffsets, load_descriptor
from wids.errors import DecodeError, ShardMismatchError, TarFormatError, redact
from wids.fields import FieldFilter
from wids.shard_cache import ShardCache, default_lru_size
from wids.storage import Storage, StorageOptions
from wids.tar import StaleIndexError
from wids.words import samples_in_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Literal, SupportsIndex

    from typing_extensions import Self

    from wids.tar import TarReader

try:
    from torch.utils.data import Dataset as _Base
except ImportError:
    _Base = object  # type: ignore[assignment,misc]

logger = logging.getLogger(__name__)

_READ_TOGETHER = 64
"""Number of samples that an iteration over remote shards requests together."""


class ShardListDataset(Access, Pipeline, Closing, _Base):  # type: ignore[type-arg]
    """The samples of a list of tar shards, by index.

    `dataset[i]` is a dictionary of the sample's decoded fields, and `__key__`, `__dataset__`, `__index__`, `__shard__` and
    `__shardindex__`. A dataset is safe to read from several threads, and can be pickled or forked at any time.

    Args:
        shards: The path or URL of a descriptor, or the descriptor as an open file; a folder of tars; a pattern
            (`x-{000000..000099}.tar`, `dir/*.tar`); a list of shards (`{"url", "nsamples"}`, `(url, nsamples)`, paths or
            URLs) or of descriptors. Shards without a sample count are indexed once, by this constructor. A folder may be
            one that img2dataset, Energon, DALI or a Hugging Face repository has written; the counts in it are used.
        transformations: `"PIL"`, `"numpy"`, an image spec of webdataset, a callable, or a list of callables. `[]` or None
            leaves each field an `io.BytesIO`.
        fields: The only fields to read, as `["jpg", ".cls"]`, or the only one, as `"jpg"`; None for all.
        on_error: What to do about a damaged sample: `"raise"` an error; `"replace"` it by the next readable sample of its
            shard; or a callable `(error, index)` that returns the sample to use.
        access: How remote shards are read. `"download"`: the whole shard is fetched into the disk cache when it is first
            read. `"range"`: only the bytes needed are fetched, and not kept. `"auto"`: as `"range"`, until a process has
            read half of a shard; from then on as `"download"`.
        cache_dir: Folder of the disk cache; None for `$WIDS_CACHE`, else a folder private to the user in the node's
            temporary folder. It is created when something is written to it.
        cache_size: The most bytes of shards in the cache folder, as a number or as `"200GB"`; None for `$WIDS_CACHE_SIZE`,
            else half of the free space of its disk. The cache can exceed it for a moment, by one shard for each process
            that fetches and one for each process that reads.
        keep: Never remove anything from the cache folder.
        cache_local: Copy local shards into the cache, too, instead of opening them in place.
        checksum: What a fetched shard is checked against: nothing (`"none"`), or its `"size"` or `"md5"` in the descriptor.
        verify_members: Compare each member, on every read, with its checksum in the descriptor's index pack. `open`
            streams a member and does not check it.
        io: `"mmap"`, `"pread"`, or `"auto"`: mmap, but pread on network file systems.
        lru_size: Number of shards to keep open; None for a quarter of the limit on open files.
        storage_options: Options for fsspec.
        allow_pipe: Allow `pipe:` URLs, which run commands.
        allow_pickle: Allow decoders that can run code: `.pkl`, object arrays, full `.pt` files.
        localname: A function of a shard's URL that returns its file name in the cache folder, as in 0.1.11.
        base: What relative URLs are resolved against; None for the location of the descriptor.
        options: Keys that override those of the descriptor, as in 0.1.11.
        dataset_name: Overrides the name in the descriptor.
        split: The split to read, where a folder has several, as those of Energon and Hugging Face do.

    Raises:
        DescriptorError: The descriptor is wrong; the message names the place in it.
        FetchError: The descriptor cannot be read.
        ValueError: An argument has a value that it cannot take.

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
        fields: Iterable[str] | str | None = None,
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
        self._shard_facts = [
            (str(shard.get("dataset") or ""), str(shard["url"]), first)
            for shard, first in zip(descriptor.shards, self._offsets.starts, strict=False)
        ]
        self._rows = None if descriptor.rows is None else selected_rows(descriptor, self._offsets.lengths)
        self._visits = None
        self._keys = None
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
        """Return one sample, or a view for a slice.

        Raises:
            IndexError: `index` is out of range.
            DecodeError: A field cannot be decoded; the message names index, shard, key and field.
            TarFormatError: The shard is damaged.
            ShardMismatchError: The shard does not match its descriptor.
            FetchError: The shard cannot be opened.
        """
        seed = None
        if index.__class__ is not int:
            if isinstance(index, slice):
                return self._view(range(len(self))[index])
            seed = getattr(index, "sample_seed", None)  # indices of samplers with sample_seeds=True carry one
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

        The byte ranges of remote shards are requested concurrently, and local files that are not in memory are read ahead.
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
        """Yield every sample in order. An error is raised, never mistaken for the end."""
        # A generator turns a StopIteration raised by user code into an error; map() would end there without one.
        if not self._reads_ranges():
            for index in range(len(self)):
                yield self[index]
            return
        for first in range(0, len(self), _READ_TOGETHER):
            yield from self.__getitems__(range(first, min(first + _READ_TOGETHER, len(self))))

    # Damaged samples

    def _replace(self, error: Exception, shard: int, position: int, reader: TarReader, asked: Any) -> Any:
        """Return a replacement for a damaged sample, or raise an error that says which sample it is."""
        index = self._offsets.starts[shard] + position
        located = self._locate_error(error, index, shard, position, reader)
        before = self._replacer.replacements.total()
        try:
            return self._replacer.replace(
                located,
                index,
                self._shard_facts[shard][1],
                self._cache.accesses,
                self._substitutes(index, shard, asked),
            )
        finally:
            self._cache.storage.meter.add("replacements", self._replacer.replacements.total() - before)

    def _substitutes(self, index: int, shard: int, asked: Any) -> Iterator[Callable[[], Any]]:
        """Yield functions that read the shard's other samples in this dataset, the next one first, cyclically."""
        others = self._rows_in(self._offsets.starts[shard], self._offsets.starts[shard + 1])
        strict = self._derive(_rows=None, _replacer=Replacer("raise"))
        for other in [*others[others > index].tolist(), *others[others < index].tolist()]:
            # The substitute gets the seed of the sample that it replaces.
            place = asked.at(other) if hasattr(asked, "sample_seed") else other
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
        """Return a copy of this dataset with some attributes changed; it shares all else, open shards included."""
        derived = object.__new__(type(self))
        derived.__dict__.update({**self.__dict__, "transformations": list(self.transformations), **changes})
        return derived

    # Attributes of 0.1.11

    @property
    def cum_lengths(self) -> list[int]:
        """Cumulative sums of `lengths`: for each of `shards`, the index after its last sample."""
        return list(accumulate(self.lengths))

    @property
    def total_length(self) -> int:
        """Number of samples."""
        return len(self)

    @property
    def cache_dir(self) -> str:
        """Folder of the disk cache; it does not exist before something is written to it."""
        return self._cache.storage.cache_dir

    def get_shard(self, index: int) -> tuple[TarReader, int, Mapping[str, Any]]:
        """Return the open shard that holds a sample, the sample's position in it, and its entry in the descriptor."""
        shard, position = self._find(index)
        return self._cache.get(shard), position, self._cache.shards[shard]

    # Counters and resources

    def get_stats(self) -> tuple[int, int]:
        """Return `(accesses, misses)` of this process: the number of reads, and of those that had to open a shard."""
        return self._cache.accesses, self._cache.misses

    def stats(self) -> dict[str, float]:
        """Return counters, summed over the processes of the job: this one, its workers, and those that have ended.

        They are `accesses`, of which `hits` found their shard open and `misses` opened it; `cache_hits` and `fetches`, the
        shards that were found in the disk cache or had to be fetched; `bytes_mapped`; `bytes_fetched`; `requests` for byte
        ranges; `seconds_waited` for shards and ranges; `retries`; `replacements` of damaged samples; and `index_builds`.
        The accesses of another process are updated whenever it opens a shard. Both sides of a join are counted.
        """
        found = self._count({})
        return {
            "hits": int(found["accesses"] - found["misses"]),
            **{name: number if name == "seconds_waited" else int(number) for name, number in found.items()},
        }

    def in_flight(self) -> list[dict[str, Any]]:
        """Return what the processes of the job are waiting for, the longest wait first, killed processes included.

        Each entry is a dictionary: `what` is being done, the `shard`, the `index` of the sample that it is needed for,
        the `seconds` since it began, the `pid` of the process, and whether that process is `alive`.
        """
        return self._cache.storage.meter.in_flight()

    def check_cache_misses(self) -> None:
        """Log a warning if, of more than 100 reads in this process, over 30 % had to open a shard."""
        accesses, misses = self.get_stats()
        if accesses > 100 and misses / accesses > 0.3:
            logger.warning(
                "%d of %d reads had to open a shard; raise lru_size (%d), or sample by chunks (ChunkedSampler)",
                misses,
                accesses,
                self._cache.lru_size,
            )

    def close(self) -> None:
        """Release maps and files. The dataset can be used again, and memoryviews of its samples stay valid."""
        self._cache.close()
        for join in self._joins():
            join.other.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_keys": None, "_visits": None}  # large, and computed again where needed

    def __repr__(self) -> str:
        name = f" {self.dataset_name!r}" if self.dataset_name else ""
        return f"<{type(self).__name__}{name}: {samples_in_shards(len(self), len(self.shards))}>"
