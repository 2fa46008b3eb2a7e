"""What a sampler's state says of its data and arguments, and how they are compared."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REMEDY = "make the sampler as it was, or begin anew without the state"


class Fingerprint:
    """What tells data from other data, wherever it lies: the basenames of its shards and their counts, in order.

    Args:
        dataset: With `shards` and `lengths`; anything else is known by its length alone.
        lengths: Of the shards, instead of the dataset's.
    """

    def __init__(self, dataset: Any, lengths: Iterable[int] | None = None) -> None:
        shards = getattr(dataset, "shards", None)
        counts = list(getattr(dataset, "lengths", ()) if lengths is None else lengths)
        total = sum(counts) if dataset is None else len(dataset)
        names = [_basename(shard) for shard in shards or ()] if isinstance(shards, (list, tuple)) else []
        self.num_samples = total
        self._names = names if len(names) == len(counts) else [""] * len(counts)
        self._counts = counts if sum(counts) == total else []

    def describe(self) -> dict[str, Any]:
        """Return the fingerprint, for JSON."""
        return {"samples": self.num_samples, "shards": len(self._counts), "digest": self._digest(len(self._counts))}

    def check(self, data: Mapping[str, Any], *, strict: bool) -> None:
        """Check that a state is of this data, or if it is not strict, of data to which this was added.

        Raises:
            ValueError: It is not; names the difference.
        """
        mine = self.describe()
        if dict(data) == mine:
            return
        sizes = (
            f"the state is of {data['samples']} samples in {data['shards']} shards, this dataset has "
            f"{mine['samples']} in {mine['shards']}"
        )
        shards = data["shards"]
        added = self.num_samples >= data["samples"] and len(self._counts) >= shards
        if added and shards:
            added = self._digest(shards) == data["digest"] and sum(self._counts[:shards]) == data["samples"]
        if added and not strict:
            return
        if (data["samples"], shards) == (mine["samples"], mine["shards"]):
            raise ValueError(
                f"{sizes}, but under other names or with other counts; use the data that the state was taken of"
            )
        hint = (
            "load_state_dict(state, strict=False) ends the epoch with the data that it began with" if added else _REMEDY
        )
        raise ValueError(f"{sizes}; {hint}")

    def _digest(self, num_shards: int) -> str:
        digest = xxhash.xxh3_64()
        for name, count in islice(zip(self._names, self._counts, strict=False), num_shards):
            digest.update(f"{name}\0{count}\n".encode("utf-8", "surrogateescape"))
        return str(digest.hexdigest())


def check_arguments(mine: Mapping[str, Any], theirs: Mapping[str, Any], adopt: Iterable[str]) -> dict[str, Any]:
    """Return what a state says of arguments that this sampler was not told.

    Args:
        mine: This sampler's arguments.
        theirs: The state's.
        adopt: Names of those that it was not told.

    Raises:
        ValueError: Others differ; names the first.
    """
    taken = {}
    for name, value in mine.items():
        other = theirs.get(name)
        if name in adopt:
            taken[name] = other
        elif other != value:
            raise ValueError(f"the state is of a sampler with {name}={other!r}, and this one has {value!r}; {_REMEDY}")
    return taken


def _basename(shard: Any) -> str:
    url = str(shard["url"] if isinstance(shard, dict) else shard)
    if "://" in url:
        url = url.partition("?")[0]  # a query may hold a signature, another one each time
    return url.rpartition("/")[2]
