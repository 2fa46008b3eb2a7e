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


def ways_to_read(dataset: wids.ShardListDataset, index: int) -> dict[str, Callable[[], Any]]:
    """Return functions that read one sample in each of the ways of `COSTS`."""
    return {
        "dataset[i]": lambda: dataset[index],
        "read": lambda: dataset.read(index),
        "view": lambda: dataset.view(index),
        "a batch of one": lambda: dataset.__getitems__([index]),
    }


def cost_in_memory(dataset: wids.ShardListDataset, function: Callable[[], Any]) -> tuple[int, int]:
    """Return the steps and calls of reading samples while the dataset does not expect reads from a disk.

    Any thread of the process may read from a disk at any time; for some batches after that, reading takes more steps.
    """
    disk_reads = dataset._cache._disk_reads
    function()  # opens the shard
    while True:
        while disk_reads.are_likely():
            function()
        cost = count(function)
        if not disk_reads.are_likely():
            return cost


@pytest.mark.parametrize("way", COSTS)
def test_reading_a_sample_of_an_open_shard_takes_no_more_steps_than_recorded(tmp_path: Path, way: str) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [20, 20]), transformations=[])

    steps, calls = cost_in_memory(dataset, ways_to_read(dataset, 33)[way])

    assert (steps <= COSTS[way][0] * ROOM, calls <= COSTS[way][1] * ROOM) == (True, True), (steps, calls)
    assert steps > 50


@pytest.mark.parametrize("way", COSTS)
@pytest.mark.parametrize("kind", ["indices", "slice"])
def test_reading_a_sample_of_a_view_takes_at_most_a_third_more_steps(tmp_path: Path, way: str, kind: str) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [20, 20]), transformations=[])
    view = dataset.select([3, 33, 34, 7]) if kind == "indices" else dataset[32:]

    whole_steps, _ = cost_in_memory(dataset, ways_to_read(dataset, 33)[way])
    view_steps, _ = cost_in_memory(view, ways_to_read(view, 1)[way])

    assert view_steps <= 1.3 * whole_steps
