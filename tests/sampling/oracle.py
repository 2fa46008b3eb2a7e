"""The order of `DistributedChunkedSampler`, computed the long way: nested loops over lists, with CPython's `random`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from wids.sampling import iterate_ranges

STRIDE = 1289738273


@dataclass(frozen=True)
class Case:
    """A sampler's arguments."""

    n: int
    lanes: int
    chunksize: int
    seed: int = 0
    shuffle: bool = True
    shufflefirst: bool = False
    drop_last: bool = False
    even: bool = True
    repartition: bool = False

    def kwargs(self) -> dict[str, Any]:
        return {
            "num_canonical_replicas": self.lanes, "chunksize": self.chunksize, "seed": self.seed, "shuffle": self.shuffle,
            "shufflefirst": self.shufflefirst, "drop_last": self.drop_last, "even": self.even,
            "repartition_each_epoch": self.repartition,
        }  # fmt: skip

    @property
    def length(self) -> int:
        return self.n // self.lanes if self.drop_last else (self.n + self.lanes - 1) // self.lanes


def lanes_of(case: Case, epoch: int) -> list[list[int]]:
    """Return the indices of each lane, in its order."""
    bounds = [(min(lane * case.length, case.n), min((lane + 1) * case.length, case.n)) for lane in range(case.lanes)]
    move = case.shuffle and (case.shufflefirst or epoch > 0)
    lanes = []
    for number_of_lane, (start, stop) in enumerate(bounds):
        rng = random.Random(case.seed + STRIDE * epoch)
        if not case.repartition:
            chunks = [(low, min(low + case.chunksize, stop)) for low in range(start, stop, case.chunksize)]
            lanes.append(list(iterate_ranges(chunks, rng, case.shuffle, move)))
            continue
        chunks = [(low, min(low + case.chunksize, case.n)) for low in range(0, case.n, case.chunksize)]
        turn = 0
        if move and case.n:
            rng.shuffle(chunks)
            turn = rng.randrange(case.n)
        ring = [(number, index) for number, chunk in enumerate(chunks * 3) for index in range(*chunk)]
        pieces: dict[int, list[int]] = {}
        for number, index in ring[turn + start : turn + stop]:
            pieces.setdefault(number, []).append(index)
        lane: list[int] = []
        for count, piece in enumerate(pieces.values()):
            random.Random((case.seed + STRIDE * epoch << 64) + (number_of_lane << 32) + count).shuffle(piece)
            lane += piece
        lanes.append(lane)
    return lanes


def places_of(case: Case, epoch: int) -> list[int | None]:
    """Return the index at each place of an epoch; None where there is none."""
    lanes = lanes_of(case, epoch)
    if case.even and any(lanes):
        last = max(number for number, lane in enumerate(lanes) if lane)
        lanes = [lane or lanes[last] for lane in lanes]
        lanes = [[lane[step % len(lane)] for step in range(case.length)] for lane in lanes]
    return [lane[step] if step < len(lane) else None for step in range(case.length) for lane in lanes]


def dealt(case: Case, epoch: int, start: int, ranks: int) -> list[list[int]]:
    """Return the indices that each rank yields from a place on."""
    places = places_of(case, epoch)
    left = max(0, len(places) - start)
    rows = left // ranks if case.drop_last else (left + ranks - 1) // ranks
    whole = [[start + row * ranks + rank for row in range(rows)] for rank in range(ranks)]
    if case.even:
        return [[places[place % len(places)] for place in row] for row in whole]  # type: ignore[misc]
    return [[index for place in row if place < len(places) and (index := places[place]) is not None] for row in whole]
