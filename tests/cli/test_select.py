"""`widsindex select` writes what a condition over the columns is true for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import wids
from tests.support import write_descriptor, write_tar

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def train(folder: Path, run: Run) -> str:
    """`train.json` with the columns `width` and `similarity`."""
    members = [(f"{n:03d}.json", json.dumps({"width": n, "similarity": n % 10 / 10}).encode()) for n in range(100)]
    shards = [write_tar(folder / f"{part}.tar", members[part * 50 : part * 50 + 50]) for part in range(2)]
    write_descriptor(folder / "train.json", [{"url": shard.name, "nsamples": 50} for shard in shards])
    assert run("columns", "train.json", "--from-json", "width,similarity")[0] == 0
    return "train.json"


def test_select_writes_a_descriptor_that_keeps_the_columns(train: str, run: Run) -> None:
    result = run("select", train, "--where", "width >= 10 and similarity > 0.7", "-o", "sub.json")

    assert result == (0, "sub.json: 18 of 100 samples\n", "")
    expected = [n for n in range(10, 100) if n % 10 / 10 > 0.7]
    selected = wids.ShardListDataset("sub.json")
    assert [sample["json"]["width"] for sample in selected] == expected
    assert selected.column("width").tolist() == expected  # type: ignore[union-attr]
    assert run("select", "sub.json", "--where", "width < 20", "-o", "less.json") == (
        0,
        "less.json: 2 of 18 samples\n",
        "",
    )
    assert [sample["json"]["width"] for sample in wids.ShardListDataset("less.json")] == [18, 19]
    assert json.loads(Path("sub.json").read_text())["columns"]["width"] == "train.columns/width.arrow"


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("widht > 1", "'widht > 1', character 1: there is no column 'widht'; did you mean 'width'?"),
        ("width > __import__('os').getpid()", "character 9: only abs, len, max, min can be called"),
        ("width >", "character 8: invalid syntax"),
        ("width > 'a'", "character 1: a number is compared with text"),
    ],
)
def test_an_invalid_condition_is_a_one_line_error_with_its_position(
    train: str, run: Run, where: str, what: str
) -> None:
    status, output, errors = run("select", train, "--where", where, "-o", "sub.json")

    assert (status, output) == (1, "")
    assert errors.startswith("widsindex: ")
    assert what in errors
    assert errors.count("\n") == 1
    assert not Path("sub.json").exists()


def test_a_missing_column_file_is_named_in_the_error(train: str, run: Run) -> None:
    Path("train.columns/width.arrow").unlink()

    status, _, errors = run("select", train, "--where", "width > 1", "-o", "sub.json")

    assert status == 1
    assert "train.columns/width.arrow" in errors
