"""A truncated shard is refused if it ends inside a header or data, and readable with a warning if between members."""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from tests.tar.archives import FORMATS, find
from wids.errors import TarFormatError
from wids.source import BufferSource
from wids.tar import TarReader, build_index, scan_members

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = {
    "GNU tar, posix": ["tar", "--format=posix"],
    "GNU tar, gnu": ["tar", "--format=gnu"],
    "bsdtar, pax": ["bsdtar", "--format=pax"],
}
FILES = {f"{'long' * 30 if number % 3 == 1 else ''}{number}.txt": b"%d" % number * 350 * number for number in range(6)}


@pytest.fixture(params=[*FORMATS, *PROGRAMS])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """An archive of a few members, some with long names where the format has those."""
    if request.param in FORMATS:
        with tarfile.open(tmp_path / "x.tar", "w", format=FORMATS[request.param]) as tar:
            for name, data in FILES.items():
                info = tarfile.TarInfo(name if request.param != "ustar" else name[-90:])
                info.size, info.mtime = len(data), 1.5 if request.param == "pax" else 1
                tar.addfile(info, io.BytesIO(data))
        return (tmp_path / "x.tar").read_bytes()
    command = PROGRAMS[request.param]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return subprocess.run([*command, "-cf", "-", *FILES], cwd=tmp_path, check=True, stdout=subprocess.PIPE).stdout


def ends_of_members(content: bytes) -> list[int]:
    """Return where each member ends, including padding, as CPython's `tarfile` reads it."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return [info.offset_data + -(-info.size // 512) * 512 for info in tar]


def test_an_archive_cut_at_a_block_is_refused_unless_cut_between_members(whole: bytes) -> None:
    ends = ends_of_members(whole)
    everything = find(whole)

    for cut in range(512, len(whole) + 1, 512):
        if cut in ends or cut > ends[-1]:
            assert find(whole[:cut]) == everything[: sum(end <= cut for end in ends)]
            source = BufferSource(whole[:cut], "cut.tar")
            notes = TarReader(source, build_index(source)).notes
            assert bool(notes) == (cut in ends)
            assert all("may have been cut between two members" in note for note in notes)
        else:
            with pytest.raises(TarFormatError, match=rf"the file ends at byte {cut}, inside|describes is missing"):
                find(whole[:cut])


def test_an_archive_cut_inside_a_block_is_refused_unless_cut_after_all_members(whole: bytes) -> None:
    ends = ends_of_members(whole)
    everything = find(whole)

    for cut in random.Random(0).sample([cut for cut in range(1, len(whole)) if cut % 512], 300):
        if cut > ends[-1]:
            assert find(whole[:cut]) == everything
        else:
            with pytest.raises(TarFormatError, match=r"byte \d+") as refused:
                find(whole[:cut])
            assert all(int(number) <= len(whole) for number in re.findall(r"byte (\d+)", str(refused.value)))


@pytest.mark.parametrize("length", [1, 100, 511])
def test_zeros_that_do_not_fill_a_block_are_refused(length: int) -> None:
    with pytest.raises(
        TarFormatError, match=rf"not a tar archive: the file ends at byte {length}, inside the header at byte 0"
    ):
        scan_members(BufferSource(bytes(length), "a.tar"))
