"""Existing shards to what a plan of new ones needs to know of their samples: bytes, keys, and where each lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

from wids.shard_cache import ShardCache, default_lru_size
from wids.tar.make_header import HeaderMaker
from wids.tools.check_shard import hash_keys, read_keys, show
from wids.tools.copy_shard import CopyTask
from wids.tools.findings import list_examples
from wids.tools.number_range import check_range
from wids.tools.progress import show_progress
from wids.tools.reshard_plan import measure_samples
from wids.words import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.descriptor import Descriptor
    from wids.fields import FieldFilter
    from wids.storage import Storage
    from wids.tar import TarIndex


class SampleSurvey:
    """What is known of all samples before any is copied.

    Args:
        descriptor: Of the shards, and of the rows among their samples where it selects some.
        storage: Opens them.
        fields: The only ones that are written; None for all.
        keys: The only ones that are written; None for all.
        progress: Show a bar.

    Raises:
        DescriptorError: The rows are not those of these shards.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        storage: Storage,
        fields: FieldFilter | None,
        keys: set[str] | None,
        *,
        progress: bool,
    ) -> None:
        self._shards = shards = descriptor.shards
        self._wanted = None if keys is None else {key.encode("utf-8", "surrogateescape") for key in keys}
        self._missing_fields = set(() if fields is None else fields.names)
        headers = HeaderMaker()
        cache = ShardCache(shards, storage, default_lru_size())
        sizes, hashes, is_chosen, counts = (
            [np.zeros(0, np.int64)],
            [np.zeros(0, np.uint64)],
            [np.zeros(0, np.bool_)],
            [0],
        )
        for number, shard in enumerate(show_progress(shards, "planning", is_shown=progress)):
            index = cache.get(number).index
            count = index.num_samples if shard.get("nsamples") is None else shard["nsamples"]
            counts.append(count)
            self._missing_fields.difference_update(name.lower() for names in index.fields_of_kind for name in names)
            sizes.append(measure_samples(index, fields, headers)[:count])
            hashes.append(hash_keys(index)[:count])
            is_chosen.append(self._find_wanted(index)[:count])
        cache.close()
        self._starts = np.cumsum(counts)
        self.sizes = np.concatenate(sizes)
        """`(num_samples,)` int64, bytes that each sample takes in a tar; 0 for one that has none of the fields."""
        self.hashes = np.concatenate(hashes)
        """`(num_samples,)` uint64, of each key."""
        self._is_chosen = np.concatenate(is_chosen)
        self._rows = _find_rows(descriptor, counts[1:])

    def _find_wanted(self, index: TarIndex) -> NDArray[np.bool_]:
        wanted = self._wanted
        if wanted is None:
            return np.ones(index.num_samples, np.bool_)
        return np.fromiter((key in wanted for key in read_keys(index)), np.bool_, index.num_samples)

    def _find_missing(self) -> list[bytes]:
        """Return the keys that are wanted and that no sample of the dataset has."""
        wanted = sorted(self._wanted or ())
        if not wanted:
            return []
        hashes = np.array([xxh3_64_intdigest(key) for key in wanted], np.uint64)
        is_there = np.isin(hashes, self.hashes[self._rows])
        return [key for key, found in zip(wanted, is_there.tolist(), strict=True) if not found]

    def choose(self, samples: range | None) -> NDArray[np.int64]:
        """Return where the samples that are written lie among all of the shards, in the order of the dataset.

        Args:
            samples: Their indices in the dataset; None for all.

        Raises:
            ValueError: There are no samples to write, or one has none of the fields.
            LookupError: A key or a field is in no sample, or an index is out of range.
        """
        _refuse_missing("keys", list(map(show, self._find_missing())))
        _refuse_missing("fields", list(map(repr, sorted(self._missing_fields))))
        num_samples = len(self._rows)
        samples = range(num_samples) if samples is None else samples
        if samples.step != 1:
            raise LookupError(f"samples is {samples}; its step must be 1")
        check_range(samples, num_samples, "sample")
        indices = np.flatnonzero(self._is_chosen[self._rows[samples.start : samples.stop]]) + samples.start
        chosen = self._rows[indices]
        if not len(chosen):
            raise ValueError("there are no samples to write; choose others")
        empty = indices[self.sizes[chosen] == 0]
        if len(empty):
            raise ValueError(
                f"{counted(len(empty), 'sample has', 'samples have')} none of the fields, the first at index {empty[0]}; name "
                "more of them, or leave these samples out"
            )
        return chosen

    def make_task(self, name: str, rows: NDArray[np.int64]) -> CopyTask:
        """Return the task of writing these samples into a new shard."""
        shards = np.searchsorted(self._starts, rows, "right") - 1
        used, places = np.unique(shards, return_inverse=True)
        return CopyTask(
            name,
            [self._shards[shard] for shard in used.tolist()],
            places,
            rows - self._starts[shards],
            int(self.sizes[rows].sum()),
        )


def _find_rows(descriptor: Descriptor, counts: list[int]) -> NDArray[np.int64]:
    """Return where the samples of a dataset lie among all of its shards, which have so many each.

    Raises:
        DescriptorError: The descriptor selects rows of other shards.
    """
    if descriptor.rows is None:
        return np.arange(sum(counts))
    # Imported here: it imports torch, which only selections need.
    from wids.dataset.rows import to_array
    from wids.dataset.stored_rows import selected_rows

    return to_array(selected_rows(descriptor, counts))


def _refuse_missing(things: str, missing: list[str]) -> None:
    """Refuse to leave out in silence what was asked for.

    Raises:
        LookupError: Something is missing.
    """
    if missing:
        count = counted(len(missing), f"of the {things} is", f"of the {things} are")
        raise LookupError(f"{count} in no sample: {list_examples(missing, len(missing))}")
