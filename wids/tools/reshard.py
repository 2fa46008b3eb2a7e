"""Shards to shards of another size, order, subset or compression; the bytes of their members are copied as they are.

    1. survey   the index of each shard: how many bytes each sample takes, and a hash of its key
    2. plan     which samples go to which new shard (`wids.tools.reshard_plan`)
    3. copy     each new shard by itself, in any process: its samples are read where they lie, and written

Nothing but the plan ties new shards to each other, so what was stopped goes on with those that are missing.
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from wids.descriptor import load_descriptor
from wids.descriptor.urls import local_path
from wids.errors import WidsError, redact
from wids.fields import FieldFilter
from wids.shard_cache import ShardCache, default_lru_size
from wids.storage import Storage
from wids.tar.make_header import HeaderMaker
from wids.tools.check_shard import hash_keys, read_keys, show
from wids.tools.files import explaining
from wids.tools.finish import describe_existing, finish_shard, remove_shards, write_descriptor
from wids.tools.reshard_plan import measure_samples, plan_shards
from wids.tools.shard_file import ShardFile, make_limits
from wids.tools.shard_names import ShardNames
from wids.tools.targets import open_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.tar import TarIndex
    from wids.tools.describe import ShardDescription
    from wids.tools.targets import Target


@dataclass(frozen=True, slots=True)
class Resharded:
    """What `reshard` has made."""

    num_samples: int
    """Samples in all new shards."""
    num_shards: int
    """New shards, those that were there already included."""
    num_resumed: int
    """Those that were there already."""


def reshard(
    shards: Any,
    pattern: str | os.PathLike[str],
    *,
    max_samples: int | None = None,
    max_bytes: float | str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    samples: range | None = None,
    keys: Iterable[str] | None = None,
    fields: Iterable[str] | None = None,
    md5: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Resharded:
    """Write the samples of a data set into new shards, with a descriptor and an index pack beside them.

    Of two samples with one key that come to follow each other, the second begins a new shard: in one they would be read
    back as one sample.

    Args:
        shards: What `ShardListDataset` takes: a descriptor, a folder, a pattern, …
        pattern: Of the new shards, as for `ShardWriter`: `"out/train-%06d.tar"`, `"s3://bucket/train-%06d.tar.zst"`.
        max_samples: Most samples in a shard; None for any number.
        max_bytes: Most bytes of a shard, uncompressed, or `"500MB"`. Without any limit, a shard has 1 GB.
        shuffle: In random order, the one of `random.Random(seed).shuffle`.
        seed: Of the order.
        samples: Only those with these indices, a range of step 1.
        keys: Only those with these keys, in the order of the data set.
        fields: Only these fields, as `"jpg"` or `".jpg"`.
        md5: Say the MD5 of each shard in the descriptor.
        resume: Keep new shards that are there from an earlier run of the same, and write the others.
        overwrite: Remove shards of these names first.
        executor: Writes the shards; None for one after the other in this thread.
        progress: Show bars when it takes more than a moment.
        storage: Opens the shards that are there; None for one with the defaults.
        storage_options: Passed on to fsspec for the new ones.

    Raises:
        ValueError: An argument is none of those that it may be, or new shards would replace what they are made from.
        LookupError: There are no such samples or keys.
        FileExistsError: New shards are there already.
        WidsError: A shard cannot be read, or one that is there is none of these.
        OSError: A shard cannot be written.

    Examples:
        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/a-%d.tar", max_samples=2) as writer:
        ...     for number in range(6):
        ...         writer.write({"__key__": f"{number}", "cls": number, "txt": "text"})
        >>> reshard(f"{folder}/a.json", f"{folder}/b-%d.tar", max_samples=4, shuffle=True, fields=["cls"])
        Resharded(num_samples=6, num_shards=2, num_resumed=0)
        >>> [sample[".cls"] for sample in wids.ShardListDataset(f"{folder}/b.json")]
        [4, 2, 1, 0, 5, 3]
    """
    if resume and overwrite:
        raise ValueError("resume keeps the shards that are there and overwrite removes them; give one of the two")
    limits = make_limits(max_samples, max_bytes)
    names = ShardNames.parse(pattern)
    target = open_target(names.folder, storage_options)
    storage = storage or Storage()
    listed = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder).shards
    _refuse_inputs(shards, listed, names, target)
    wanted = None if fields is None else FieldFilter(fields)
    survey = _Survey(listed, storage, wanted, None if keys is None else set(keys), progress=progress)
    chosen = survey.choose(samples)
    order = _shuffle(chosen, seed) if shuffle else chosen
    cuts = plan_shards(survey.sizes[order], survey.hashes[order], limits)
    tasks = [
        survey.make_task(names.name(number), order[start:stop])
        for number, (start, stop) in enumerate(zip([0, *cuts], cuts, strict=False))
    ]
    target.prepare()
    try:
        _make_room(names, target, len(tasks), resume=resume, overwrite=overwrite)
        copy = partial(_copy_shard, names.folder, storage, storage_options, wanted, md5)
        results = (map if executor is None else executor.map)(copy, tasks)
        bar = tqdm(results, "writing", len(tasks), unit="shard", delay=1, disable=None if progress else True)
        found = list(bar)
        with explaining(target.url(names.descriptor)):
            write_descriptor(names, target, [(task.name, shard) for task, (shard, _) in zip(tasks, found, strict=True)])
    finally:
        target.close()
    return Resharded(len(order), len(tasks), sum(was_there for _, was_there in found))


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One new shard."""

    name: str
    """Of the shard."""
    shards: list[dict[str, Any]]
    """Those that its samples are in, as a descriptor has them."""
    places: NDArray[np.int64]
    """`(num_samples,)` int64, number of each sample's shard in `shards`."""
    positions: NDArray[np.int64]
    """`(num_samples,)` int64, of each sample in its shard."""
    num_bytes: int
    """Of the tar."""


class _Survey:
    """What is known of all samples before any is copied.

    Args:
        shards: As a descriptor has them.
        storage: Opens them.
        fields: The only ones that are written; None for all.
        keys: The only ones that are written; None for all.
        progress: Show a bar.
    """

    def __init__(
        self,
        shards: Sequence[Mapping[str, Any]],
        storage: Storage,
        fields: FieldFilter | None,
        keys: set[str] | None,
        *,
        progress: bool,
    ) -> None:
        self._shards = shards
        wanted = None if keys is None else {key.encode("utf-8", "surrogateescape") for key in keys}
        self._missing_keys = set(wanted or ())
        headers = HeaderMaker()
        cache = ShardCache(shards, storage, default_lru_size())
        sizes, hashes, is_chosen, counts = (
            [np.zeros(0, np.int64)],
            [np.zeros(0, np.uint64)],
            [np.zeros(0, np.bool_)],
            [0],
        )
        bar = tqdm(shards, "planning", unit="shard", delay=1, disable=None if progress else True)
        for number, shard in enumerate(bar):
            index = cache.get(number).index
            count = index.num_samples if shard.get("nsamples") is None else shard["nsamples"]
            counts.append(count)
            sizes.append(measure_samples(index, fields, headers)[:count])
            hashes.append(hash_keys(index)[:count])
            is_chosen.append(self._find_wanted(index, wanted)[:count])
        cache.close()
        self._starts = np.cumsum(counts)
        self.sizes = np.concatenate(sizes)
        """`(num_samples,)` int64, bytes that each sample takes in a tar; 0 for one that has none of the fields."""
        self.hashes = np.concatenate(hashes)
        """`(num_samples,)` uint64, of each key."""
        self._is_chosen = np.concatenate(is_chosen)

    def _find_wanted(self, index: TarIndex, wanted: set[bytes] | None) -> NDArray[np.bool_]:
        if wanted is None:
            return np.ones(index.num_samples, np.bool_)
        keys = list(read_keys(index))
        self._missing_keys.difference_update(keys)
        return np.fromiter((key in wanted for key in keys), np.bool_, len(keys))

    def choose(self, samples: range | None) -> NDArray[np.int64]:
        """Return the indices of the samples that are written, ascending.

        Raises:
            ValueError: There are none, or one has none of the fields.
            LookupError: Some are not there.
        """
        if self._missing_keys:
            examples = ", ".join(show(key) for key in sorted(self._missing_keys)[:5])
            raise LookupError(f"{len(self._missing_keys)} of the keys are in no sample: {examples}")
        num_samples = len(self.sizes)
        if samples is not None and (samples.step != 1 or not 0 <= samples.start < samples.stop <= num_samples):
            raise LookupError(
                f"samples is {samples}; it must be within the {num_samples} that there are, one after the other"
            )
        first, stop = (0, num_samples) if samples is None else (samples.start, samples.stop)
        chosen: NDArray[np.int64] = np.flatnonzero(self._is_chosen[first:stop]) + first
        if not len(chosen):
            raise ValueError("there are no samples to write; name other ones")
        empty = chosen[self.sizes[chosen] == 0]
        if len(empty):
            raise ValueError(
                f"{len(empty)} samples have none of the fields, the first at index {empty[0]}; name more of them, or leave "
                "these samples out"
            )
        return chosen

    def make_task(self, name: str, rows: NDArray[np.int64]) -> _Task:
        """Return how a new shard of these samples is made."""
        shards = np.searchsorted(self._starts, rows, "right") - 1
        used, places = np.unique(shards, return_inverse=True)
        return _Task(
            name,
            [dict(self._shards[shard]) for shard in used.tolist()],
            places,
            rows - self._starts[shards],
            int(self.sizes[rows].sum()),
        )


def _shuffle(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    order = rows.tolist()
    random.Random(seed).shuffle(order)  # noqa: S311 - an order that anybody can make again
    return np.array(order, np.int64)


def _copy_shard(
    folder: str,
    storage: Storage,
    storage_options: Mapping[str, Any] | None,
    fields: FieldFilter | None,
    md5: bool,
    task: _Task,
) -> tuple[ShardDescription, bool]:
    """Write one new shard, or find it written; return what is in it, and which of both it was."""
    target = open_target(folder, storage_options)
    cache = ShardCache(task.shards, storage, default_lru_size())
    target.prepare()
    try:
        if target.exists(task.name):
            found, index = describe_existing(target, task.name, storage_options, md5=md5)
            _compare(index, cache, task, fields, redact(target.url(task.name)))
            return found, True
        with explaining(target.url(task.name)):
            return _write_shard(cache, target, task, fields, md5), False
    finally:
        cache.close()
        target.close()


def _write_shard(
    cache: ShardCache, target: Target, task: _Task, fields: FieldFilter | None, md5: bool
) -> ShardDescription:
    part = target.make_part(task.name)
    try:
        shard = ShardFile(part, task.name, HeaderMaker())
        for members in _read_members(cache, task, fields):
            headers, _ = shard.make_headers(members)
            shard.add(members, headers)
        if shard.num_bytes != task.num_bytes:
            raise WidsError(
                f"{redact(target.url(task.name))}: its samples have changed since they were surveyed; try again"
            )
        shard.finish()
        written = finish_shard(shard, target, index=True, md5=md5)
        assert written is not None, "it was asked for"
        return written
    finally:
        part.drop()


def _read_members(cache: ShardCache, task: _Task, fields: FieldFilter | None) -> Iterator[list[tuple[bytes, Any]]]:
    """Yield the `(name, data)` of each sample of a new shard."""
    for place, position in zip(task.places.tolist(), task.positions.tolist(), strict=True):
        reader = cache.get(place)
        key = reader.key(position)
        views = reader.read(position, memoryview, fields)
        yield [((key + field).encode("utf-8", "surrogateescape"), view) for field, view in views.items()]


def _compare(index: TarIndex, cache: ShardCache, task: _Task, fields: FieldFilter | None, name: str) -> None:
    """Compare the keys, fields and sizes of a shard that is there with what would be written.

    Raises:
        WidsError: It is another shard.
    """
    keys = list(read_keys(index))
    starts = index.starts.tolist()
    same = len(keys) == len(task.positions)
    for number, members in enumerate(_read_members(cache, task, fields) if same else ()):
        stored = [field.encode("utf-8", "surrogateescape") for field in index.fields_of_kind[index.kinds[number]]]
        found = list(zip([keys[number] + field for field in stored],
                         index.sizes[starts[number] : starts[number + 1]].tolist(), strict=True))  # fmt: skip
        if found != [(name, len(data)) for name, data in members]:
            same = False
            break
    if not same:
        raise WidsError(
            f"{name}: is there already and holds other samples than would be written into it; remove it, or give overwrite"
        )


def _make_room(names: ShardNames, target: Target, num_shards: int, *, resume: bool, overwrite: bool) -> None:
    """Look at what is there before anything is written.

    Raises:
        FileExistsError: Something is, and it is to be neither kept nor replaced.
    """
    if overwrite:
        remove_shards(names, target, 0)
    wanted = () if resume else (names.descriptor, *map(names.name, range(num_shards)))
    # One more than is planned would be taken for a part of the new ones.
    for name in (*wanted, names.name(num_shards)):
        if target.exists(name):
            raise FileExistsError(
                f"{redact(target.url(name))}: is there already; go on with resume where it is of an earlier run of the same, "
                "replace it with overwrite, or write elsewhere"
            )


def _refuse_inputs(given: Any, listed: Sequence[Mapping[str, Any]], names: ShardNames, target: Target) -> None:
    """Refuse to write over what is read.

    Raises:
        ValueError: A new shard or its descriptor may have the name of one that is read.
    """
    paths = [str(shard["url"]) for shard in listed]
    if isinstance(given, (str, os.PathLike)):
        paths.append(os.fspath(given))
    for path in paths:
        name = path.rpartition("/")[2]
        would_be = {names.descriptor, *(names.name(int(digits)) for digits in re.findall(r"\d+", name))}
        if name in would_be and _plain(target.url(name)) == _plain(path):
            raise ValueError(
                f"{redact(path)}: is read, and would be replaced; write to another folder, or under another name"
            )


def _plain(url: str) -> str:
    path = local_path(url)
    return url if path is None else os.path.realpath(path)
