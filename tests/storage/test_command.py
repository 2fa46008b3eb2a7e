"""Shards that are the output of a command (`pipe:`)."""

from __future__ import annotations

import shlex
import traceback
from typing import TYPE_CHECKING

import pytest

from tests.storage.reading import content, is_running, shards, unfinished, wait_until
from wids.errors import FetchError
from wids.storage import Storage, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = b"a line of data\n" * 1000
SECRET = "hunter2"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    path = tmp_path / "it's the original.tar"
    path.write_bytes(DATA)
    return path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("cat {path}", id="standard output"),
        pytest.param("cp {path} {{local}}", id="file"),
        pytest.param("awk '{{print}}' {path}", id="other braces"),
        pytest.param("awk '{{print}}' {path} > {{local}}", id="other braces and file"),
    ],
)
def test_the_output_of_a_command_is_the_shard(
    command: str, original: Path, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    url = "pipe:" + command.format(path=shlex.quote(str(original)))

    assert content(make_storage(allow_pipe=True).open({"url": url, "filesize": len(DATA)})) == DATA
    assert not unfinished(cache_dir)


def test_a_cache_folder_with_a_space_can_be_written(original: Path, tmp_path: Path) -> None:
    storage = Storage(StorageOptions(cache_dir=str(tmp_path / "my cache; x"), allow_pipe=True))

    assert content(storage.open({"url": f"pipe:cp {shlex.quote(str(original))} {{local}}"})) == DATA


def test_a_command_is_refused_by_default(tmp_path: Path, make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(FetchError, match=r"allow_pipe=True or set WIDS_ALLOW_PIPE=1"):
        make_storage().open({"url": f"pipe:touch {tmp_path}/ran"})
    with pytest.raises(FetchError, match="refused"):
        make_storage().read(f"pipe:touch {tmp_path}/ran")

    assert not (tmp_path / "ran").exists()


def test_the_environment_allows_commands(
    original: Path, make_storage: Callable[..., Storage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDS_ALLOW_PIPE", "1")

    assert make_storage().read(f"pipe:cat {shlex.quote(str(original))}") == DATA


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("cat {path}; exit 3", "exit status 3"),
        ("exit 3", "exit status 3"),
        ("cp {path} {{local}}; exit 4", "exit status 4"),
        ("cat {path}; kill -9 $$", "signal 9"),
        ("no-such-program-at-all 2>/dev/null", "exit status 127"),
    ],
)
def test_a_failed_command_is_an_error_and_leaves_no_file(
    command: str, how: str, original: Path, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    url = "pipe:" + command.format(path=shlex.quote(str(original)))

    with pytest.raises(FetchError, match=how):
        make_storage(allow_pipe=True).open({"url": url})

    assert not shards(cache_dir)
    assert not unfinished(cache_dir)


def test_a_command_that_writes_no_file_is_an_error(make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(FetchError, match="did not write the file"):
        make_storage(allow_pipe=True).open({"url": "pipe:true {local}"})


def test_a_command_whose_output_is_too_long_is_killed(make_storage: Callable[..., Storage], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    url = f"pipe:sh -c 'echo $$ > {pid_file}; exec yes'"

    with pytest.raises(ValueError, match="more bytes than the 10"):
        make_storage(allow_pipe=True).open({"url": url, "filesize": 10})

    pid = int(pid_file.read_text())
    wait_until(lambda: not is_running(pid))


def test_arguments_of_a_command_are_not_shown_in_errors(make_storage: Callable[..., Storage]) -> None:
    with pytest.raises(FetchError) as caught:
        make_storage(allow_pipe=True).open({"url": "pipe:test -z " + SECRET})

    assert SECRET not in "".join(traceback.format_exception(caught.value))
