"""Unfinished files and folders are made while others look for leftovers of dead processes."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from wids.storage.part_file import PartFile, remove_leftovers, scratch_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def use_file(folder: Path) -> None:
    with PartFile(folder, "a") as part:
        part.write(b"content")
        part.publish(folder / "published")


def use_folder(folder: Path) -> None:
    with scratch_path(folder) as path:
        path.write_bytes(b"content")
        path.rename(folder / "published")


@pytest.mark.parametrize("use", [use_file, use_folder])
@pytest.mark.parametrize("moment", ["opened", "locked"])
def test_writing_succeeds_when_a_new_file_is_removed_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], None], moment: str
) -> None:
    """At the moment between two calls, another process removes what is not locked yet."""
    removed: list[bool] = []

    def after_another(call: Any) -> Any:
        def wait_and_call(*arguments: Any, **more: Any) -> Any:
            if not removed:
                removed.append(True)
                remove_leftovers(tmp_path)
            return call(*arguments, **more)

        return wait_and_call

    module, name = {"opened": (os, "open"), "locked": (fcntl, "flock")}[moment]
    monkeypatch.setattr(module, name, after_another(getattr(module, name)))

    use(tmp_path)

    assert removed
    assert [path.name for path in tmp_path.iterdir()] == ["published"]
    assert (tmp_path / "published").read_bytes() == b"content"


@pytest.fixture
def cleaner(tmp_path: Path) -> Iterator[None]:
    """Removes leftovers all the time, in another thread."""
    done = threading.Event()

    def clean() -> None:
        while not done.is_set():
            remove_leftovers(tmp_path)

    thread = threading.Thread(target=clean)
    thread.start()
    yield
    done.set()
    thread.join()


@pytest.mark.usefixtures("cleaner")
@pytest.mark.parametrize("use", [use_file, use_folder])
def test_files_in_use_are_not_removed_as_leftovers(tmp_path: Path, use: Callable[[Path], None]) -> None:
    for _ in range(300):
        use(tmp_path)
        (tmp_path / "published").unlink()
