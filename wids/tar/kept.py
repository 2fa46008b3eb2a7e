"""A shard's index to a file, and back, so that a shard is scanned only once.

The container is safetensors (https://github.com/huggingface/safetensors, "Format"): a length, a JSON header that says
where each column is, and the columns. The safetensors library writes it. Reading is done here, because the library's
reader copies, while columns that are views of a mapped file are shared by all processes. Columns have a fixed width, the
narrowest that holds their numbers, so that single rows can be fetched by range. A shard under 4 GiB takes 8 bytes per
member, 9 per sample, and the keys.

The digest of the columns is checked when the file is opened, so that a damaged index is never used in part. A forged one
can have the right digest; at worst it points to other bytes of its own shard, or past its end, which is an error.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from xxhash import xxh3_64

from wids.tar.headers import BLOCK, padded
from wids.tar.index import TarIndex
from wids.tar.member_file import MemberFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from wids.source import Source
    from wids.tar.sparse import Segment

VERSION = "1"
"""Version of the format; files of another version are not read."""

_FACTS = "wids_index"
_PIECE = 4 << 20
_PROBED_HEADERS = 16
_DTYPES = {"U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "U64": np.uint64}
_COLUMNS = (
    "field_ends",
    "fields",
    "key_ends",
    "keys",
    "kind_ends",
    "kind_fields",
    "kinds",
    "offsets",
    "sizes",
    "sparse",
    "starts",
)
"""In the order in which they are digested; followed by `checksums` where present."""


def encode_index(index: TarIndex, shard: str) -> bytes:
    """Encode an index as a safetensors file.

    Args:
        index: The index of the shard.
        shard: What identifies the shard; `decode_index` compares it.
    """
    from safetensors.numpy import save

    fields = sorted({name for names in index.fields_of_kind for name in names})
    numbers = {name: number for number, name in enumerate(fields)}
    texts = [name.encode("utf-8", "surrogateescape") for name in fields]
    columns = {
        "starts": _narrow(index.starts),
        "offsets": _narrow(index.offsets),
        "sizes": _narrow(index.sizes),
        "kinds": _narrow(index.kinds),
        "key_ends": _narrow(index.key_ends),
        "keys": np.frombuffer(index.keys, np.uint8),
        "kind_ends": _ends(index.fields_of_kind),
        "kind_fields": _narrow([numbers[name] for names in index.fields_of_kind for name in names]),
        "field_ends": _ends(texts),
        "fields": np.frombuffer(b"".join(texts), np.uint8),
        "sparse": np.array(
            [(member, *segment) for member, segments in index.sparse.items() for segment in segments or [(0, 0, 0)]],
            np.uint64,
        ).reshape(-1, 4),
    }
    if index.checksums is not None:
        columns["checksums"] = index.checksums
    facts = {
        "version": VERSION,
        "shard": shard,
        "has_end_blocks": index.has_end_blocks,
        "bytes_after_end": index.bytes_after_end,
        "broken_links": [[member, text] for member, text in index.broken_links.items()],
    }
    # A single entry, because the library writes several in arbitrary order, and equal indexes must give equal bytes.
    text = orjson.dumps([facts, _digest(columns, facts)]).decode()
    saved: bytes = save(columns, metadata={_FACTS: text})
    return saved


def decode_index(data: memoryview, shard: str) -> TarIndex:
    """Decode an index from a safetensors file; its columns are views of `data`.

    Args:
        data: The whole file.
        shard: What identifies the shard; must be what `encode_index` was given.

    Raises:
        ValueError: The file is damaged, of another version, or of another shard; the message says which.
    """
    columns, facts, digest = _read_columns(data)
    if facts["version"] != VERSION:
        raise ValueError(f"it is of version {facts['version']}, expected {VERSION}")
    if facts["shard"] != shard:
        raise ValueError("it belongs to another shard, or to an earlier state of this one")
    if digest != _digest(columns, facts):
        raise ValueError("it is damaged: its digest differs")
    _check_shapes(columns)
    return TarIndex(
        starts=columns["starts"],
        offsets=columns["offsets"],
        sizes=columns["sizes"],
        kinds=columns["kinds"],
        fields_of_kind=_read_fields(columns),
        key_ends=columns["key_ends"],
        keys=columns["keys"].data,
        sparse=_read_sparse(columns["sparse"]),
        broken_links=dict(facts["broken_links"]),
        has_end_blocks=facts["has_end_blocks"],
        bytes_after_end=facts["bytes_after_end"],
        checksums=columns.get("checksums"),
    )


def add_checksums(index: TarIndex, source: Source) -> None:
    """Read all members of a shard and store the xxh3-64 of each in its index.

    Raises:
        ShardMismatchError: The shard ends before a member does.
        OSError: The shard cannot be read.
    """
    sums = np.zeros(len(index.offsets), np.uint64)
    for number, (offset, size) in enumerate(zip(index.offsets.tolist(), index.sizes.tolist(), strict=True)):
        with MemberFile(source, index.sparse.get(number, [(0, offset, size)]), size) as file:
            digest = xxh3_64()
            while piece := file.read(_PIECE):
                digest.update(piece)
        sums[number] = digest.intdigest()
    index.checksums = sums


def digest_ends(source: Source) -> str:
    """Return what identifies a shard and every copy of it: its size, and the digest of its two ends.

    The ends are the first 512 and the last 1,024 bytes: the first header, and the end of the archive.
    """
    size = source.identity.size
    digest = xxh3_64()
    for start, stop in ((0, min(512, size)), (max(0, size - 1024), size)):
        view, base = source.window(start, stop)
        digest.update(view[start - base : stop - base])
    return f"{size} {digest.hexdigest()}"


def digest_headers(source: Source, index: TarIndex) -> str:
    """Return the digest of the headers of some members spread over a shard, and of the block after the last member.

    It differs for a shard that was rewritten with the same size and the same ends.
    """
    digest = xxh3_64()
    last = len(index.offsets) - 1
    if last < 0:
        return digest.hexdigest()
    places = index.offsets[np.linspace(0, last, _PROBED_HEADERS).astype(int)].astype(np.int64) - BLOCK
    behind = int(index.offsets[last]) + padded(int(index.sizes[last]))
    spans = [(place, place + BLOCK) for place in [*places.tolist(), behind]]
    for (start, stop), (view, base) in zip(spans, source.windows(spans), strict=True):
        digest.update(view[start - base : stop - base])
    return digest.hexdigest()


def _read_columns(data: memoryview) -> tuple[dict[str, NDArray[Any]], dict[str, Any], str]:
    """Return the columns, the facts that the header has beside them, and the stored digest of both."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= len(data) - 8:
        raise ValueError("it is damaged: it ends inside its header")
    try:
        header = orjson.loads(data[8 : 8 + length])
        facts, digest = orjson.loads(header.pop("__metadata__")[_FACTS])
        facts["version"], facts["shard"]
        columns = {}
        for name, column in header.items():
            start, stop = column["data_offsets"]
            flat = np.frombuffer(data[8 + length :][start:stop], _DTYPES[column["dtype"]])
            columns[name] = flat.reshape(column["shape"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"it is damaged: its header has an impossible value: {error!r}") from error
    return columns, facts, digest


def _check_shapes(columns: Mapping[str, NDArray[Any]]) -> None:
    num_members = len(columns["offsets"])
    num_samples = len(columns["kinds"])
    lengths = {
        "sizes": num_members,
        "starts": num_samples + 1,
        "key_ends": num_samples,
        "checksums": num_members,
    }
    if (
        any(len(columns[name]) != length for name, length in lengths.items() if name in columns)
        or any(column.ndim != (2 if name == "sparse" else 1) for name, column in columns.items())
        or columns["sparse"].shape[1] != 4
    ):
        raise ValueError("it is damaged: its columns do not match each other")


def _digest(columns: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> str:
    digest = xxh3_64(orjson.dumps(facts))
    for name in (*_COLUMNS, "checksums"):
        if name in columns:
            column = np.ascontiguousarray(columns[name])
            digest.update(f"{name} {column.dtype.str} {column.shape} ".encode())
            digest.update(column.data)
        elif name != "checksums":
            raise ValueError(f"it is damaged: it has no column {name}")
    return digest.hexdigest()


def _read_fields(columns: Mapping[str, NDArray[Any]]) -> list[tuple[str, ...]]:
    names = [
        text.decode("utf-8", "surrogateescape") for text in _cut(columns["fields"].tobytes(), columns["field_ends"])
    ]
    try:
        return [
            tuple(map(names.__getitem__, kind)) for kind in _cut(columns["kind_fields"].tolist(), columns["kind_ends"])
        ]
    except IndexError:
        raise ValueError("it is damaged: a sample has a field without a name") from None


def _read_sparse(rows: NDArray[np.uint64]) -> dict[int, list[Segment]]:
    sparse: dict[int, list[Segment]] = {}
    for member, logical, stored, length in rows.tolist():
        sparse.setdefault(member, []).append((logical, stored, length))
    return sparse


def _cut(row: Any, ends: NDArray[Any]) -> list[Any]:
    """Return the pieces of `row` that end at `ends`."""
    return [row[start:stop] for start, stop in pairwise([0, *ends.tolist()])]


def _ends(pieces: list[Any]) -> NDArray[Any]:
    return _narrow(np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces))))


def _narrow(numbers: Any) -> NDArray[Any]:
    """Convert non-negative numbers to the narrowest integer dtype that holds them."""
    column = np.asarray(numbers, np.int64)
    return column.astype(np.min_scalar_type(int(column.max(initial=0))))
