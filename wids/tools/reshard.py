"""Shards to shards of another size, order, subset or compression; the bytes of their members are copied as they are.

    1. survey   the index of each shard: how many bytes each sample takes, and a hash of its key (`wids.tools.reshard_survey`)
    2. plan     which samples go to which new shard (`wids.tools.reshard_plan`)
    3. copy     each new shard by itself, in any process: its samples are read where they lie (`wids.tools.copy_shard`)

New shards do not depend on each other once the plan is made, so an interrupted run resumes with those that are missing.
"""

from __future__ import annotations

import os
import random
import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.descriptor import load_descriptor
from wids.descriptor.urls import local_path
from wids.errors import redact
from wids.fields import FieldFilter
from wids.storage import Storage
from wids.tools.copy_shard import ShardCopier
from wids.tools.files import explaining
from wids.tools.finish import check_facts, facts_of, remove_shards, write_descriptor
from wids.tools.progress import show_progress
from wids.tools.reshard_plan import plan_shards
from wids.tools.reshard_survey import SampleSurvey
from wids.tools.shard_file import make_limits
from wids.tools.shard_names import ShardNames
from wids.tools.spread import spread
from wids.tools.targets import open_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.tools.copy_shard import CopyTask
    from wids.tools.describe import ShardDescription
    from wids.tools.targets import Target

_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Resharded:
    """What `reshard` made."""

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
    max_samples: float | None = None,
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
    """Write the samples of a dataset into new shards, with a descriptor and an index pack beside them.

    Further entries of the dataset's descriptor, such as its classes, are copied to the new one; columns are not.

    When two samples with the same key come to follow each other, the second begins a new shard: within one, they would be
    read back as a single sample.

    Args:
        shards: What `ShardListDataset` takes: a descriptor, a folder, a pattern, …; or a `ShardListDataset`. For a selection,
            given as a descriptor or a view: the selected samples in its order, as they are stored.
        pattern: Names of the new shards, as for `ShardWriter`: `"out/train-%06d.tar"`, `"s3://bucket/train-%06d.tar.zst"`.
        max_samples: Most samples in a shard; None for any number.
        max_bytes: Most bytes of a shard, uncompressed, or `"500MB"`. Without any limit, a shard has 1 GB.
        shuffle: Write samples in random order, that of `random.Random(seed).shuffle`.
        seed: Seed of the random order.
        samples: Only samples with these indices in the dataset, a range of step 1.
        keys: Only samples with these keys, in the order of the dataset.
        fields: Only these fields, as `"jpg"` or `".jpg"`.
        md5: Record the MD5 of each shard in the descriptor.
        resume: Keep the new shards that an earlier run with the same arguments wrote, and write the others.
        overwrite: Remove existing shards of these names first.
        executor: Writes the shards; None for one after the other in this thread.
        progress: Show bars when it takes more than a moment.
        storage: Opens the shards to read; None for one with the defaults.
        storage_options: Passed on to fsspec for the new shards.

    Raises:
        ValueError: An argument has a value that it cannot have, or new shards would replace those that are read.
        LookupError: `samples`, `keys` or `fields` names something that the dataset does not have.
        FileExistsError: New shards or their descriptor exist already.
        WidsError: A shard cannot be read, or an existing new one holds other samples.
        OSError: A shard cannot be written.

    Examples:
        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/a-%d.tar", max_samples=2) as writer:
        ...     for number in range(6):
        ...         writer.write({"__key__": f"{number}", "cls": number, "txt": "text"})
        >>> new = f"{folder}/b-%d.tar"
        >>> reshard(f"{folder}/a.json", new, max_samples=4, shuffle=True, fields=["cls"])
        Resharded(num_samples=6, num_shards=2, num_resumed=0)
        >>> [sample[".cls"] for sample in wids.ShardListDataset(f"{folder}/b.json")]
        [4, 2, 1, 0, 5, 3]
    """
    if resume and overwrite:
        raise ValueError("resume keeps existing shards and overwrite removes them; give one of the two")
    limits = make_limits(max_samples, max_bytes)
    names = ShardNames.parse(pattern)
    target = open_target(names.folder, storage_options)
    storage = storage or Storage()
    if hasattr(shards, "describe_rows"):  # a dataset; to ask for its class would import torch
        shards = {**facts_of(shards.spec), "shardlist": shards.spec["shardlist"], "rows": shards.describe_rows()}
    descriptor = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder)
    _refuse_inputs(shards, descriptor.shards, names, target)
    facts = check_facts(facts_of(descriptor.spec), names)
    copier = ShardCopier(names.folder, storage, storage_options, None if fields is None else FieldFilter(fields), md5)
    survey = SampleSurvey(descriptor, storage, copier.fields, None if keys is None else set(keys), progress=progress)
    order = _put_in_order(survey.choose(samples), seed if shuffle else None)
    cuts = plan_shards(survey.sizes[order], survey.hashes[order], limits)
    # A generator, as each task may list all shards when samples are shuffled.
    tasks = (
        survey.make_task(names.name(number), order[start:stop])
        for number, (start, stop) in enumerate(zip([0, *cuts], cuts, strict=False))
    )
    with closing(target):
        target.prepare()
        _make_room(names, target, len(cuts), resume=resume, overwrite=overwrite)
        found = _copy_all(tasks, len(cuts), copier, executor, progress=progress)
        described = [(name, found[name][0]) for name in map(names.name, range(len(cuts)))]
        with explaining(target.url(names.descriptor)):
            write_descriptor(names, target, described, facts)
    return Resharded(len(order), len(cuts), sum(was_there for _, was_there in found.values()))


def _put_in_order(rows: NDArray[np.int64], seed: int | None) -> NDArray[np.int64]:
    """Return rows in the random order of a seed; as they are for None."""
    if seed is None:
        return rows
    order = rows.tolist()
    random.Random(seed).shuffle(order)  # noqa: S311 - an order that anybody can make again
    return np.array(order, np.int64)


def _copy_all(
    tasks: Iterable[CopyTask], num_tasks: int, copier: ShardCopier, executor: Executor | None, *, progress: bool
) -> dict[str, tuple[ShardDescription, bool]]:
    """Write all new shards; return by name what is in each, and whether it existed."""
    done = spread(copier, tasks, executor)
    return {task.name: found for task, found in show_progress(done, "writing", num_tasks, is_shown=progress)}


def _make_room(names: ShardNames, target: Target, num_shards: int, *, resume: bool, overwrite: bool) -> None:
    """Remove existing shards if `overwrite`; refuse to write between others.

    Raises:
        FileExistsError: Something has a name that is needed, and is to be neither kept nor replaced.
    """
    if overwrite:
        remove_shards(names, target, 0)
    wanted = () if resume else (names.descriptor, *map(names.name, range(num_shards)))
    # A shard numbered right after the last one would seem to belong to the new ones.
    for name in (*wanted, names.name(num_shards)):
        if target.exists(name):
            raise FileExistsError(
                f"{redact(target.url(name))}: already exists; resume continues an earlier run with the same arguments, "
                "overwrite replaces it, or write elsewhere"
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
        # A shard that is read through a link has two names.
        real_names = {path.rpartition("/")[2], _plain(path).rpartition("/")[2]}
        would_be = {
            names.descriptor,
            *(names.name(int(digits)) for name in real_names for digits in _DIGITS.findall(name)),
        }
        if any(_plain(target.url(name)) == _plain(path) for name in would_be & real_names):
            raise ValueError(
                f"{redact(path)}: is one of the inputs, and would be replaced; write to another folder, or under another name"
            )


def _plain(url: str) -> str:
    path = local_path(url)
    return url if path is None else os.path.realpath(path)
