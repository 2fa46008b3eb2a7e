"""Samples to one shard, member after member, in a file that is still private."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.storage.options import parse_size
from wids.tar.headers import BLOCK
from wids.tools.packing import open_packer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.tar.make_header import HeaderMaker
    from wids.tools.targets import Part

END_BYTES = 2 * BLOCK
"""Zeros that end an archive."""

_ZEROS = bytes(BLOCK)

_DEFAULT_MAX_BYTES = 10**9
"""Of a shard without any limit given: large enough to be read at full speed, small enough to be fetched for one sample."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes into one shard; a sample larger than `max_bytes` gets a shard of its own."""

    max_samples: int | None = None
    """Samples, at least 1; None for any number."""
    max_bytes: int | None = None
    """Bytes of the tar, uncompressed, its headers and end included; None for any number."""

    def __post_init__(self) -> None:
        if self.max_samples is not None and self.max_samples < 1:
            raise ValueError(f"max_samples is {self.max_samples}; it must be at least 1")

    def allow(self, num_samples: int, num_bytes: int) -> bool:
        """Tell whether a shard may have `num_samples` samples and `num_bytes` bytes, the end of the archive not counted."""
        if num_samples <= 1:
            return True
        return (self.max_samples is None or num_samples <= self.max_samples) and (
            self.max_bytes is None or num_bytes + END_BYTES <= self.max_bytes
        )


def make_limits(max_samples: float | None, max_bytes: float | str | None) -> Limits:
    """Return how much goes into a shard; numbers may be written as `1e5`.

    Raises:
        ValueError: One of them is something else.
    """
    count = None if max_samples is None else _to_count(max_samples)
    if max_bytes is None:
        return Limits(count, None if count is not None else _DEFAULT_MAX_BYTES)
    return Limits(count, parse_size(max_bytes, "max_bytes"))


def _to_count(max_samples: Any) -> int:
    if not isinstance(max_samples, (int, float, np.integer)) or max_samples % 1:
        raise ValueError(f"max_samples is {max_samples!r}; it must be a whole number")
    return int(max_samples)


class ShardFile:
    """One shard while it is written.

    Args:
        part: The private file to write; dropped when the shard cannot be begun.
        name: File name that the shard will have; its ending says how it is compressed.
        headers: Makes the headers of members.
    """

    def __init__(self, part: Part, name: str, headers: HeaderMaker) -> None:
        self.part = part
        self.name = name
        self.num_samples = 0
        self.num_bytes = 0
        try:
            self._packer = open_packer(name, part.file)
        except BaseException:
            part.drop()
            raise
        self._sink: Any = self._packer or part.file
        self._headers = headers

    def make_headers(self, members: Sequence[tuple[bytes, Any]]) -> tuple[list[bytes], int]:
        """Return the headers of a sample's `(name, data)` members if it is written next, and the shard's bytes after it."""
        headers = []
        num_bytes = self.num_bytes
        make = self._headers.make
        for name, data in members:
            size = len(data)
            header = make(name, size, num_bytes)
            headers.append(header)
            num_bytes += len(header) + size + -size % BLOCK
        return headers, num_bytes

    def add(self, members: Sequence[tuple[bytes, Any]], headers: Sequence[bytes]) -> None:
        """Write a sample.

        Args:
            members: `(name, data)` of each.
            headers: As `make_headers` returned them for these members.
        """
        write = self._sink.write
        for header, (_, data) in zip(headers, members, strict=True):
            size = len(data)
            write(header)
            write(data)
            rest = -size % BLOCK
            if rest:
                write(_ZEROS[:rest])
            self.num_bytes += len(header) + size + rest
        self.num_samples += 1

    def finish(self) -> None:
        """Write the end of the archive; then the part is complete."""
        self._sink.write(bytes(END_BYTES))
        if self._packer is not None:
            self._packer.close()
        self.part.file.flush()

    def drop(self) -> None:
        """Give the shard up: its part is removed, and what is still in buffers is written nowhere."""
        if self._packer is not None:
            # Now, because it may be collected after the file that it would write to.
            self.part.disconnect()
            with suppress(Exception):  # nobody needs what it would write, or the reason why it cannot
                self._packer.close()
        self.part.drop()
