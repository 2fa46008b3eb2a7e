"""What a sampler's state records of its data and arguments, and how these are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.fingerprint import basename, digest_data
from wids.words import samples_in_shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REMEDY = "use the data and arguments of the state, or start again without it"


class Fingerprint:
    """What a state records of the data: a fingerprint that does not depend on where the data is stored.

    Args:
        dataset: A dataset with `shards` and `lengths`, and `digest_rows` if it may be a view; any other is recognized
            by its length alone.
        lengths: Number of samples in each shard, in place of the dataset's `lengths`.
    """

    def __init__(self, dataset: Any, lengths: Iterable[int] | None = None) -> None:
        shards = getattr(dataset, "shards", None)
        counts = list(getattr(dataset, "lengths", ()) if lengths is None else lengths)
        total = sum(counts) if dataset is None else len(dataset)
        names = [basename(shard) for shard in shards or ()] if isinstance(shards, (list, tuple)) else []
        self.num_samples = total
        self._names = names if len(names) == len(counts) else [""] * len(counts)
        self._counts = counts if sum(counts) == total else []
        self._digest_rows = getattr(dataset, "digest_rows", None)

    def describe(self) -> dict[str, Any]:
        """Return the fingerprint as JSON values."""
        return {"samples": self.num_samples, "shards": len(self._counts), "digest": self._digest(len(self._counts))}

    def check(self, data: Mapping[str, Any], *, strict: bool) -> None:
        """Check that a state is of this data or, if not `strict`, of the data before samples were appended to it.

        Raises:
            ValueError: It is not; the message names the difference.
        """
        mine = self.describe()
        if dict(data) == mine:
            return
        sizes = (
            f"the state is of {samples_in_shards(data['samples'], data['shards'])}, this dataset has "
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
                f"{sizes}, but under other names or with other counts; use the data with which the state was taken"
            )
        hint = (
            "load_state_dict(state, strict=False) ends the epoch with the data that it began with" if added else _REMEDY
        )
        raise ValueError(f"{sizes}; {hint}")

    def _digest(self, num_shards: int) -> str:
        return digest_data(self._names, self._counts, self._digest_rows, num_shards)


def check_arguments(mine: Mapping[str, Any], theirs: Mapping[str, Any], adopt: Iterable[str]) -> dict[str, Any]:
    """Compare a state's arguments with a sampler's; return those that the sampler is to adopt.

    Args:
        mine: The sampler's arguments.
        theirs: The state's arguments.
        adopt: Names of the arguments that the sampler was not given.

    Raises:
        ValueError: Another argument differs; the message names the first one.
    """
    taken = {}
    for name, value in mine.items():
        other = theirs.get(name)
        if name in adopt:
            taken[name] = other
        elif other != value:
            raise ValueError(f"the state was taken with {name}={other!r}, but this sampler has {value!r}; {_REMEDY}")
    return taken
