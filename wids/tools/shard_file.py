"""Samples to one shard, member after member, into a file that nobody else sees yet."""

from __future__ import annotations

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
"""Of a shard for which nothing else was said: large enough to be read in one go, small enough to be fetched for one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes into one shard; a sample that is larger than all bytes gets a shard of its own."""

    max_samples: int | None = None
    """Samples, at least 1; None for any number."""
    max_bytes: int | None = None
    """Bytes of the tar, uncompressed, its headers and end included; None for any number."""

    def __post_init__(self) -> None:
        if self.max_samples is not None and self.max_samples < 1:
            raise ValueError(f"max_samples is {self.max_samples}; it must be at least 1")

    def allow(self, num_samples: int, num_bytes: int) -> bool:
        """Tell whether a shard may have so many samples, in so many bytes without the archive's end."""
        if num_samples <= 1:
            return True
        return (self.max_samples is None or num_samples <= self.max_samples) and (
            self.max_bytes is None or num_bytes + END_BYTES <= self.max_bytes
        )


def make_limits(max_samples: float | None, max_bytes: float | str | None) -> Limits:
    """Return how much goes into a shard; numbers may be written as `1e5`.

    Raises:
        ValueError: One of them is no such number.
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
        part: Where it is written to.
        name: That it will have, which says how it is compressed.
        headers: Makes what stands before data.
    """

    def __init__(self, part: Part, name: str, headers: HeaderMaker) -> None:
        self.part = part
        self.name = name
        self.num_samples = 0
        self.num_bytes = 0
        self._packer = open_packer(name, part.file)
        self._sink: Any = self._packer or part.file
        self._headers = headers

    def make_headers(self, members: Sequence[tuple[bytes, Any]]) -> tuple[list[bytes], int]:
        """Return the headers of a sample's `(name, data)` if it is written now, and how long the shard is then."""
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
            headers: What `make_headers` returned for them.
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
        """Write the end of the archive; the part has all of it then."""
        self._sink.write(bytes(END_BYTES))
        if self._packer is not None:
            self._packer.close()
        self.part.file.flush()
