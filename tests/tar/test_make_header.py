"""Headers that wids writes are read correctly by every reader."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.source import BufferSource
from wids.tar import scan_members
from wids.tar.make_header import HeaderMaker

NAMES = st.one_of(
    st.binary(min_size=1, max_size=400),
    st.integers(90, 300).flatmap(lambda length: st.just(b"d/" * (length // 2) + b"a.txt")),
    st.text("aé/.", min_size=1, max_size=150).map(str.encode),
).filter(lambda name: b"\0" not in name and not name.endswith(b"/"))


def archive(maker: HeaderMaker, members: list[tuple[bytes, bytes]]) -> tuple[bytes, list[int]]:
    """Return a tar, and the offsets of its members' data."""
    data, offsets = b"", []
    for name, content in members:
        data += maker.make(name, len(content), len(data))
        offsets.append(len(data))
        data += content + bytes(-len(content) % 512)
    return data + bytes(1024), offsets


@settings(max_examples=200)
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1100)), min_size=1, max_size=6),
    st.sampled_from([None, 1024, 4096, 65536]),
)
def test_tarfile_and_the_scan_find_written_members_at_their_offsets(
    members: list[tuple[bytes, bytes]], align: int | None
) -> None:
    data, offsets = archive(HeaderMaker(align=align), members)

    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as tar:
        by_tarfile = [(info.name.encode("utf-8", "surrogateescape"), info.offset_data, info.size) for info in tar]
    scanned = scan_members(BufferSource(data, "a.tar"))

    expected = [(name, offset, len(content)) for (name, content), offset in zip(members, offsets, strict=True)]
    assert list(zip(scanned.names, scanned.offsets.tolist(), scanned.sizes.tolist(), strict=True)) == expected
    assert by_tarfile == [(name.rstrip(b"/"), offset, size) for name, offset, size in expected]
    assert all(offset % (align or 512) == 0 for offset in offsets)


@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 10**13], ids=["largest of ustar", "one more", "ten terabytes"])
def test_a_size_beyond_ustar_goes_into_a_pax_header(size: int) -> None:
    header = HeaderMaker().make(b"a.bin", size)

    with tarfile.open(fileobj=io.BytesIO(header)) as tar:
        info = tar.next()

    assert info is not None
    assert (info.name, info.size, len(header)) == ("a.bin", size, 512 if size < 8**11 else 1536)


def test_a_pax_header_is_written_only_for_names_that_ustar_cannot_hold() -> None:
    maker = HeaderMaker()

    assert len(maker.make(b"a" * 100, 1)) == len(maker.make(b"d" * 155 + b"/" + b"a" * 100, 1)) == 512
    assert len(maker.make(b"a" * 101, 1)) == len(maker.make(b"d" * 156 + b"/" + b"a" * 100, 1)) == 1536


def test_an_empty_name_and_a_name_with_a_nul_byte_are_refused() -> None:
    for name in (b"", b"a\0b"):
        with pytest.raises(ValueError, match="NUL"):
            HeaderMaker().make(name, 1)


@pytest.mark.parametrize(
    "options", [{"align": 4095}, {"align": 256}, {"align": 1 << 17}, {"mtime": -1}, {"mtime": 8**11}], ids=str
)
def test_an_invalid_alignment_or_modification_time_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is "):
        HeaderMaker(**options)
