"""A file appears whole or not at all, whatever happens while it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wids.whole_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("before", [None, b"old"], ids=["new file", "replaced file"])
def test_a_file_appears_when_the_block_ends(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "a"
    if before is not None:
        path.write_bytes(before)

    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        seen = path.read_bytes() if path.exists() else None

    assert seen == before
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.writelines(b"half" * (1 // left) for left in (1, 0))

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_longest_name_that_a_file_system_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 255)

    with whole_file(path) as file:
        file.write(b"new")

    assert path.read_bytes() == b"new"
