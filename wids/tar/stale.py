"""Whether a header that comes with a member is the one that the index tells of: a shard far away may have been written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.errors import ShardMismatchError, TarFormatError
from wids.tar.headers import BLOCK, parse_header

if TYPE_CHECKING:
    from wids.source import Window

_SURELY_WHOLE_NAME = 98
"""Writers cut a name that is longer than its place of 100 bytes, at 99 or 100."""


class StaleIndexError(ShardMismatchError):
    """The index that came with a shard is not the shard's; datasets make it anew."""


def compare_header(
    window: Window, start: int, size: int, key: str, field: str, *, is_link: bool, source_name: str
) -> None:
    """Compare the header before a member with what the index says of the member.

    Args:
        window: What was read of the shard.
        start: Bytes from the start of the shard to the header; it may lie before the window.
        size: Bytes in the member.
        key: Of its sample.
        field: Its own.
        is_link: The header is another member's, so that its name tells nothing.
        source_name: Of the shard, for messages.

    Raises:
        StaleIndexError: It is another member's, or none.
    """
    view, base = window
    block = bytes(view[start - base : start - base + BLOCK]) if start >= base else b""
    try:
        header = parse_header(block.ljust(BLOCK, b"\0"), start, source_name)
    except TarFormatError as error:
        raise StaleIndexError(str(error)) from None
    if header.size not in {size, 0} or not (is_link or _may_be_called(header.name, key + field)):
        raise StaleIndexError(
            f"{source_name}: key {key!r}, field {field!r}: has another header at byte {start} than "
            "its index says; make the index anew with: widsindex create --index"
        )


def _may_be_called(stored: bytes, name: str) -> bool:
    """Tell whether a header with this name can be that of a member, whose whole name another header may give."""
    whole = name.encode("utf-8", "surrogateescape")
    # Python's tarfile puts a question mark for each letter that is not ASCII.
    return any(
        stored == form or (len(stored) >= _SURELY_WHOLE_NAME and form.startswith(stored[:_SURELY_WHOLE_NAME]))
        for form in (whole, name.encode("ascii", "replace"))
    )
