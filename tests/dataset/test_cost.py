"""The cost of reading a sample from an open shard, in steps of the interpreter: exact, and the same on every machine.

A step is one bytecode of this package; a call is one into Python or C. A change that makes the path a quarter longer
fails here; one that makes it shorter should lower the numbers.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.support import write_shards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

COSTS = {
    # how a sample of two fields is read: (steps, calls)
    "dataset[i]": (301, 12),
    "read": (255, 13),
    "view": (256, 13),
    "a batch of one": (340, 20),
}
ROOM = 1.25
"""Factor by which versions of Python may differ."""


def count(function: Callable[[], Any]) -> tuple[int, int]:
    """Return how many bytecodes and calls a function takes."""
    steps = calls = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    def profile(_frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.gettrace(), sys.getprofile()
    gc.collect()
    gc.disable()  # else finalizers of objects from earlier tests could be counted
    try:
        sys.settrace(trace)
        function()
        sys.settrace(before[0])
        sys.setprofile(profile)
        function()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
        gc.enable()
    return steps, calls


@pytest.mark.parametrize("what", COSTS)
def test_a_sample_at_hand_costs_no_more_than_it_did(tmp_path: Path, what: str) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [20, 20]), transformations=[])
    functions: dict[str, Callable[[], Any]] = {
        "dataset[i]": lambda: dataset[33],
        "read": lambda: dataset.read(33),
        "view": lambda: dataset.view(33),
        "a batch of one": lambda: dataset.__getitems__([33]),
    }
    for _ in range(20):  # until what is in memory is taken to be
        functions[what]()
    steps, calls = count(functions[what])

    assert (steps <= COSTS[what][0] * ROOM, calls <= COSTS[what][1] * ROOM) == (True, True), (steps, calls)
    assert steps > 50


@pytest.mark.parametrize("what", COSTS)
@pytest.mark.parametrize("kind", ["indices", "slice"])
def test_a_sample_of_a_view_costs_at_most_a_third_more(tmp_path: Path, what: str, kind: str) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [20, 20]), transformations=[])
    view = dataset.select([3, 33, 34, 7]) if kind == "indices" else dataset[32:]
    costs = []
    for data, index in ((dataset, 33), (view, 1)):
        functions: dict[str, Callable[[], Any]] = {
            "dataset[i]": lambda data=data, index=index: data[index],  # type: ignore[misc]
            "read": lambda data=data, index=index: data.read(index),  # type: ignore[misc]
            "view": lambda data=data, index=index: data.view(index),  # type: ignore[misc]
            "a batch of one": lambda data=data, index=index: data.__getitems__([index]),  # type: ignore[misc]
        }
        functions[what]()
        costs.append(count(functions[what]))

    assert costs[1][0] <= 1.3 * costs[0][0], costs
