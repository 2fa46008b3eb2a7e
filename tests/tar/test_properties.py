"""Laws of the scan, compared with CPython's `tarfile`: what any writer wrote reads back, and damage stays local."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.tar.archives import FORMATS, find, pax, places, read_by_tarfile, read_by_wids
from wids.errors import TarFormatError
from wids.source import BufferSource
from wids.tar import Members, scan_members
from wids.tar.member_file import read_member

# Characters that writers and readers may treat specially, and all others.
characters = st.sampled_from("./ \\=-_~%\n\t\"'*") | st.characters(exclude_characters="\0", exclude_categories=["Cs"])
texts = st.text(characters, min_size=1, max_size=60) | st.text("ab.", min_size=90, max_size=240)
names = texts.filter(lambda name: name.strip("/") == name and len(name.encode()) < 400)
sizes = st.integers(0, 1200) | st.sampled_from([0, 1, 511, 512, 513, 1024])
contents = st.builds(lambda size, seed: bytes([seed]) * size, sizes, st.integers(0, 255))


def write_by_tarfile(written: list[tuple[str, bytes]], tar_format: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=FORMATS[tar_format]) as tar:
        for name, data in written:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1.5 if tar_format == "pax" else 1
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@settings(max_examples=150)
@given(st.lists(st.tuples(names, contents), max_size=30), st.integers(1, 8), st.sampled_from(["gnu", "pax"]))
def test_members_written_by_tarfile_read_back(written: list[tuple[str, bytes]], repeats: int, tar_format: str) -> None:
    # Repeats give enough members for the scan to find runs of them.
    content = write_by_tarfile(written * repeats, tar_format)

    found = [(name, content[offset : offset + size]) for name, offset, size in places(content)]

    assert found == [(name.encode(), data) for name, data in written] * repeats


@settings(max_examples=100)
@given(st.lists(st.tuples(st.text("abc./", min_size=1, max_size=250), contents), max_size=60))
def test_ustar_members_written_by_tarfile_read_back(written: list[tuple[str, bytes]]) -> None:
    named = []
    for name, data in written:
        try:
            tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)
        except ValueError:
            continue  # too long a name, which cannot be split at a slash
        if not name.endswith("/"):
            named.append((name, data))
    content = write_by_tarfile(named, "ustar")

    found = [(name, content[offset : offset + size]) for name, offset, size in places(content)]

    # A prefix is joined with a single slash, even if there were more.
    assert [(name.replace(b"//", b"/"), data) for name, data in found] == [
        (name.encode().replace(b"//", b"/"), data) for name, data in named
    ]


# Names of files on a disk: any bytes but NUL, the slash, the backslash, which bsdtar takes for an escape, and the colon,
# which it takes for the end of a drive's letter.
parts = st.binary(min_size=1, max_size=40).map(
    lambda part: part.replace(b"\0", b"0").replace(b"/", b"1").replace(b"\\", b"2").replace(b":", b"3")
) | st.sampled_from([b"a" * 100, b"b.c" * 60, b"dir", "日本".encode(), b" ", b"-x", b"._a.txt"])
paths = st.lists(parts.filter(lambda part: part not in {b".", b".."}), min_size=1, max_size=4).map(b"/".join)

WRITERS = {
    **{f"GNU tar, {form}": ["tar", f"--format={form}"] for form in ("v7", "oldgnu", "gnu", "ustar", "posix")},
    **{f"bsdtar, {form}": ["bsdtar", f"--format={form}"] for form in ("v7", "gnutar", "ustar", "pax")},
}
LIMITED = ("v7", "ustar")
"""Formats that cannot hold every name; the writer leaves out files whose names do not fit."""


@pytest.mark.parametrize("writer", WRITERS)
@settings(max_examples=20)
@given(files=st.dictionaries(paths, contents, min_size=1, max_size=12))
def test_members_written_by_gnu_tar_and_bsdtar_read_back(writer: str, files: dict[bytes, bytes]) -> None:
    if shutil.which(WRITERS[writer][0]) is None:
        pytest.skip(f"{WRITERS[writer][0]} is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write_files(folder / "files", files)
        (folder / "list").write_bytes(b"\0".join(written) + b"\0")
        command = [*WRITERS[writer], "-cf", "../x.tar", "--null", "-T", "../list"]
        made = subprocess.run(
            command, cwd=folder / "files", env={**os.environ, "LC_ALL": "C.UTF-8"}, capture_output=True, check=False
        )
        limited = writer.endswith(LIMITED)
        assert made.returncode == 0 or limited, made.stderr

        found = read_by_wids(folder / "x.tar")

        assert found == read_by_tarfile(folder / "x.tar")
        assert dict(found).items() <= written.items()
        assert limited or dict(found) == written
        assert len(find((folder / "x.tar").read_bytes())) == len(found)


def write_files(folder: Path, files: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Write the files whose names do not conflict with each other; return them."""
    written = {}
    for name, data in files.items():
        path = folder / os.fsdecode(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError:  # the name is that of a folder already, or one of its folders is a file
            continue
        written[name] = data
    assume(written)
    return written


# Changes


class Archive(NamedTuple):
    """An archive, and the roles of its bytes."""

    content: bytes
    before: Members
    headers: list[int]
    """Offsets of all header blocks, in bytes."""
    payloads: list[tuple[int, int, int]]
    """Where the data of extension headers begins and ends, and the number of the member they describe."""
    data: list[tuple[int, int, int]]
    """Where the data of members begins and ends, and the member's number."""


def make_archive(tar_format: str, count: int) -> Archive:
    written = [
        (f"{'d' * 120 if number % 5 == 2 else ''}{number}.txt", b"%d." % number * (number * 37 % 300))
        for number in range(count)
    ]
    content = write_by_tarfile(written, tar_format)
    headers: list[int] = []
    payloads: list[tuple[int, int, int]] = []
    data: list[tuple[int, int, int]] = []
    offset = 0
    number = 0
    while content[offset : offset + 512].strip(b"\0"):
        headers.append(offset)
        size = int(content[offset + 124 : offset + 135], 8)
        extends = content[offset + 156] in b"xL"
        (payloads if extends else data).append((offset + 512, offset + 512 + size, number))
        number += not extends
        offset += 512 + -(-size // 512) * 512
    return Archive(content, scan_members(BufferSource(content, "a.tar")), headers, payloads, data)


ARCHIVES = {
    f"{count} in {tar_format}": make_archive(tar_format, count) for tar_format in ("gnu", "pax") for count in (9, 150)
}


def read_changed(archive: Archive, place: int, change: int) -> tuple[Members, list[bytes]] | TarFormatError:
    content = bytearray(archive.content)
    content[place] ^= change
    source = BufferSource(bytes(content), "a.tar")
    try:
        find(bytes(content))
    except TarFormatError as error:
        return error
    members = scan_members(source)
    return members, [read_member(source, members, number) for number in range(len(members.names))]


def bytes_before(archive: Archive) -> list[bytes]:
    source = BufferSource(archive.content, "a.tar")
    return [read_member(source, archive.before, number) for number in range(len(archive.before.names))]


@settings(max_examples=250)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(0, 511), st.integers(1, 255), st.data())
def test_a_changed_header_byte_is_refused_or_has_no_effect(
    name: str, place: int, change: int, draw: st.DataObject
) -> None:
    archive = ARCHIVES[name]
    header = draw.draw(st.sampled_from(archive.headers))

    after = read_changed(archive, header + place, change)

    if isinstance(after, TarFormatError):
        assert f"header at byte {header}" in str(after)
    else:
        assert list(after[0].names) == list(archive.before.names)
        assert after[1] == bytes_before(archive)


@settings(max_examples=250)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(1, 255), st.data())
def test_a_changed_extension_header_byte_affects_only_its_own_member(
    name: str, change: int, draw: st.DataObject
) -> None:
    archive = ARCHIVES[name]
    start, stop, number = draw.draw(st.sampled_from(archive.payloads))
    place = draw.draw(st.integers(start, stop - 1))

    after = read_changed(archive, place, change)

    if isinstance(after, TarFormatError):
        assert "byte" in str(after)
    else:
        found = list(zip(after[0].names, after[1], strict=True))
        expected = list(zip(archive.before.names, bytes_before(archive), strict=True))
        assert found[:number] == expected[:number]
        assert found[number + 1 :] == expected[number + 1 :]
        assert found[number][1] == expected[number][1]


@settings(max_examples=150)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(1, 255), st.data())
def test_a_changed_data_byte_changes_only_that_byte(name: str, change: int, draw: st.DataObject) -> None:
    archive = ARCHIVES[name]
    start, stop, number = draw.draw(st.sampled_from([part for part in archive.data if part[0] < part[1]]))
    place = draw.draw(st.integers(start, stop - 1))

    after = read_changed(archive, place, change)

    assert not isinstance(after, TarFormatError)
    expected = bytes_before(archive)
    changed = bytearray(expected[number])
    changed[place - start] ^= change
    expected[number] = bytes(changed)
    assert list(after[0].names) == list(archive.before.names)
    assert after[1] == expected


@settings(max_examples=250)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(-20, 20), st.data())
def test_a_wrong_size_in_an_extension_header_gives_no_other_member_a_wrong_size(
    name: str, change: int, draw: st.DataObject
) -> None:
    archive = ARCHIVES[name]
    number = draw.draw(st.integers(0, len(archive.data) - 1))
    start, stop, _ = archive.data[number]
    size = max(0, stop - start + change * draw.draw(st.sampled_from([1, 100])))
    extension = pax((b"size", b"%d" % size))
    content = archive.content[: start - 512] + extension + archive.content[start - 512 :]

    try:
        after = find(content)
    except TarFormatError as error:
        assert "byte" in str(error)
    else:
        shift = [len(extension) * (index >= number) for index in range(len(archive.data))]
        size_at = {begin + by: end - begin for (begin, end, _), by in zip(archive.data, shift, strict=True)}
        size_at[start + len(extension)] = size
        assert [size_at[found.offset] for found in after] == [found.size for found in after]
