"""The table of offsets that DALI keeps for a shard to the shard's index, and back.

    v1.2 2
    jpg 512 20481 000000.jpg cls 22016 1 000000.cls
    jpg 23040 19876 000001.jpg cls 43520 1 000001.cls

The first line has the number of samples. Each further line is a sample: extension, offset, size and name of each of its
files, separated by blanks. DALI writes and reads it in `tools/wds2idx.py` and
`dali/operators/reader/loader/webdataset_loader.cc` of https://github.com/NVIDIA/DALI. A table is used only when its files
fill the shard without a gap from the first byte to the end, because only then can it have left nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wids.tar.headers import BLOCK
from wids.tar.index import TarIndex, group_members
from wids.tar.members import Members, count_bytes_after
from wids.tar.names import Names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.source import Source

_VERSION = b"v1.2"
_MOST_BYTES_AFTER = 1 << 20
"""Most bytes between the last file and the end of a shard: end blocks and padding."""


def parse_offsets(data: bytes, source: Source) -> TarIndex:
    """Return the index of the shard that a table describes.

    Args:
        data: Content of the table.
        source: The shard; only its end is read.

    Raises:
        ValueError: The table does not belong to this shard, or does not describe all of it; the message says why.
        OSError: The shard cannot be read.
    """
    head, _, body = data.partition(b"\n")
    version, _, count = head.partition(b" ")
    words = body.split()
    if version != _VERSION or len(words) % 4 or not words:
        raise ValueError(f"it is not a table of version {_VERSION.decode()}, or a name in it has blanks")
    try:
        offsets, sizes = (np.array(column, np.int64) for column in (words[1::4], words[2::4]))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"an offset or a size in it is not a number: {error}") from None
    size = source.identity.size
    starts = first_headers(offsets, sizes)
    end = int(stops_of(offsets, sizes)[-1])
    if starts is None or end > size or size - end > _MOST_BYTES_AFTER:
        raise ValueError("the files in it do not fill the shard without a gap")
    view, base = source.window(end, min(end + BLOCK, size))
    if bytes(view[end - base : end + BLOCK - base]).strip(b"\0"):
        raise ValueError("the shard continues after the last file in it")
    has_end_blocks = end + BLOCK <= size
    after = count_bytes_after(source, end) if has_end_blocks else 0
    index = group_members(Members(Names.of(words[3::4]), offsets, sizes, {}, {}, end, has_end_blocks, after))
    if str(index.num_samples).encode() != count.strip():
        raise ValueError(f"it says that there are {count[:20]!r} samples, but names {index.num_samples}")
    return index


def format_offsets(names: list[list[tuple[str, str]]], offsets: list[int], sizes: list[int]) -> bytes:
    """Return the table of a shard.

    Args:
        names: For each sample, extension and name of each of its files.
        offsets: Bytes from the start of the shard to each file's first byte, for the files of all samples in order.
        sizes: Bytes in each file, in the same order.

    Raises:
        ValueError: A name or an extension is empty or has blanks, which a table cannot hold.
    """
    lines = [f"{_VERSION.decode()} {len(names)}"]
    place = 0
    for sample in names:
        words = []
        for extension, name in sample:
            if (
                len(extension.split()) != 1
                or len(name.split()) != 1
                or extension != extension.strip()
                or name != name.strip()
            ):
                raise ValueError(
                    f"the file {name!r} has blanks in its name or no extension, which such a table cannot hold; rename it"
                )
            words.append(f"{extension} {offsets[place]} {sizes[place]} {name}")
            place += 1
        lines.append(" ".join(words))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def first_headers(offsets: NDArray[np.integer], sizes: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """Return where the header of each file begins, provided that nothing but these headers is between the files.

    Args:
        offsets: `(num_members,)` integers, bytes from the start of the shard to each file's first byte, in archive order.
        sizes: `(num_members,)` integers, bytes in each file.

    Returns:
        `(num_members,)` int64, bytes from the start of the shard; None when something else is between the files.
    """
    headers = offsets.astype(np.int64) - BLOCK
    if len(headers) and (headers[0] != 0 or (sizes < 0).any()):
        return None
    return headers if np.array_equal(headers[1:], stops_of(offsets, sizes)[:-1]) else None


def stops_of(offsets: NDArray[np.integer], sizes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each file ends, padding included: `(num_members,)` int64, bytes from the start of the shard."""
    return offsets.astype(np.int64) + -(-sizes.astype(np.int64) // BLOCK) * BLOCK
