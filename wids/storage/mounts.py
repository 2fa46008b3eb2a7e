"""Which files are safe to map: those that no other machine can truncate while they are mapped.

Touching a page of a map that is past the end of its file kills the process (SIGBUS). On Linux, `/proc/self/mountinfo` lists
the mounted file systems (proc_pid_mountinfo(5)); on other systems all files are taken to be safe.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_MOUNT_TABLE = Path("/proc/self/mountinfo")

_NETWORK = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "daos",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "smbfs",
        "virtiofs",
        "wekafs",
    ]
)

_network_by_device: dict[int, bool] = {}
"""Device number to the answer for it. A plain dict without a lock is safe here with threads and forks."""


def is_on_network(path: str) -> bool:
    """Return whether another machine may change the file at `path`; False when the system cannot tell."""
    try:
        device = os.stat(path).st_dev  # noqa: PTH116 - plain strings, as open() takes them
        found = _network_by_device.get(device)
        if found is None:
            table = _MOUNT_TABLE.read_text(encoding="utf-8", errors="surrogateescape")
            found = is_network_type(file_system_type(table, os.path.realpath(path)))
            _network_by_device[device] = found
    except OSError:
        return False
    return found


def is_network_type(file_system: str) -> bool:
    """Return whether files of this type may be changed by other machines, or by a program behind FUSE.

    Examples:
        >>> is_network_type("nfs4"), is_network_type("fuse.sshfs"), is_network_type("ext4")
        (True, True, False)
    """
    return file_system in _NETWORK or file_system.split(".", 1)[0] == "fuse"


def file_system_type(mount_table: str, path: str) -> str:
    r"""Return the type of the file system that holds `path`; empty when the table does not have it.

    Args:
        mount_table: Text in the format of `/proc/self/mountinfo`.
        path: Absolute path without symlinks.

    Examples:
        >>> table = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / /my\\040data rw - nfs4 host:/x rw"
        >>> file_system_type(table, "/my data/a.tar"), file_system_type(table, "/my data2/a.tar")
        ('nfs4', 'ext4')
    """
    longest, found = "", ""
    for line in mount_table.splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 5 or not types[0]:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        holds = path == point or path.startswith(point.rstrip("/") + "/")
        # Of several mounts at the same point the last one counts, because it hides the others.
        if holds and len(point) >= len(longest):
            longest, found = point, types[0]
    return found
