"""Comparison of an object with its descriptor while it is transferred, so that no file is read a second time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.errors import ShardMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.storage.options import ChecksumKind

_REMEDY = (
    "if the shard was rewritten on purpose, run: widsindex update --recount; otherwise the stored shard is damaged, "
    "replace it"
)


@dataclass(frozen=True, slots=True)
class Expected:
    """Size and MD5 of a stored shard according to its descriptor; a value of None is not compared."""

    size: int | None = None
    """Size in bytes."""
    md5: str | None = None
    """MD5, 32 hexadecimal digits in lower case."""

    @classmethod
    def from_shard(cls, shard: Mapping[str, Any], checksum: ChecksumKind) -> Expected:
        """Return what is compared, given a shard's entry in the descriptor and the `checksum` option."""
        size = shard.get("filesize")
        md5 = shard.get("md5sum")
        return cls(
            size=None if checksum == "none" else size,
            md5=md5.lower() if checksum == "md5" and md5 else None,
        )

    def check_size(self, size: int, name: str) -> None:
        """Compare a size in bytes; `name` is the shard's, for messages.

        Raises:
            ShardMismatchError: The size differs.
        """
        if self.size is not None and size != self.size:
            raise ShardMismatchError(f"{name}: has {size} bytes, the descriptor says {self.size}; {_REMEDY}")


class Checker:
    """Compares a stream with what is expected, chunk by chunk.

    Args:
        expected: Expected size and MD5.
        name: Name of the shard, for messages.
    """

    def __init__(self, expected: Expected, name: str) -> None:
        self._expected = expected
        self._name = name
        self.reset()

    def reset(self) -> None:
        """Start again: the stream is sent from its beginning."""
        self._size = 0
        self._md5 = hashlib.md5(usedforsecurity=False) if self._expected.md5 else None

    def update(self, chunk: bytes | memoryview) -> None:
        """Add the next chunk.

        Raises:
            ShardMismatchError: The stream is longer than expected; raised before the rest of it arrives.
        """
        self._size += len(chunk)
        if self._expected.size is not None and self._size > self._expected.size:
            raise ShardMismatchError(
                f"{self._name}: has more bytes than the {self._expected.size} that the descriptor says; {_REMEDY}"
            )
        if self._md5 is not None:
            self._md5.update(chunk)

    def finish(self) -> None:
        """Compare size and MD5 of the complete stream.

        Raises:
            ShardMismatchError: Size or MD5 differ.
        """
        self._expected.check_size(self._size, self._name)
        if self._md5 is not None and self._md5.hexdigest() != self._expected.md5:
            raise ShardMismatchError(
                f"{self._name}: has MD5 {self._md5.hexdigest()}, the descriptor says {self._expected.md5}; {_REMEDY}"
            )
