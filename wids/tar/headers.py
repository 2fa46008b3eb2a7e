"""One 512-byte header block, as bytes, to a `Header`.

The layouts are those of POSIX.1-1988 (ustar), POSIX.1-2001 (pax), GNU tar and star; see "Basic Tar Format" in the GNU
tar manual and pax(1) of POSIX, "ustar Interchange Format". Where writers deviate from the standard, numbers and names
are read in the way on which GNU tar, bsdtar and CPython's `tarfile` agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from wids.errors import TarFormatError

BLOCK = 512
"""Bytes of a header; a member's data is padded to a multiple of it."""

HARD_LINK = b"1"
WITHOUT_DATA = b"123456"
"""Type flags of members without data, whatever their size field says: links, devices, directories, pipes."""
WITH_OTHER_DATA = b"ADEIMNV"
"""Type flags of members that have data but are not files: attributes (Solaris, star), dumps, volumes, old long names (GNU).

Every type flag without a constant here means a file: POSIX requires readers to treat unknown types as regular files.
"""

SPARSE = b"S"
"""Type flag of a sparse file in the old GNU format, or in star's."""
GNU_LONG_NAME = b"L"
GNU_LONG_LINK = b"K"
PAX_LOCAL = (b"x", b"X")
"""Type flags of a pax header that describes the next member; Solaris writes `X`."""
PAX_GLOBAL = b"g"

_BASE_256 = 0x80
_GNU_MAGIC = b"ustar  \0"
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True, slots=True)
class Header:
    """What one header block says."""

    offset: int
    """Bytes from the start of the shard to the block."""
    type: bytes
    """The type flag, one byte."""
    name: bytes
    """Path of the member, prefix included; any bytes except NUL."""
    link: bytes
    """Path of a link's target."""
    size: int
    """Bytes of data that follow, before padding."""

    @property
    def data_offset(self) -> int:
        """Bytes from the start of the shard to the first byte of data."""
        return self.offset + BLOCK


def parse_header(block: bytes, offset: int, file: str) -> Header:
    """Parse a header block that is not all zeros.

    Args:
        block: The 512 bytes of the block.
        offset: Offset of the block in the shard, for messages.
        file: Name of the shard, for messages.

    Raises:
        TarFormatError: The checksum is wrong, or the size is not a number.
    """
    stored = _parse_field(block, "checksum", slice(148, 156), offset, file)
    unsigned = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    # Some old writers summed the bytes as signed numbers; readers accept both sums.
    if stored != unsigned and stored != unsigned - 256 * _count_high_bytes(block):
        raise TarFormatError(
            f"{file}: {name_damage(block, offset)}: the header at byte {offset} has checksum {stored}, expected {unsigned}; "
            "fetch or write the shard again"
        )
    size = _parse_field(block, "size", slice(124, 136), offset, file)
    return Header(offset, block[156:157], join_name(block), cut_at_nul(block[157:257]), size)


def name_damage(block: bytes, offset: int) -> str:
    """Return what a message calls a file whose block at `offset` is not a header: damaged, or not a tar archive."""
    if offset:
        return "damaged"
    for magic, name in _COMPRESSIONS.items():
        if block.startswith(magic):
            return f"not a tar archive but compressed with {name}"
    return "not a tar archive"


def _count_high_bytes(block: bytes) -> int:
    return sum(byte >= 128 for byte in block[:148] + block[156:])


def _parse_field(block: bytes, what: str, where: slice, offset: int, file: str) -> int:
    try:
        return parse_number(block[where])
    except ValueError:
        raise TarFormatError(
            f"{file}: {name_damage(block, offset)}: the header at byte {offset} has {what} {block[where]!r}, expected a number that is not "
            "negative; fetch or write the shard again"
        ) from None


def parse_number(field: bytes) -> int:
    r"""Parse a numeric header field: octal digits, or GNU's base 256.

    Blanks around the digits are skipped, a NUL ends them, and an empty field is 0. A leading NUL is skipped, as in GNU
    tar: some writers let the terminator of the preceding field overflow into this one.

    Raises:
        ValueError: The field has another form, or is negative.

    Examples:
        >>> parse_number(b"00000001750" + bytes(1)), parse_number(b"   17 " + bytes(6)), parse_number(bytes(12))
        (1000, 15, 0)
        >>> parse_number(b"\x80" + (9 << 30).to_bytes(11, "big"))
        9663676416
    """
    if field[0] == _BASE_256:
        return int.from_bytes(field[1:], "big")
    if field[0] == 0:
        field = field[1:]
    digits = cut_at_nul(field).strip(b" \t")
    if not digits:
        return 0
    if not digits.isdigit():
        raise ValueError("not octal")
    return int(digits, 8)


def cut_at_nul(field: bytes) -> bytes:
    """Return the bytes before the first NUL."""
    return field.split(b"\0", 1)[0]


def join_name(block: bytes) -> bytes:
    """Return the path in a header block, prefix included."""
    name = cut_at_nul(block[:100])
    if block[257:262] != b"ustar" or (block[257:265] == _GNU_MAGIC and not _has_go_prefix(block)):
        return name
    prefix = cut_at_nul(block[345:500])
    return prefix + b"/" + name if prefix else name


def _has_go_prefix(block: bytes) -> bool:
    """Return whether a header in GNU format has a prefix, which Go before 1.8 wrote in place of GNU's two timestamps."""
    try:
        parse_number(block[345:357])
        parse_number(block[357:369])
    except ValueError:
        return cut_at_nul(block[345:500]).isascii()
    return False


def padded(size: int) -> int:
    """Return `size` rounded up to whole blocks."""
    return (size + BLOCK - 1) // BLOCK * BLOCK
