"""Descriptors are written whole or not at all, through links, with the right permissions."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from wids.errors import DescriptorError
from wids.tools.files import check_place, make_folder, refuse_url, write_json

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_failed_write_leaves_the_old_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"name": "old"})

    with pytest.raises(DescriptorError, match="JSON cannot hold"):
        write_json(path, {"name": "\udcff"})
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_json(tmp_path / "folder", {})

    assert orjson.loads(path.read_bytes()) == {"name": "old"}
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.json", "folder"]


def test_a_new_descriptor_follows_the_umask_and_a_rewritten_one_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    before = os.umask(0o027)
    try:
        write_json(path, {})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640

    path.chmod(0o604)
    write_json(path, {})
    assert path.stat().st_mode & 0o777 == 0o604


def test_writing_to_a_link_replaces_the_file_that_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "a.json"
    link.symlink_to("real/b.json")

    for number in range(2):
        write_json(link, {"n": number})

        assert link.is_symlink()
        assert orjson.loads((tmp_path / "real/b.json").read_bytes()) == {"n": number}


def test_readers_see_whole_descriptors_while_many_write(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    contents = [{"n": [number] * 20000} for number in range(4)]
    write_json(path, contents[0])

    is_read = threading.Event()

    def write_until_read(content: dict[str, list[int]]) -> None:
        while not is_read.is_set():
            write_json(path, content)

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write_until_read, content) for content in contents]
        try:
            seen: set[int] = set()
            while len(seen) < len(contents):  # until each writer was seen at work
                content = orjson.loads(path.read_bytes())
                assert content in contents
                seen.add(content["n"][0])
        finally:
            is_read.set()

    assert [done.exception() for done in writing] == [None] * 4
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("none/a.json", "there is no folder"), ("folder", "is a folder"), ("a.widx", "the extension of index packs")],
)
def test_check_place_refuses_paths_where_no_descriptor_can_be(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(DescriptorError, match=message):
        check_place(tmp_path / name)


@pytest.mark.parametrize("check", [check_place, make_folder, refuse_url])
def test_no_folder_is_made_of_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: Callable[[Path], None]
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DescriptorError, match=r"^s3://bucket/all\.json: is a URL, and only local files"):
        check(Path("s3://bucket/all.json"))
    assert list(tmp_path.iterdir()) == []
    Path("s3:/bucket").mkdir(parents=True)
    refuse_url(Path("s3:/bucket/all.json"))
