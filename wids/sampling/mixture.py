"""`MixtureSampler`: draw from the components of one dataset, each at its own rate.

Three components with weights 2, 1 and 1; `a0` is the first sample of component a in its own shuffled order:

    places       a0 b0 c0 a1 | a2 b1 c1 a3 | a4 …      in every prefix each has its share, to within one sample
    2 ranks      a0    c0      a2    c1      a4         rank 0 takes every second place
                    b0    a1      b1    a3              rank 1 takes the others

Epochs are stretches of one endless sequence: in each epoch a component resumes where it stopped in the one before, and
after its last sample it starts over in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.sampling.cursor import LaneCursor, order_chunks
from wids.sampling.distributed import default_chunksize
from wids.sampling.epochs import whole_number
from wids.sampling.lanes import Lanes
from wids.sampling.order import Span, chunk_spans, epoch_seed
from wids.sampling.rank import RankFinder
from wids.sampling.ranked import RankedSampler
from wids.sampling.shuffle import ShuffleStream, Unshuffled
from wids.sampling.turns import Turns, whole_shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.sampling.ahead import Piece
    from wids.sampling.samplers import Order
    from wids.sampling.shuffle import Positions


@dataclass(frozen=True, slots=True)
class Component:
    """Consecutive samples of a dataset that share a weight."""

    start: int
    """Index of its first sample."""
    length: int
    """Number of samples."""
    name: str
    """Empty if it has none."""
    weight: float | None
    """The weight that the dataset gives it; None if it gives none."""


class MixtureSampler(RankedSampler):
    """Draws from the components of a dataset in fixed proportions.

    It is a `torch.utils.data.DistributedSampler`, so frameworks that split other samplers among ranks leave it alone.

    Args:
        dataset: What `wids.concat` returns, with one component per dataset in it; or a dataset with one component per
            dataset that its descriptor combines.
        weights: One per component, or a mapping from the components' names; None for the descriptor's weights. They
            need not sum to 1.
        num_samples: Samples per epoch, on all ranks together; None for as many as the dataset has.
        num_replicas: Number of ranks; None for the size of the process group, else `WORLD_SIZE`, else 1.
        rank: Number of this rank; None for its number in the process group, else `RANK`, else 0.
        chunksize: Samples per chunk of a component; None for about eight shards' worth if the dataset has shards, else
            1,000,000.
        seed: Determines the order; must be the same on all ranks.
        shuffle: False to keep the order of each component.
        shufflefirst: Shuffle the order of a component's chunks in its first pass too, instead of only in later ones.
        sample_seeds: Yield indices that carry a seed for their sample; the dataset stores it in the sample as
            `__seed__`.

    Raises:
        TypeError: An argument that must be a whole number is not one.
        ValueError: A number is out of range, weights are missing or do not fit the components, or a component with a
            weight has no samples.

    Examples:
        >>> from wids import concat
        >>> both = concat([range(100), range(100)])
        >>> sampler = MixtureSampler(both, weights=[3, 1], num_samples=8, chunksize=10)
        >>> [index // 100 for index in sampler]
        [0, 0, 1, 0, 0, 0, 1, 0]
    """

    def __init__(
        self,
        dataset: Sized,
        *,
        weights: Sequence[float] | Mapping[str, float] | None = None,
        num_samples: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        chunksize: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool = False,
        sample_seeds: bool = False,
    ) -> None:
        self._start()
        self.dataset = dataset
        self.components = find_components(dataset)
        self.shares = _find_shares(self.components, weights)
        self.epoch_length = whole_number("num_samples", len(dataset) if num_samples is None else num_samples)
        if self.epoch_length < 0:
            raise ValueError(f"num_samples is {num_samples}; it must be at least 0")
        self.chunksize = whole_number("chunksize", default_chunksize(dataset) if chunksize is None else chunksize)
        if self.chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}; it must be at least 1")
        self.seed = whole_number("seed", seed)
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst
        self.sample_seeds = sample_seeds
        self._finder = RankFinder(rank, num_replicas)

    def _lanes(self, epoch: int | None) -> Lanes:
        return Lanes(self.epoch_length, 1)

    def _open(self, epoch: int) -> tuple[int, Order]:
        cursors = [LaneCursor(self._opener(part), max(1, part.length), repeats=True) for part in self.components]
        return 0, _Order(self.components, cursors, Turns(self.shares), epoch * self.epoch_length)

    def _opener(self, part: Component) -> Any:
        def open_round(number: int) -> tuple[Iterator[Span], Any]:
            stream = ShuffleStream(epoch_seed(self.seed, number)) if self.shuffle else Unshuffled()
            move = self.shuffle and (self.shufflefirst or number > 0)
            order = order_chunks(stream, part.length, self.chunksize, move=move)
            return chunk_spans(order, part.length, self.chunksize), stream

        return open_round

    def _arguments(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "chunksize": self.chunksize,
            "shuffle": bool(self.shuffle),
            "shufflefirst": bool(self.shufflefirst),
            "num_samples": self.epoch_length,
            "shares": self.shares,
            "components": [part.length for part in self.components],
        }


class _Order:
    """The order of one epoch, which is a stretch of the mixture's endless sequence.

    Args:
        components: The components of the dataset.
        cursors: One per component, over its own endless sequence.
        turns: Decides which component takes each place.
        first: Place in the sequence at which the epoch begins.
    """

    def __init__(
        self, components: Sequence[Component], cursors: Sequence[LaneCursor], turns: Turns, first: int
    ) -> None:
        self._starts = [part.start for part in components]
        self._cursors = cursors
        self._turns = turns
        self._first = first

    def read(self, _lane: int, start: int, stop: int) -> tuple[int, Positions]:
        """Return 0 and the indices at the places `start` to `stop` of the epoch; `start` never decreases."""
        self._turns.seek(self._first + start)
        before = list(self._turns.counts)
        who = np.array(self._turns.take(stop - start), np.int64)
        indices = np.empty(stop - start, np.int64)
        for component, (done, then) in enumerate(zip(before, self._turns.counts, strict=True)):
            if then > done:
                indices[who == component] = self._cursors[component].read(done, then) + self._starts[component]
        return 0, indices

    def pieces(self, _lane: int) -> Iterator[Piece]:
        """Yield nothing: a mixture reads from all components at once."""
        return iter(())


def find_components(dataset: Any) -> list[Component]:
    """Return the components of a dataset.

    Raises:
        ValueError: It has none, or the shards of one are not consecutive.
    """
    datasets = getattr(dataset, "datasets", None)
    if datasets is not None and hasattr(dataset, "component_lengths"):
        parts = []
        start = 0
        for part, length in zip(datasets, dataset.component_lengths, strict=True):
            weights = {shard.get("weight") for shard in getattr(part, "shards", ())}
            name = getattr(part, "dataset_name", "") or ""
            parts.append(Component(start, length, name, weights.pop() if len(weights) == 1 else None))
            start += length
        return parts
    shards, lengths = getattr(dataset, "shards", None), getattr(dataset, "lengths", None)
    if shards is None or lengths is None or len(shards) != len(lengths) or sum(lengths) != len(dataset):
        raise ValueError("this dataset has no components; combine datasets with wids.concat([…])")
    parts = []
    start = 0
    for (name, weight), run in groupby(
        zip(shards, lengths, strict=True), key=lambda item: (item[0].get("dataset") or "", item[0].get("weight"))
    ):
        length = sum(count for _, count in run)
        if any((part.name, part.weight) == (name, weight) for part in parts):
            raise ValueError(
                f"the shards of component {name!r} are not next to each other; combine datasets with wids.concat"
            )
        parts.append(Component(start, length, name, weight))
        start += length
    return parts


def _find_shares(components: Sequence[Component], weights: Sequence[float] | Mapping[str, float] | None) -> list[int]:
    names = [part.name for part in components]
    if weights is None:
        found = [part.weight for part in components]
        if None in found or not found:
            raise ValueError(f"no weights are given, and the descriptors have none for {names}; give weights=")
    elif isinstance(weights, Mapping):
        if sorted(weights) != sorted(names):
            raise ValueError(f"weights are for {sorted(weights)}, but the components are {names}")
        found = [weights[name] for name in names]
    else:
        found = list(weights)
        if len(found) != len(components):
            raise ValueError(f"weights has {len(found)} entries, but the dataset has {len(components)} components")
    shares = whole_shares(found)  # type: ignore[arg-type]  # None was refused above
    for part, share in zip(components, shares, strict=True):
        if share and not part.length:
            raise ValueError(f"component {part.name!r} has a weight, but no samples; give it weight 0")
    return shares
