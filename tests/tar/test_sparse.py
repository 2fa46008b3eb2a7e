"""Sparse members of every format are read as the files they were, whole, streamed or by links; damage is noticed."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tar.archives import END, GNU, find, header, member, padded, pax, places, read_by_tarfile, read_by_wids
from wids.errors import TarFormatError
from wids.source import BufferSource, MmapSource
from wids.tar import TarReader, build_index
from wids.tar.member_file import MemberFile
from wids.tar.reader import MAX_SPARSE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WRITERS = {
    "GNU tar": ["tar", "-cS", "--format=gnu"],
    **{f"GNU tar, pax {v}": ["tar", "-cS", "--format=pax", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0")},
    "bsdtar": ["bsdtar", "-c", "--format=pax"],
}
AFTER = member(b"b.txt", b"bye")


def write_archive(folder: Path, writer: str, files: Sequence[str]) -> Path:
    """Write a tar of these files with an external program."""
    command = WRITERS[writer]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    subprocess.run([*command, "-f", "x.tar", *files], cwd=folder, check=True)
    return folder / "x.tar"


def write_sparse(path: Path, parts: Sequence[tuple[int, bytes]], size: int) -> None:
    with path.open("wb") as file:
        for place, data in parts:
            file.seek(place)
            file.write(data)
        file.truncate(size)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("num_parts", [0, 1, 4, 5, 25, 26, 200], ids=lambda count: f"{count} parts")
@pytest.mark.parametrize("tail", [0, 100_000])
def test_a_sparse_file_of_any_writer_is_read_whole(tmp_path: Path, writer: str, num_parts: int, tail: int) -> None:
    parts = [(number * 65_536 + 4096, b"part %d" % number * 100) for number in range(num_parts)]
    size = (parts[-1][0] + 4096 if parts else 8192) + tail
    write_sparse(tmp_path / "a.bin", parts, size)
    (tmp_path / "b.bin").write_bytes(b"after")

    path = write_archive(tmp_path, writer, ["a.bin", "b.bin"])

    assert path.stat().st_size < max(size, 20_000)
    assert read_by_wids(path) == [(b"a.bin", (tmp_path / "a.bin").read_bytes()), (b"b.bin", b"after")]
    assert read_by_wids(path) == read_by_tarfile(path)
    assert find(path.read_bytes())


def star_sparse(*parts: tuple[int, int], size: int, prefix: bytes = b"", extensions: Sequence[bytes] = ()) -> bytes:
    """Return a sparse member as star writes it; its map is in the header or, with a prefix, in blocks after it."""
    data = b"".join(b"%c" % (97 + number) * length for number, (_, length) in enumerate(parts))
    inline = b"" if prefix else b"".join(b"%011o %011o " % part for part in parts[:4])
    fields = {356: inline, 452: b"%011o " % size, 476: b"00000000000 00000000000 ", 508: b"tar\0"}
    fields |= {345: prefix} if prefix else {}
    fields |= {355: b"\1"} if extensions else {}
    return header(size=len(data), kind=b"S", fields=fields) + b"".join(extensions) + padded(data)


@pytest.mark.parametrize("num_parts", [2, 4, 5, 25, 26, 50])
def test_a_sparse_file_of_star_is_read_as_gnu_tar_reads_it(tmp_path: Path, num_parts: int) -> None:
    parts = [*((number * 1000, 512) for number in range(num_parts - 1)), (num_parts * 1000, 0)]  # ends with a hole
    rest = [parts[start : start + 21] for start in range(4, num_parts, 21)]
    extensions = [
        b"".join(b"%011o %011o " % part for part in some).ljust(504, b"\0")
        + (b"\1" if some is not rest[-1] else b"\0").ljust(8, b"\0")
        for some in rest
    ]
    content = star_sparse(*parts, size=num_parts * 1000, extensions=extensions) + AFTER + END
    (tmp_path / "x.tar").write_bytes(content)
    subprocess.run(["tar", "-xf", "x.tar"], cwd=tmp_path, check=True)

    assert read_by_wids(tmp_path / "x.tar") == [
        (b"a.txt", (tmp_path / "a.txt").read_bytes()),
        (b"b.txt", b"bye"),
    ]


def test_a_hard_link_to_a_sparse_file_has_its_bytes(tmp_path: Path) -> None:
    write_sparse(tmp_path / "a.bin", [(100_000, b"data")], 300_000)
    os.link(tmp_path / "a.bin", tmp_path / "b.bin")

    path = write_archive(tmp_path, "GNU tar", ["a.bin", "b.bin"])

    assert [data for _, data in read_by_wids(path)] == [(tmp_path / "a.bin").read_bytes()] * 2


def test_a_sparse_file_too_large_for_memory_is_streamed(tmp_path: Path) -> None:
    size = 40 << 30
    write_sparse(tmp_path / "a.bin", [(0, b"begin"), (5 << 30, b"middle"), (size - 3, b"end")], size)
    source = MmapSource(str(write_archive(tmp_path, "GNU tar", ["a.bin"])))
    reader = TarReader(source, build_index(source))

    with pytest.raises(ValueError, match=rf"'a', field '\.bin': is sparse and has {size} bytes, more than the "):
        reader.read(0, bytes)
    with reader.open(0, ".bin") as file:
        assert file.read(7) == b"begin\0\0"
        assert file.seek((5 << 30) - 2) == (5 << 30) - 2
        assert file.read(10) == b"\0\0middle\0\0"
        file.seek(-5, io.SEEK_END)
        assert file.read() == b"\0\0end"
    assert size > MAX_SPARSE_BYTES


segments = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 200)), max_size=12)


@given(segments, st.integers(0, 500), st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 900)), max_size=20))
def test_a_member_file_reads_as_the_plain_file_from_any_offset(
    gaps: list[tuple[int, int]], tail: int, reads: list[tuple[int, int]]
) -> None:
    stored = random.Random(0).randbytes(sum(length for _, length in gaps))
    plain = bytearray()
    laid_out = []
    place = 0
    for gap, length in gaps:
        plain += bytes(gap) + stored[place : place + length]
        laid_out.append((len(plain) - length, place, length))
        place += length
    plain += bytes(tail)
    file = MemberFile(BufferSource(stored, "a.tar"), laid_out, len(plain))

    for start, length in reads:
        file.seek(start)
        assert file.read(length) == plain[start : start + length]
        file.seek(start)
        assert file.readall() == plain[start:]
        assert file.tell() == max(start, len(plain))


def test_a_sparse_file_of_100_000_parts_is_read_in_small_pieces() -> None:
    num_parts = 100_000
    stored = random.Random(0).randbytes(num_parts * 8)
    file = MemberFile(
        BufferSource(stored, "a.tar"), [(n * 16, n * 8, 8) for n in range(num_parts)], num_parts * 16
    )  # would take minutes if every read looked at all parts

    pieces = b"".join(iter(lambda: file.read(128), b""))

    assert b"".join(pieces[place : place + 8] for place in range(0, len(pieces), 16)) == stored


def pax_sparse_10(payload: bytes, *, size: int = 99, stored: int | None = None) -> bytes:
    """Return a sparse member of format 1.0 whose map and data are `payload`."""
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"%d" % size)]
    return pax(*records) + member(data=payload, size=stored)


def gnu_sparse(*parts: tuple[int, int], size: int, stored: int = 10, more: bool = False) -> bytes:
    """Return a sparse member of GNU's old format."""
    slots = b"".join(b"%011o\0%011o\0" % part for part in parts)
    fields = {386: slots, 482: b"\1" if more else b"\0", 483: b"%011o\0" % size}
    return member(data=b"x" * stored, kind=b"S", magic=GNU, fields=fields)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (gnu_sparse((0, 5), (4, 5), size=99), "its part at 4 of 5 bytes does not fit into the file of 99 bytes"),
        (gnu_sparse((50, 5), (0, 5), size=99), "its part at 0 of 5 bytes does not fit"),
        (gnu_sparse((0, 10), size=9), "its part at 0 of 10 bytes does not fit into the file of 9 bytes"),
        (gnu_sparse((0, 11), size=99), "its parts have 11 bytes, but 10 are stored"),
        (pax((b"GNU.sparse.map", b"0,5")) + member(), "its size is not given"),
        (pax((b"GNU.sparse.name", b"s")) + member(), "its size is not given"),
        (pax((b"GNU.sparse.size", b"99")) + member(), "its map is missing"),
        (pax((b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0")) + member(), "odd number of entries"),
        (pax((b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0,5,")) + member(), "is not a decimal number"),
        (pax((b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0,-5")) + member(), "is not a decimal number"),
        (pax((b"GNU.sparse.size", b"x"), (b"GNU.sparse.map", b"0,5")) + member(), "is not a decimal number"),
        (pax((b"GNU.sparse.size", b"99"), (b"GNU.sparse.major", b"2")) + member(), r"its format 2\.0 is unknown"),
        (pax((b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0,%d" % 2**63)) + member(), "more than a file can"),
        (pax_sparse_10(b"1\n0\n5\n"), "its parts have 5 bytes, but -506 are stored"),
        (pax_sparse_10(b"2\n0\n5\n".ljust(512, b"\0") + b"hello"), "its map has a line without end"),
        (pax_sparse_10(b"9\n" + b"0\n0\n" * 7), "its map has a line without end"),
        (pax_sparse_10(b"128\n" + b"1\n" * 254), "its map does not end before its data"),
        (pax_sparse_10(b"9" * 40 + b"\n"), "is more than a file can have"),
        (pax_sparse_10(b"1048577\n"), "it has 1048577 parts, more than 1048576"),
        (pax_sparse_10(b"x\n"), "is not a decimal number"),
        (pax_sparse_10(b""), "its map does not end before its data"),
    ],
    ids=[
        "overlap", "descending", "beyond the size", "beyond what is stored", "no size", "a name alone",
        "no map", "odd", "empty number", "negative", "size of letters", "format", "beyond 2**63", "shorter than its map",
        "map too short", "zeros in the map", "map as long as the data", "huge count", "too many parts", "letters",
        "nothing",
    ],
)  # fmt: skip
def test_an_inconsistent_sparse_map_is_refused(damaged: bytes, message: str) -> None:
    with pytest.raises(TarFormatError, match=rf"the sparse member whose header is at byte \d+: .*{message}"):
        find(AFTER + damaged + AFTER + END)


def test_a_sparse_map_that_runs_past_the_end_of_the_archive_is_refused() -> None:
    extension = b"".join(b"%011o\0%011o\0" % (0, 0) for _ in range(21)).ljust(504, b"\0") + b"\1" + bytes(7)

    with pytest.raises(TarFormatError, match="the file ends at byte"):
        find(gnu_sparse((0, 5), size=99, stored=0, more=True) + extension * 50)


def test_a_sparse_file_without_parts_is_one_hole_even_if_bytes_are_stored() -> None:
    assert places(gnu_sparse(size=99) + AFTER + END) == [(b"a.txt", 512, 99), (b"b.txt", 1536, 3)]


def test_members_after_sparse_members_are_found() -> None:
    content = gnu_sparse((5, 10), size=20) + pax_sparse_10(b"1\n0\n5\n".ljust(512, b"\0") + b"hello") + AFTER + END

    assert places(content) == [(b"a.txt", 512, 20), (b"a.txt", 3072, 99), (b"b.txt", 4096, 3)]


def test_a_global_comment_that_names_a_sparse_map_makes_no_member_sparse(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "GNU.sparse.map"}) as tar:
        tar.addfile(tarfile.TarInfo("a.txt"))

    assert read_by_wids(path) == [(b"a.txt", b"")]
