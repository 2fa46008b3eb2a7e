"""Write the orders of wids 0.1.11 to golden.json: the first indices and a digest of each.

python tests/sampling/make_golden.py FOLDER_OF_WIDS_0_1_11
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from pathlib import Path
from typing import Any


def digest(indices: list[int]) -> str:
    """Return a digest of an order."""
    return hashlib.sha256(json.dumps(indices).encode()).hexdigest()[:16]


def cases_of(sampler: Any, kind: str, n: int, kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first three epochs of a sampler of the old package."""
    orders = [list(sampler) for _ in range(3)]
    return [
        {"kind": kind, "n": n, "kwargs": kwargs, "epoch": epoch, "head": order[:5], "digest": digest(order)}
        for epoch, order in enumerate(orders)
    ]


def main() -> None:
    """Run the old package and write its orders."""
    sys.path.insert(0, sys.argv[1])
    from wids import wids as old

    cases: list[dict[str, Any]] = []
    for n, chunksize, seed, shuffle, first in itertools.product(
        (0, 1, 10, 1003), (1, 7, 100), (0, 5), (True, False), (True, False)
    ):
        kwargs = {"chunksize": chunksize, "seed": seed, "shuffle": shuffle, "shufflefirst": first}
        cases += cases_of(old.ChunkedSampler(range(n), **kwargs), "ChunkedSampler", n, kwargs)  # type: ignore[arg-type]
    for lengths, seed, first in itertools.product(([], [3], [3, 0, 4, 10]), (0, 5), (True, False)):
        options = {"lengths": lengths, "seed": seed, "shufflefirst": first}
        cases += cases_of(old.ShardListSampler(None, **options), "ShardListSampler", 0, options)  # type: ignore[arg-type]
    Path(__file__).with_name("golden.json").write_text(json.dumps(cases, indent=0))


if __name__ == "__main__":
    main()
