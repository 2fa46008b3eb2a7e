"""Every form of header in use is read as other readers agree to read it, or as stated here where they disagree."""

from __future__ import annotations

import pytest

from tests.tar.archives import (
    END,
    GNU,
    USTAR,
    V7,
    find,
    hard_link,
    header,
    long_name,
    member,
    padded,
    pax,
    pax_payload,
    places,
)
from wids.errors import TarFormatError
from wids.source import BufferSource
from wids.tar import scan_members
from wids.tar.member_file import read_member

AFTER = member(b"b.txt", b"bye")


def found_before_after(content: bytes) -> list[tuple[bytes, int]]:
    """Return the names and sizes of members, and check that the member after them is found too."""
    *before, after = [(name, size) for name, _, size in places(content + AFTER + END)]
    assert after == (b"b.txt", 3)
    return before


@pytest.mark.parametrize("magic", [USTAR, GNU, V7, b"ustar  ", b"ustar\0"], ids=str)
@pytest.mark.parametrize("kind", [b"0", b"\0", b"7", b"8", b"Z"], ids=str)
def test_files_of_every_format_and_kind_are_members(magic: bytes, kind: bytes) -> None:
    assert found_before_after(member(magic=magic, kind=kind)) == [(b"a.txt", 5)]


@pytest.mark.parametrize("kind", [b"2", b"3", b"4", b"5", b"6"], ids=["symlink", "char", "block", "folder", "pipe"])
@pytest.mark.parametrize("size", [0, 700])
def test_links_devices_folders_and_pipes_have_no_data_and_are_not_members(kind: bytes, size: int) -> None:
    assert found_before_after(header(size=size, kind=kind)) == []


@pytest.mark.parametrize("kind", [b"A", b"D", b"E", b"I", b"M", b"N", b"V"], ids=str)
def test_members_of_vendor_specific_types_are_skipped_with_their_data(kind: bytes) -> None:
    assert found_before_after(member(data=b"x" * 700, kind=kind)) == []


@pytest.mark.parametrize("magic", [USTAR, V7], ids=["ustar", "v7"])
@pytest.mark.parametrize("name", [b"folder/", b"f" * 99 + b"/"], ids=["short", "long"])
def test_an_old_header_whose_name_ends_with_a_slash_is_a_folder(magic: bytes, name: bytes) -> None:
    assert found_before_after(header(name, kind=b"\0", magic=magic)) == []


@pytest.mark.parametrize("name", [b"a/b", b"file\0junk/", b"f" * 100], ids=ascii)
def test_an_old_header_whose_name_ends_without_a_slash_is_a_file(name: bytes) -> None:
    assert found_before_after(member(name, kind=b"\0")) == [(name.split(b"\0")[0], 5)]


@pytest.mark.parametrize(
    "field",
    [
        b"00000000005\0", b"000000000005", b"          5 ", b"5\0", b"5           ", b"     5\0", b"\0000000000005",
        b"00000000005 ", b"5\0junk junk\0", b"\x80" + bytes(10) + b"\5",
    ],
    ids=[
        "usual", "without terminator", "blanks before", "short", "blanks behind", "blanks and NUL", "leading NUL",
        "blank at the end", "junk behind NUL", "base 256",
    ],
)  # fmt: skip
def test_a_size_is_read_in_every_number_format(field: bytes) -> None:
    assert found_before_after(member(size=field)) == [(b"a.txt", 5)]


@pytest.mark.parametrize(
    "field", [b"\0" * 12, b" " * 12, b"\x80" + bytes(11), b"0\0"], ids=["NULs", "blanks", "base 256", "digit"]
)
def test_an_empty_or_zero_size_field_is_zero(field: bytes) -> None:
    assert found_before_after(header(size=field)) == [(b"a.txt", 0)]


@pytest.mark.parametrize(
    "field",
    [
        b"\xff" * 12, b"\xff" + b"\0" * 11, b"-0000000005\0", b"0000000000x\0", b"00000000009\0", b"0x000000005\0",
        b"\x81" + bytes(11), b"\xc0" + bytes(11), b"5 5\0", b"+0000000005\0",
    ],
    ids=[
        "-1 in base 256", "negative in base 256", "negative", "letter", "digit nine", "hexadecimal", "base 256 of another kind",
        "base 256 of a third kind", "blank between", "sign",
    ],
)  # fmt: skip
def test_a_size_that_is_negative_or_not_a_number_is_refused(field: bytes) -> None:
    with pytest.raises(TarFormatError, match=r"the header at byte 1024 has size .*, expected a number that is not neg"):
        find(AFTER + member(size=field) + END)


@pytest.mark.parametrize(
    "size", [2**31, 2**32, 2**33 - 1, 2**63 - 1, 2**63 - 512, 2**63, 2**64, 2**64 + 5, 2**87], ids=hex
)
@pytest.mark.parametrize("way", ["header", "pax", "gnu sparse", "pax sparse"])
def test_a_size_larger_than_the_archive_is_refused(size: int, way: str) -> None:
    base_256 = b"\x80" + size.to_bytes(11, "big")
    damaged = {
        "header": member(size=base_256),
        "pax": pax((b"size", b"%d" % size)) + member(),
        "gnu sparse": member(size=base_256, kind=b"S", magic=GNU, fields={483: b"00000000005\0"}),
        "pax sparse": pax((b"GNU.sparse.size", b"5"), (b"GNU.sparse.map", b"0,5")) + member(size=base_256),
    }[way]

    with pytest.raises(TarFormatError, match=r"the file ends at byte \d+, inside the data of the member whose header"):
        find(AFTER + damaged + END)


@pytest.mark.parametrize("size", [2**63, 2**64 + 5], ids=hex)
@pytest.mark.parametrize("way", ["gnu", "pax"])
def test_a_sparse_file_of_2_to_the_63_bytes_or_more_is_refused(size: int, way: str) -> None:
    base_256 = b"\x80" + size.to_bytes(11, "big")
    damaged = {
        "gnu": member(kind=b"S", magic=GNU, fields={386: b"00000000000\000000000005\0", 483: base_256}),
        "pax": pax((b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.map", b"0,5")) + member(),
    }[way]

    with pytest.raises(TarFormatError, match="more than a file can have"):
        find(AFTER + damaged + END)


def test_a_checksum_of_signed_characters_is_accepted() -> None:
    block = bytearray(header(b"\xe4\xf6.txt", 5))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % (sum(block) - 256 * 2)

    assert found_before_after(bytes(block) + padded(b"hello")) == [(b"\xe4\xf6.txt", 5)]


@pytest.mark.parametrize("form", [b"%06o\0 ", b"%07o\0", b"%6o \0", b"%6o\0 ", b"%06o  ", b"%08o"], ids=str)
def test_a_checksum_is_read_in_every_number_format(form: bytes) -> None:
    block = bytearray(header(size=5))
    block[148:156] = b" " * 8
    block[148:156] = form % sum(block)

    assert found_before_after(bytes(block) + padded(b"hello")) == [(b"a.txt", 5)]


NAMES = [
    b"a.txt",
    b"./a.txt",
    b"a b.txt",
    b"a\nb.txt",
    b"\xe4\xff.txt",
    "日本.txt".encode(),
    b"d/" * 40 + b"a.txt",
    b"." * 100,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("way", ["header", "pax", "long name"])
def test_names_keep_all_their_bytes(name: bytes, way: str) -> None:
    written = {
        "header": member(name),
        "pax": pax((b"path", name)) + member(b"short"),
        "long name": long_name(name) + member(b"short", magic=GNU),
    }[way]

    assert found_before_after(written) == [(name, 5)]


@pytest.mark.parametrize("length", [99, 100, 101, 60_000])
@pytest.mark.parametrize("way", ["pax", "long name"])
def test_long_names_are_read_whole(length: int, way: str) -> None:
    name = b"n" * (length - 4) + b".txt"
    extension = pax((b"path", name)) if way == "pax" else long_name(name)

    assert found_before_after(extension + member(name[:100])) == [(name, 5)]


def test_a_prefix_is_part_of_the_name() -> None:
    assert found_before_after(member(b"n" * 100, prefix=b"p" * 155)) == [(b"p" * 155 + b"/" + b"n" * 100, 5)]


@pytest.mark.parametrize(
    ("magic", "prefix", "fields", "name"),
    [
        (V7, b"dir", {}, b"a.txt"),
        (GNU, b"12574544345\00012574542274\0", {}, b"a.txt"),
        (GNU, b"long/folder", {}, b"long/folder/a.txt"),
        (USTAR, b"dir", {476: b"00000000000 00000000000 ", 508: b"tar\0"}, b"dir/a.txt"),
        (USTAR, b"p" * 130, {476: b"00000000000 00000000000 ", 508: b"tar\0"}, b"p" * 130 + b"/a.txt"),
    ],
    ids=["v7 has none", "times of GNU are none", "Go before 1.8", "star", "star, up to its times"],
)
def test_a_prefix_is_read_only_in_formats_that_have_one(
    magic: bytes, prefix: bytes, fields: dict[int, bytes], name: bytes
) -> None:
    assert found_before_after(member(magic=magic, prefix=prefix, fields=fields)) == [(name, 5)]


# pax


@pytest.mark.parametrize("kind", [b"x", b"X"], ids=["POSIX", "Solaris"])
def test_a_pax_header_overrides_the_name_and_size_in_the_header(kind: bytes) -> None:
    extension = pax((b"mtime", b"1.5"), (b"path", b"long.txt"), (b"size", b"600"), (b"LIBARCHIVE.x", b"1"), kind=kind)

    assert found_before_after(extension + member(data=b"x" * 600, size=5)) == [(b"long.txt", 600)]


@pytest.mark.parametrize("charset", [b"BINARY", b"ISO-IR 10646 2000 UTF-8"], ids=str)
def test_names_keep_their_bytes_when_a_charset_is_declared(charset: bytes) -> None:
    extension = pax((b"hdrcharset", charset), (b"path", b"\xe4\xf6.txt"), (b"charset", b"ISO-IR 8859 1 1998"))

    assert found_before_after(extension + member()) == [(b"\xe4\xf6.txt", 5)]


def test_the_last_of_repeated_pax_records_counts() -> None:
    assert found_before_after(pax((b"path", b"1"), (b"path", b"2.txt")) + member()) == [(b"2.txt", 5)]


def test_two_pax_headers_before_a_member_both_apply() -> None:
    extension = pax((b"path", b"long.txt")) + pax((b"size", b"600"))

    assert found_before_after(extension + member(data=b"x" * 600, size=0)) == [(b"long.txt", 600)]


@pytest.mark.parametrize(
    "extension",
    [
        long_name(b"of GNU") + pax((b"path", b"long.txt")),
        pax((b"path", b"long.txt")) + long_name(b"of GNU"),
        long_name(b"first") + long_name(b"long.txt"),
        b"".join(long_name(b"%d" % number) for number in range(1000)) + long_name(b"long.txt"),
    ],
    ids=["GNU, pax", "pax, GNU", "twice", "a thousand"],
)
def test_several_extension_headers_describe_the_member_after_them(extension: bytes) -> None:
    assert found_before_after(extension + member()) == [(b"long.txt", 5)]


def test_an_empty_pax_header_changes_nothing() -> None:
    assert found_before_after(pax_payload(b"") + member()) == [(b"a.txt", 5)]


@pytest.mark.parametrize("extension", [pax((b"path", b"")), long_name(b"")], ids=["pax", "GNU"])
def test_an_empty_name_in_an_extension_header_replaces_the_name(extension: bytes) -> None:
    assert found_before_after(extension + member()) == [(b"", 5)]


def test_an_empty_pax_size_is_ignored() -> None:
    assert found_before_after(pax((b"size", b"")) + member()) == [(b"a.txt", 5)]


def test_a_global_header_applies_until_the_next_one_unless_overridden_locally() -> None:
    content = (
        pax((b"path", b"all.txt"), (b"comment", b"c"), kind=b"g")
        + member()
        + pax((b"path", b"own.txt"))
        + member()
        + pax((b"path", b"again.txt"), kind=b"g")
        + member()
        + END
    )

    assert [name for name, _, _ in places(content)] == [b"all.txt", b"own.txt", b"again.txt"]


def test_a_global_size_applies_to_every_member() -> None:
    content = (
        pax((b"size", b"600"), kind=b"g") + member(data=b"x" * 600, size=5) + member(data=b"y" * 600, size=0) + END
    )

    assert places(content) == [(b"a.txt", 1536, 600), (b"a.txt", 3072, 600)]


def test_a_global_header_alone_is_an_empty_archive() -> None:
    assert places(pax((b"comment", b"c"), kind=b"g") + END) == []


@pytest.mark.parametrize("first", [b"", AFTER], ids=["alone", "behind a member"])
@pytest.mark.parametrize("end", [END, b""], ids=["end blocks", "nothing"])
def test_the_end_of_an_archive_is_after_a_final_global_header(first: bytes, end: bytes) -> None:
    content = first + pax((b"comment", b"c" * 5000), kind=b"g")

    members = scan_members(BufferSource(content + end, "a.tar"))

    assert members.end == len(content)
    assert members.has_end_blocks == bool(end)
    assert members.bytes_after_end == 0


def test_a_global_comment_changes_nothing() -> None:
    content = pax((b"comment", b"0123abcd"), kind=b"g") + b"".join(member(b"%03d.txt" % n) for n in range(200)) + END

    assert [name for name, _, _ in places(content)] == [b"%03d.txt" % number for number in range(200)]


@pytest.mark.parametrize(
    "payload",
    [
        b"10 path=ab\n1", b"11 path=ab", b"99 path=ab\n", b"12 path=ab\n", b" 12 path=ab\n", b"+12 path=ab\n", b"0 path=ab\n",
        b"-1 path=ab\n", b"11path=ab\n", b"path=ab\n", b"11 path_ab\n", b"6 =ab\n", b"4 =\n", b"1", b"11 ", b"\xb2 a=b\n",
        b"99999999999999999999999999 path=ab\n", b"11 path=ab\n11", b"11 path=ab\n 10 path=c\n",
    ],
    ids=ascii,
)  # fmt: skip
def test_a_malformed_pax_record_is_refused(payload: bytes) -> None:
    with pytest.raises(
        TarFormatError, match=r"the pax header at byte 1024 has no valid record at byte \d+ of its data"
    ):
        find(AFTER + pax_payload(payload) + member() + END)


@pytest.mark.parametrize("value", [b"+5", b"-1", b" 5", b"5 ", b"5.0", b"0x5", b"five", b"\xb2", b"1" * 65], ids=ascii)
def test_a_malformed_pax_size_is_refused(value: bytes) -> None:
    with pytest.raises(TarFormatError, match=r"the pax headers before the header at byte 2048 say size="):
        find(AFTER + pax((b"size", value)) + member() + END)


@pytest.mark.parametrize("kind", [b"x", b"L", b"K", b"g"], ids=str)
@pytest.mark.parametrize("size", [2**20 + 1, 2**62], ids=hex)
def test_an_extension_header_larger_than_1_mib_is_refused(kind: bytes, size: int) -> None:
    content = header(size=b"\x80" + size.to_bytes(11, "big"), kind=kind) + bytes(min(size, 2**21)) + member() + END

    with pytest.raises(TarFormatError, match=r"header at byte 0"):
        find(content)


@pytest.mark.parametrize("extension", [pax((b"path", b"n.txt")), long_name(b"n.txt"), long_name(b"t", kind=b"K")])
@pytest.mark.parametrize("end", [END, b"", bytes(512)], ids=["end blocks", "nothing", "one block"])
def test_an_extension_header_without_a_member_is_refused(extension: bytes, end: bytes) -> None:
    with pytest.raises(TarFormatError, match=r"byte (1024|2048)"):
        find(AFTER + extension + end)


def test_a_global_name_that_makes_names_exceed_the_size_of_the_file_is_refused() -> None:
    content = pax((b"path", b"n" * 60_000), kind=b"g") + header() * 1000 + END

    with pytest.raises(TarFormatError, match="names that are longer than the whole file"):
        find(content)


def test_a_sparse_map_in_a_global_header_is_refused() -> None:
    extension = pax((b"GNU.sparse.size", b"5"), (b"GNU.sparse.map", b"0,5"), kind=b"g")

    with pytest.raises(TarFormatError, match="the global pax header at byte 0 has the map of a sparse file"):
        find(extension + member() + END)


# Hard links


def read_all(content: bytes) -> list[tuple[bytes, bytes | str]]:
    """Return the name of each member, and its bytes or what is wrong with it."""
    source = BufferSource(content, "a.tar")
    members = scan_members(source)
    return [
        (name, members.broken_links.get(number) or read_member(source, members, number))
        for number, name in enumerate(members.names)
    ]


def test_a_hard_link_has_the_bytes_of_the_latest_earlier_file_of_that_name() -> None:
    content = (
        member(b"a.txt", b"old") + hard_link(b"1.txt", b"a.txt") + member(b"a.txt", b"new") + hard_link(b"2.txt", b"a.txt")
    )  # fmt: skip

    assert read_all(content + END) == [(b"a.txt", b"old"), (b"1.txt", b"old"), (b"a.txt", b"new"), (b"2.txt", b"new")]
    assert find(content + END)


@pytest.mark.parametrize("target", [b"./a.txt", b"a.txt", b".//a.txt"], ids=str)
@pytest.mark.parametrize("name", [b"a.txt", b"./a.txt"], ids=str)
def test_a_hard_link_target_is_found_with_or_without_a_leading_dot(name: bytes, target: bytes) -> None:
    assert read_all(member(name) + hard_link(b"l.txt", target) + END)[1] == (b"l.txt", b"hello")


def test_a_hard_link_target_with_half_a_million_leading_dots_is_found() -> None:
    target = b"./" * 500_000 + b"a.txt"

    # Removing the dots one by one, each time with a copy of the rest, would take minutes.
    assert read_all(member() + pax((b"linkpath", target)) + hard_link(b"l.txt", b"") + END)[1] == (b"l.txt", b"hello")


def test_a_chain_of_hard_links_has_the_bytes_of_its_first_file() -> None:
    links = b"".join(hard_link(b"%d.txt" % (n + 1), b"%d.txt" % n) for n in range(100))

    assert read_all(member(b"0.txt") + links + END)[-1] == (b"100.txt", b"hello")


@pytest.mark.parametrize("extension", [pax((b"linkpath", b"t" * 300)), long_name(b"t" * 300, kind=b"K")])
def test_a_long_hard_link_target_is_read_whole(extension: bytes) -> None:
    content = long_name(b"t" * 300) + member() + extension + hard_link(b"l.txt", b"t" * 100) + END

    assert read_all(content)[1] == (b"l.txt", b"hello")


def test_a_hard_link_has_no_data_even_if_its_header_has_a_size() -> None:
    assert read_all(member() + hard_link(b"l.txt", b"a.txt", size=5) + AFTER + END) == [
        (b"a.txt", b"hello"),
        (b"l.txt", b"hello"),
        (b"b.txt", b"bye"),
    ]


@pytest.mark.parametrize(
    "links",
    [
        hard_link(b"1.txt", b"1.txt"),
        hard_link(b"1.txt", b"2.txt") + hard_link(b"2.txt", b"1.txt"),
        hard_link(b"1.txt", b"b.txt"),
        hard_link(b"1.txt", b"nowhere"),
        hard_link(b"1.txt", b""),
        header(b"d", kind=b"5") + hard_link(b"1.txt", b"d"),
        header(b"s", kind=b"2", link=b"b.txt") + hard_link(b"1.txt", b"s"),
    ],
    ids=["to itself", "in a circle", "to a later one", "to nothing", "without a target", "to a folder", "to a symlink"],
)
def test_a_hard_link_to_no_earlier_file_is_broken_and_later_members_are_read(links: bytes) -> None:
    *broken, last = read_all(links + AFTER + END)

    assert broken
    assert all(isinstance(what, str) and "which is not an earlier file of the archive" in what for _, what in broken)
    assert last == (b"b.txt", b"bye")
    assert find(links + AFTER + END)


# How archives end


@pytest.mark.parametrize("blocks", [0, 1, 2, 19])
def test_members_are_read_with_any_number_of_end_blocks(blocks: int) -> None:
    members = scan_members(BufferSource(member() + bytes(512 * blocks), "a.tar"))

    assert list(members.names) == [b"a.txt"]
    assert members.has_end_blocks == (blocks > 0)
    assert members.bytes_after_end == 0


@pytest.mark.parametrize("blocks", [1, 2, 19])
def test_bytes_after_the_end_blocks_are_counted_and_not_read(blocks: int) -> None:
    rest = AFTER * 3000 + END

    members = scan_members(BufferSource(member() + bytes(512 * blocks) + rest, "a.tar"))

    assert list(members.names) == [b"a.txt"]
    last = 512 * blocks + len(rest.rstrip(b"\0"))
    assert members.bytes_after_end == last - 1024


def test_a_block_of_zeros_except_for_its_last_byte_is_refused() -> None:
    with pytest.raises(TarFormatError, match="the header at byte 1024 has checksum"):
        find(AFTER + bytes(511) + b"\1" + AFTER + END)


def test_data_that_looks_like_headers_is_not_taken_for_members() -> None:
    inner = member(b"inner.txt")
    content = b"".join(member(b"%03d.tar" % n, inner * (n % 5)) for n in range(300)) + END

    assert [name for name, _, _ in places(content)] == [b"%03d.tar" % number for number in range(300)]
