"""Which folder the disk cache is, and who may enter it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from wids.errors import FetchError
from wids.storage import folder as folder_module
from wids.storage.folder import CacheFolder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's temporary folder; no environment variable names another cache."""
    monkeypatch.delenv("WIDS_CACHE", raising=False)
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_default_is_private_and_in_the_temporary_folder(temporary: Path) -> None:
    folder = CacheFolder(None)
    folder.make()

    assert Path(folder.path) == temporary / f"wids-{os.getuid()}"
    assert stat.S_IMODE(Path(folder.path).stat().st_mode) == 0o700


def test_the_default_is_in_the_temporary_folder_of_a_slurm_job(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TMPDIR", str(temporary / "job"))

    assert CacheFolder(None).path == str(temporary / "job" / f"wids-{os.getuid()}")


def test_the_argument_takes_precedence_over_the_environment(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDS_CACHE", str(temporary / "named"))

    assert CacheFolder(None).path == str(temporary / "named")
    assert CacheFolder(str(temporary / "given")).path == str(temporary / "given")


def test_an_explicit_folder_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        CacheFolder(str(tmp_path / "shared")).make()
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o775


def test_the_cache_folder_is_not_created_before_it_is_needed(temporary: Path) -> None:
    assert CacheFolder(None).path

    assert not list(temporary.iterdir())


def test_a_default_folder_that_others_may_enter_is_refused(temporary: Path) -> None:
    path = temporary / f"wids-{os.getuid()}"
    path.mkdir()
    path.chmod(0o755)

    with pytest.raises(FetchError, match="mode 755, expected 700"):
        CacheFolder(None).make()


def test_a_symlink_in_place_of_the_default_folder_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"wids-{os.getuid()}").symlink_to(temporary / "elsewhere")

    with pytest.raises(FetchError, match="is not a folder that belongs to user"):
        CacheFolder(None).make()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(temporary: Path) -> None:
    path = temporary / "wids-0"
    path.mkdir(mode=0o700)
    os.chown(path, 12345, 12345)

    with pytest.raises(FetchError, match="is not a folder that belongs to user"):
        CacheFolder(None).make()


def test_a_folder_that_cannot_be_created_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(FetchError, match=r"file/cache: .*WIDS_CACHE"):
        CacheFolder(str(tmp_path / "file" / "cache")).make()


def test_each_host_has_its_own_subfolder_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(folder_module, "is_on_network", lambda path: path == str(tmp_path))
    names = []
    for host in ("node-1", "node-2.local"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        folder_module._host_folders.clear()
        names += [CacheFolder(str(tmp_path / "new" / "cache")).path for _ in range(2)]

    assert names == [
        str(tmp_path / "new" / "cache" / host) for host in ("node-1", "node-1", "node-2.local", "node-2.local")
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "is on a network file system; this host keeps its shards in" in caplog.text
