"""The rows of a view as JSON in a descriptor.

    "rows": {
      "of": 10000000,               number of samples in the shards
      "count": 3000000,             number of rows
      "fingerprint": "9a69…",       `dataset.fingerprint` of all samples of the shards
      "ranges": [[0, 12], [40, 41]]     either: first row and (exclusive) stop of each run of consecutive rows, in order
      "bits": "eJyz…"                   or: base64 of zlib of a bit for each sample, the lowest bit of a byte first
    }

Ascending rows are written as bits where that is shorter. The fingerprint ties a selection to its data: if counts changed, or
the shards had another order, its rows would stand for other samples.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.dataset.rows import compose, find_runs, from_bits, from_runs, is_ascending, to_array, to_bits
from wids.errors import DescriptorError
from wids.fingerprint import basename, digest_data
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wids.dataset.rows import AnyRows
    from wids.descriptor import Descriptor

_RANGE_BYTES = 12
"""Approximate size of a range in JSON."""


def rows_to_json(rows: AnyRows, num_samples: int, fingerprint: str) -> dict[str, Any]:
    """Return rows as a descriptor stores them.

    Args:
        rows: Indices among all samples of the shards.
        num_samples: Number of samples in the shards.
        fingerprint: Fingerprint of all samples of the shards.
    """
    content = {"of": num_samples, "count": len(rows), "fingerprint": fingerprint}
    indices = to_array(rows)
    runs = find_runs(indices)
    if is_ascending(indices) and len(runs) * _RANGE_BYTES > num_samples // 64:
        bits = b64encode(zlib.compress(to_bits(indices, 0, num_samples))).decode()
        if len(bits) < len(runs) * _RANGE_BYTES:
            return {**content, "bits": bits}
    return {**content, "ranges": runs.tolist()}


def selected_rows(descriptor: Descriptor, counts: Sequence[int]) -> AnyRows:
    """Return where the samples of a descriptor lie among all samples of its shards: all of these if it selects none.

    Args:
        descriptor: The descriptor.
        counts: Number of samples in each of its shards.

    Raises:
        DescriptorError: The rows do not fit the shards, or contradict themselves.
    """
    if descriptor.rows is None:
        return range(sum(counts))
    fingerprint = digest_data(map(basename, descriptor.shards), counts)
    return rows_from_json(descriptor.rows, sum(counts), fingerprint, descriptor.source or "descriptor")


def rows_from_json(content: Mapping[str, Any], num_samples: int, fingerprint: str, file: str) -> AnyRows:
    """Return the rows that are stored in a descriptor.

    Args:
        content: The value of `rows` in the descriptor, whose types were checked.
        num_samples: Number of samples in the descriptor's shards.
        fingerprint: Fingerprint of all samples of the shards.
        file: Name of the descriptor, for messages.

    Raises:
        DescriptorError: The rows do not fit the shards, or contradict themselves.
    """
    if content["of"] != num_samples:
        raise DescriptorError(
            f"{file}: rows.of is {content['of']}, but its shards have {counted(num_samples, 'sample')}; write the selection again "
            "with: widsindex select"
        )
    if content["fingerprint"] != fingerprint:
        raise DescriptorError(
            f"{file}: rows.fingerprint is {content['fingerprint']!r}, but its shards have {fingerprint!r}: other names, "
            "counts or order; write the selection again with: widsindex select"
        )
    if "bits" in content:
        rows = _read_bits(content["bits"], num_samples, file)
        _check_count(content, len(rows), file)
        return rows
    ranges = content["ranges"]
    for place, (start, stop) in enumerate(ranges):
        if not 0 <= start < stop <= num_samples:
            raise DescriptorError(
                f"{file}: rows.ranges[{place}] is [{start}, {stop}]; it must be first and stop of rows among "
                f"{num_samples} samples"
            )
    _check_count(content, sum(stop - start for start, stop in ranges), file)
    return (
        compose(None, from_runs(np.array(ranges, np.int64).reshape(-1, 2))) if len(ranges) != 1 else range(*ranges[0])
    )


def _check_count(content: Mapping[str, Any], found: int, file: str) -> None:
    if found != content["count"]:
        raise DescriptorError(
            f"{file}: rows.count is {content['count']}, but it names {counted(found, 'row')}; write the selection again with: "
            "widsindex select"
        )


def _read_bits(text: str, num_samples: int, file: str) -> AnyRows:
    num_bytes = -(-num_samples // 8)
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(b64decode(text, validate=True), num_bytes + 1)
    except (ValueError, zlib.error) as error:
        raise DescriptorError(f"{file}: rows.bits is damaged: {error}; fetch the descriptor again") from error
    spare = -num_samples % 8
    if len(data) != num_bytes or (spare and data[-1] >> (8 - spare)):
        raise DescriptorError(
            f"{file}: rows.bits holds {len(data)} bytes or more, expected one bit for each of {num_samples} samples; "
            "fetch the descriptor again"
        )
    return compose(None, from_bits(data, 0))
