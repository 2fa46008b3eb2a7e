"""Files on network file systems are recognized by the table of mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from wids.storage import mounts

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:40 / /mnt/a rw shared:1 master:2 - autofs systemd-1 rw
31 30 0:41 / /mnt/a rw - nfs4 server:/export rw
32 21 0:42 / /mnt/a/fast rw - lustre mds@tcp:/scratch rw
33 21 0:43 / /home/me/remote rw - fuse.sshfs me@host: rw
not a line of the table
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/0.tar", "ext4"),
        ("/mnt/a/0.tar", "nfs4"),
        ("/mnt/a/fast/0.tar", "lustre"),
        ("/mnt/a/faster/0.tar", "nfs4"),
        ("/mnt/ab/0.tar", "ext4"),
        ("/home/me/remote/0.tar", "fuse.sshfs"),
    ],
)
def test_the_nearest_and_latest_mount_counts(path: str, kind: str) -> None:
    assert mounts.file_system_type(TABLE, path) == kind


def test_a_file_on_a_network_file_system_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)
    monkeypatch.setattr(mounts, "_network_by_device", {})

    assert mounts.is_on_network(str(table))


def test_a_file_counts_as_local_when_there_is_no_mount_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", tmp_path / "missing")
    monkeypatch.setattr(mounts, "_network_by_device", {})

    assert not mounts.is_on_network(str(tmp_path))
