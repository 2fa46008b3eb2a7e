"""An index file of DALI gives the same index as a scan, or is not used."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import make_tar, sample_members, write_tar
from wids.source import BufferSource, MmapSource
from wids.tar import TarIndex, build_index, encode_index, first_headers, format_offsets, parse_offsets, scan_members

if TYPE_CHECKING:
    from pathlib import Path

LETTERS = st.text("abc-_é", min_size=1, max_size=6)
SAMPLES = st.dictionaries(
    st.tuples(st.sampled_from(["", "x/", "a.b/"]), LETTERS),
    st.dictionaries(st.sampled_from(["jpg", "txt", "seg.png"]), st.binary(max_size=1500), min_size=1, max_size=3),
    min_size=1,
    max_size=6,
)


def table_of(source: BufferSource | MmapSource) -> bytes:
    """Return the index file for what a scan finds, as `wds2idx` writes it."""
    members = scan_members(source)
    lines: dict[str, list[str]] = {}
    for name, offset, size in zip(members.names, members.offsets.tolist(), members.sizes.tolist(), strict=True):
        text = name.decode()
        place, slash, base = text.rpartition("/")
        key, _, extension = base.partition(".")
        lines.setdefault(place + slash + key, []).append(f"{extension} {offset} {size} {text}")
    return f"v1.2 {len(lines)}\n{''.join(' '.join(words) + chr(10) for words in lines.values())}".encode()


def tar_of(members: list[tuple[str, bytes]]) -> BufferSource:
    return BufferSource(make_tar(members, tar_format=tarfile.GNU_FORMAT), "a.tar")


@given(SAMPLES)
def test_a_dali_table_gives_the_index_that_a_scan_gives(samples: dict[tuple[str, str], dict[str, bytes]]) -> None:
    source = tar_of(
        [(f"{place}{key}.{field}", data) for (place, key), fields in samples.items() for field, data in fields.items()]
    )

    assert encoded(parse_offsets(table_of(source), source)) == encoded(build_index(source))


def encoded(index: TarIndex) -> bytes:
    return encode_index(index, "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda table: table[:0], "not a table of version v1.2"),
        (lambda table: table.replace(b"v1.2", b"v1.1"), "not a table of version v1.2"),
        (lambda table: table.replace(b"000001.txt", b"000 001.txt"), "or a name in it has blanks"),
        (lambda table: table.replace(b" 512 ", b" x12 ", 1), "is not a number"),
        (lambda table: table.replace(b" 512 ", b" 99999999999999999999 ", 1), "is not a number"),
        (lambda table: table.replace(b" 512 ", b" 1024 ", 1), "do not fill the shard"),
        (lambda table: table.replace(b" 512 9 ", b" 512 -9 ", 1), "do not fill the shard"),
        (lambda table: b"\n".join(table.split(b"\n")[:-2]) + b"\n", "the shard continues after"),
        (lambda table: table.replace(b"v1.2 3", b"v1.2 4"), "says that there are b'4' samples, but names 3"),
    ],
)
def test_a_malformed_or_incomplete_dali_table_is_refused(change: object, why: str) -> None:
    source = tar_of(sample_members(3))
    table = change(table_of(source))  # type: ignore[operator]

    with pytest.raises(ValueError, match=why):
        parse_offsets(table, source)


def test_a_dali_table_of_a_longer_shard_is_refused() -> None:
    whole = tar_of(sample_members(3))
    cut = BufferSource(bytes(whole.buffer[:2048]), "a.tar")

    with pytest.raises(ValueError, match="do not fill the shard"):
        parse_offsets(table_of(whole), cut)


@pytest.mark.parametrize("kind", ["directory", "long name", "hard link"])
def test_a_dali_table_that_omits_members_of_the_shard_is_refused(tmp_path: Path, kind: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for number, (name, data) in enumerate(sample_members(2)):
            if number == 1:
                extra = tarfile.TarInfo("x" * 150 + ".txt" if kind == "long name" else "extra.txt")
                extra.type = {"directory": tarfile.DIRTYPE, "hard link": tarfile.LNKTYPE}.get(kind, tarfile.REGTYPE)
                extra.linkname = "000000.txt"
                tar.addfile(extra)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    source = MmapSource(str(tmp_path / "a.tar"))
    plain = [line.split() for line in table_of(tar_of(sample_members(2))).splitlines()[1:]]
    offsets = iter([512, *(offset for offset in scan_members(source).offsets.tolist() if offset > 512)])
    table = b"v1.2 2\n" + b"\n".join(
        b" ".join([line[0], b"%d" % next(offsets), *line[2:5], b"%d" % next(offsets), *line[6:]]) for line in plain
    )

    with pytest.raises(ValueError, match="do not fill the shard"):
        parse_offsets(table, source)


def test_first_headers_are_at_the_offsets_where_members_begin(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", sample_members(5))
    members = scan_members(MmapSource(str(path)))

    headers = first_headers(members.offsets, members.sizes)

    with tarfile.open(path) as tar:
        assert headers is not None
        assert headers.tolist() == [member.offset for member in tar]
    assert first_headers(np.zeros(0, np.int64), np.zeros(0, np.int64)) is not None


@pytest.mark.parametrize(
    ("extension", "name"), [("", "a."), ("jpg", "a b.jpg"), ("j g", "a.j g"), ("jpg", "a\t.jpg"), ("jpg", "a\n.jpg")]
)
def test_an_empty_extension_or_whitespace_cannot_be_written_to_a_dali_table(extension: str, name: str) -> None:
    with pytest.raises(ValueError, match="which such a table cannot hold"):
        format_offsets([[(extension, name)]], [512], [3])
