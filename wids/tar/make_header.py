"""A member's name and size to the header blocks that precede its data.

A ustar header (POSIX.1-1988) is enough for names up to 255 bytes with a slash in the right place, and for sizes below
8 GiB. Longer names and larger sizes go into a pax header before it (POSIX.1-2001, "pax Extended Header"). To align the
data, the pax header gets a comment of the right length; readers ignore comments.

Owner, permissions and time are the same for all members, so that equal names and data give equal bytes.
"""

from __future__ import annotations

from wids.tar.headers import BLOCK, padded

LARGEST_ALIGNMENT = 64 << 10
"""Largest alignment in bytes. The comment can be as long, and the fast scan of wids reads pax headers up to this size."""

LONGEST_PLAIN_NAME = 100
"""Bytes of the longest name that always fits one header block; longer ones fit with a slash in the right place."""
LARGEST_PLAIN_SIZE = 8**11 - 1
"""Largest size of a member, in bytes, that fits one header block."""

_LONGEST_PREFIX = 155
_LARGEST_MTIME = 8**11 - 1
_PAX_NAME = b"././@PaxHeader"
_MAGIC = b"ustar\x0000"


class HeaderMaker:
    """Makes headers of files that differ in name and size only.

    Args:
        mtime: Modification time of all members, in seconds since the epoch, at least 0.
        align: Data begins at multiples of this number of bytes, a power of two from 512 to `LARGEST_ALIGNMENT`. None for
            512, the block size.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(self, *, mtime: int = 0, align: int | None = None) -> None:
        if not 0 <= mtime <= _LARGEST_MTIME:
            raise ValueError(f"mtime is {mtime}; it must be from 0 to {_LARGEST_MTIME}, in seconds since 1970")
        align = BLOCK if align is None else align
        if not BLOCK <= align <= LARGEST_ALIGNMENT or align & (align - 1):
            raise ValueError(
                f"align is {align}; it must be a power of two from {BLOCK} to {LARGEST_ALIGNMENT}, or None"
            )
        self.align = align
        self._owner = b"0000644\0" + 2 * b"0000000\0"
        self._time = b"\0%011o\0" % mtime
        self._rest = _MAGIC + bytes(64) + 2 * b"0000000\0"
        # The part of the checksum that all headers share. The checksum's own field counts as blanks.
        self._sum = sum(self._owner) + sum(self._time) + 8 * ord(" ") + sum(self._rest)

    def make(self, name: bytes, size: int, offset: int = 0) -> bytes:
        """Return the header blocks of a member: one block, or at least three when a pax header is needed.

        Args:
            name: Path of the member, any bytes except NUL.
            size: Bytes of data.
            offset: Offset of these blocks in the shard; used with `align` only.

        Raises:
            ValueError: The name is empty or has a NUL.

        Examples:
            >>> len(HeaderMaker().make(b"a.txt", 5)), len(HeaderMaker().make(b"a" * 300 + b".txt", 5))
            (512, 1536)
            >>> (1024 + len(HeaderMaker(align=4096).make(b"a.txt", 5, 1024))) % 4096
            0
        """
        if len(name) <= LONGEST_PLAIN_NAME and size <= LARGEST_PLAIN_SIZE and (offset + BLOCK) % self.align == 0:
            return self._ustar(name, b"", size)
        return self._extended(name, size, offset)

    def _extended(self, name: bytes, size: int, offset: int) -> bytes:
        prefix, short = _split(name)
        records = b""
        if not short:
            records += _record(b"path", name)
            short = name[:LONGEST_PLAIN_NAME]
        if size > LARGEST_PLAIN_SIZE:
            records += _record(b"size", b"%d" % size)
        own = self._ustar(short, prefix, size if size <= LARGEST_PLAIN_SIZE else 0)
        records += self._comment(len(records), offset)
        if not records:
            return own
        return self._ustar(_PAX_NAME, b"", len(records), b"x") + records.ljust(padded(len(records)), b"\0") + own

    def _comment(self, num_bytes: int, offset: int) -> bytes:
        """Return the comment that aligns the data, for a pax header with `num_bytes` of other records; may be empty."""
        behind = offset + BLOCK + (BLOCK + padded(num_bytes) if num_bytes else 0)
        if behind % self.align == 0:
            return b""
        # A pax header, the records, and the member's own header precede the data; the records get the right length.
        length = -(offset + 2 * BLOCK) % self.align
        while length < num_bytes + len(_record(b"comment", b"")):
            length += self.align
        return _record_of_length(b"comment", length - num_bytes)

    def _ustar(self, name: bytes, prefix: bytes, size: int, kind: bytes = b"0") -> bytes:
        if not name or b"\0" in name or b"\0" in prefix:
            raise ValueError(f"the name {prefix + name!r} is empty, or has a NUL")
        digits = b"%011o" % size
        checksum = self._sum + sum(name) + sum(digits) + sum(prefix) + kind[0]
        return b"%b%b%b%b%06o\0 %b%b%b%b" % (
            name.ljust(100, b"\0"),
            self._owner,
            digits,
            self._time,
            checksum,
            kind,
            bytes(100),
            self._rest,
            prefix.ljust(167, b"\0"),
        )


def _split(name: bytes) -> tuple[bytes, bytes]:
    """Split a name into ustar's prefix and name; both are empty when it does not fit."""
    if len(name) <= LONGEST_PLAIN_NAME:
        return b"", name
    slash = name.find(b"/", len(name) - LONGEST_PLAIN_NAME - 1)
    if not 0 < slash <= _LONGEST_PREFIX or slash == len(name) - 1:
        return b"", b""
    return name[:slash], name[slash + 1 :]


def _record(key: bytes, value: bytes) -> bytes:
    r"""Return a pax record, whose length counts its own digits.

    Examples:
        >>> _record(b"path", b"abcd"), _record(b"path", b"a" * 90)[:9]
        (b'13 path=abcd\n', b'99 path=a')
    """
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)


def _record_of_length(key: bytes, length: int) -> bytes:
    """Return a record of `length` bytes whose value is blanks."""
    return b"%d %b=%b\n" % (length, key, b" " * (length - len(key) - 3 - len(str(length))))
