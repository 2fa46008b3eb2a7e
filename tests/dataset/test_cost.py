"""What a sample costs that is at hand, counted in steps of the interpreter: exact, and the same on every machine.

A step is one bytecode of this package; a call is one into Python or C. A change that makes the path half as long again fails
here; one that shortens it should lower the numbers.
"""

from __future__ import annotations

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
    # what is done with a sample of two fields: (steps, calls)
    "dataset[i]": (301, 12),
    "read": (255, 13),
    "view": (256, 13),
    "a batch of one": (340, 20),
}
ROOM = 1.25
"""Versions of Python differ by so much."""


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
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before[0])
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before[1])
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
