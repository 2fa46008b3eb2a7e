"""`widsindex diff`, and what other commands print about selections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from wids.tools import create_index, write_selection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]


def test_diff_lists_differences_and_exits_with_1(run: Run, shards: list[str], folder: Path) -> None:
    create_index(shards, folder / "a.json")
    create_index(shards[:2], folder / "b.json")

    assert run("diff", "a.json", "a.json") == (
        0, "0 shards added, 0 removed, 0 changed; 0 samples added, 0 removed, 0 moved to another shard\n", "",
    )  # fmt: skip
    status, output, errors = run("diff", "a.json", "b.json")
    assert (status, errors) == (1, "")
    assert output.splitlines() == [
        "shard  removed  shard-0002.tar",
        "sample removed  000003",
        "sample removed  000004",
        "0 shards added, 1 removed, 0 changed; 0 samples added, 2 removed, 0 moved to another shard",
    ]


def test_diff_prints_differences_as_json(run: Run, shards: list[str], folder: Path) -> None:
    create_index(shards, folder / "a.json")
    create_index(shards[1:], folder / "b.json")

    status, output, _ = run("diff", "b.json", "a.json", "--json")
    found = json.loads(output)

    assert (status, found["different"]) == (1, True)
    assert found["shards"] == {"added": ["shard-0000.tar"], "removed": [], "changed": {}, "reordered": False}
    assert found["samples"]["added"] == {"count": 3, "examples": ["000000", "000001", "000002"]}


def test_diff_exits_with_2_for_an_error(run: Run, shards: list[str], folder: Path) -> None:
    create_index(shards, folder / "a.json")

    status, output, errors = run("diff", "a.json", "nowhere.json")

    assert (status, output) == (2, "")
    assert errors.startswith("widsindex: nowhere.json")
    assert errors.count("\n") == 1
    assert run("info", "nowhere.json")[0] == 1


def test_info_counts_selected_samples_and_recount_refuses_a_selection(
    run: Run, shards: list[str], folder: Path
) -> None:
    create_index(shards, folder / "a.json")
    write_selection(folder / "a.json", [4, 1], folder / "small.json")

    lines = [line.split() for line in run("info", "small.json")[1].splitlines()]
    assert ["samples:", "5"] in lines
    assert ["selected:", "2"] in lines
    status, _, errors = run("update", "small.json", "--recount")
    assert (status, "select again" in errors) == (1, True)
    assert run("sample", "small.json", "0")[1].count("000004") >= 1
