"""Archives from the tests of other tar readers are read as CPython, bsdtar and GNU tar agree to read them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import CORPORA
from tests.tar.archives import Found, find
from wids.errors import TarFormatError
from wids.source import BufferSource
from wids.tar import scan_members
from wids.tar.member_file import read_member

if TYPE_CHECKING:
    from pathlib import Path

EXPECTED: dict[str, Any] = (
    json.loads((CORPORA / "expected.json").read_text("utf-8")) if (CORPORA / "expected.json").exists() else {}
)

pytestmark = pytest.mark.skipif(not EXPECTED, reason=f"the archives of other projects are not at {CORPORA}")

LARGEST_HASHED = 1 << 28

# The expected result listed for these is CPython's alone; GNU tar, bsdtar and wids agree on another one.
AS_GNU_TAR_AND_BSDTAR = {
    "go/gnu-incremental.tar": "GNU's format has a time where POSIX' has the prefix; CPython takes it for a directory",
    "go/pax-nil-sparse-data.tar": "a pax `size` counts the stored bytes; CPython takes it for the sparse file's own",
    "go/pax-nil-sparse-hole.tar": "a pax `size` counts the stored bytes; CPython takes it for the sparse file's own",
    "go/pax-sparse-big.tar": "a pax `size` counts the stored bytes; CPython takes it for the sparse file's own",
}

# Where the three readers disagree: the expected files or the expected error, and the reason.
DISPUTED: dict[str, tuple[list[tuple[str, int]] | str, str]] = {
    "cpython/testtar.tar": (
        [],  # as listed in expected.json
        "as CPython reads it, which is the source of this archive; bsdtar fails only at showing names that are no UTF-8",
    ),
    "go/hdr-only.tar": (
        [("file", 46), ("hardlink", 46), ("file", 46), ("hardlink", 46)],
        "links and devices have no data whatever their size says; GNU tar alone skips some",
    ),
    "go/pax-multi-hdrs.tar": ([], "two pax headers before one member add up; it is a symbolic link, so no file"),
    "go/pax-nul-xattrs.tar": (
        [("bad-null.txt", 0)],
        "a NUL in an attribute's name is allowed: attributes are not read, and the record is well-formed",
    ),
    "go/pax-path-hdr.tar": (
        "the member that the header at byte 0 describes is missing",
        "a pax header that describes nothing is the rest of an archive that was cut",
    ),
    "node-tar/bad-cksum.tar": (
        "the header at byte 1024 has checksum 6121, expected 6120",
        "CPython and bsdtar silently leave out everything from the damaged header on",
    ),
    "node-tar/path-missing.tar": ([("", 1)], "a file without a name is a file; having no key it is in no sample"),
    "tar-rs/empty_filename.tar": ([], "the member without a name is a directory, so no file"),
}


def names_of(verdict: str) -> list[str]:
    return sorted(name for name, entry in EXPECTED.items() if entry["verdict"] == verdict)


def load(name: str) -> bytes:
    content = (CORPORA / "tar" / name).read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def printable(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def hard_links(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return [printable(info.name.encode("utf-8", "surrogateescape")) for info in tar if info.islnk()]


def assert_members_are(name: str, expected: list[dict[str, Any]]) -> None:
    content = load(name)
    links = hard_links(content)
    source = BufferSource(content, name)
    members = scan_members(source)

    left = list(expected)
    for number, found in enumerate(find(content)):
        if printable(found.name) in links and (not left or left[0]["name"] != printable(found.name)):
            links.remove(printable(found.name))
            continue
        entry = left.pop(0)
        assert (printable(found.name), found.size) == (entry["name"], entry["size"])
        if "offset" in entry:
            assert found.offset == entry["offset"]
        if "sha256" in entry:
            assert hashlib.sha256(read_member(source, members, number)).hexdigest() == entry["sha256"]
    assert not left
    assert not links


@pytest.mark.parametrize("name", [name for name in names_of("readable") if name not in AS_GNU_TAR_AND_BSDTAR])
def test_archives_that_all_readers_accept_have_the_expected_members(name: str) -> None:
    assert_members_are(name, EXPECTED[name]["members"])


@pytest.mark.parametrize("name", names_of("damaged"))
def test_archives_that_all_readers_refuse_are_refused(name: str) -> None:
    with pytest.raises(TarFormatError, match=r"^a\.tar: .*byte \d+"):
        find(load(name))


@pytest.mark.parametrize("name", names_of("disputed"))
def test_archives_that_readers_disagree_on_are_read_or_refused_as_listed(name: str) -> None:
    decision, _reason = DISPUTED[name]

    if isinstance(decision, str):
        with pytest.raises(TarFormatError, match=decision):
            find(load(name))
    elif name == "cpython/testtar.tar":
        assert_members_are(name, EXPECTED[name]["members"])
    else:
        assert [(printable(found.name), found.size) for found in find(load(name))] == decision


@pytest.mark.parametrize("reader", ["tar", "bsdtar"])
@pytest.mark.parametrize("name", AS_GNU_TAR_AND_BSDTAR)
def test_where_only_cpython_differs_members_are_those_of_gnu_tar_and_bsdtar(
    tmp_path: Path, name: str, reader: str
) -> None:
    if shutil.which(reader) is None:
        pytest.skip(f"{reader} is not installed")
    subprocess.run([reader, "-xf", CORPORA / "tar" / name], cwd=tmp_path, check=True)
    content = load(name)
    source = BufferSource(content, name)
    members = scan_members(source)

    extracted = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*") if path.is_file()}
    found: list[Found] = find(content)

    assert {printable(each.name): each.size for each in found} == {
        file: path.stat().st_size for file, path in extracted.items()
    }
    for number, each in enumerate(found):
        if each.size < LARGEST_HASHED:
            assert read_member(source, members, number) == extracted[printable(each.name)].read_bytes()


def test_every_disputed_archive_has_a_listed_result() -> None:
    assert sorted(DISPUTED) == names_of("disputed")
    assert set(AS_GNU_TAR_AND_BSDTAR) <= set(names_of("readable"))
