"""Compare the header that was fetched with a member with the index, since a remote shard may have been rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.errors import ShardMismatchError, TarFormatError
from wids.tar.headers import BLOCK, parse_header

if TYPE_CHECKING:
    from wids.source import Window

_SHORTEST_CUT_NAME = 98
"""Bytes from which on a stored name may be cut short: writers cut at 99 or 100 bytes, the width of the field."""


class StaleIndexError(ShardMismatchError):
    """The index does not belong to the shard in its present state; datasets rebuild it."""


def compare_header(
    window: Window, start: int, size: int, key: str, field: str, *, is_link: bool, source_name: str
) -> None:
    """Compare the header before a member with what the index says about the member.

    Args:
        window: The bytes that were read from the shard.
        start: Bytes from the start of the shard to the header; may be before the window.
        size: Bytes in the member.
        key: Key of the member's sample.
        field: The member's field.
        is_link: The member is a hard link, so that the header is another member's and its name is not compared.
        source_name: Name of the shard, for messages.

    Raises:
        StaleIndexError: The header is another member's, or there is no header.
    """
    view, base = window
    block = bytes(view[start - base : start - base + BLOCK]) if start >= base else b""
    try:
        header = parse_header(block.ljust(BLOCK, b"\0"), start, source_name)
    except TarFormatError as error:
        raise StaleIndexError(str(error)) from None
    if header.size not in {size, 0} or not (is_link or _may_be_called(header.name, key + field)):
        raise StaleIndexError(
            f"{source_name}: key {key!r}, field {field!r}: the header at byte {start} is not the "
            "one that its index describes; make the index again with: widsindex create --index"
        )


def _may_be_called(stored: bytes, name: str) -> bool:
    """Return whether `stored` can be the name in the header of the member `name`.

    It may be cut short: the full name is then in an extension header.
    """
    whole = name.encode("utf-8", "surrogateescape")
    # Python's tarfile replaces each character that is not ASCII with a question mark.
    return any(
        stored == form or (len(stored) >= _SHORTEST_CUT_NAME and form.startswith(stored[:_SHORTEST_CUT_NAME]))
        for form in (whole, name.encode("ascii", "replace"))
    )
