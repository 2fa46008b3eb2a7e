"""A shard to the places of its samples' files, for the writers of other index formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from wids.errors import WidsError, redact
from wids.fingerprint import basename
from wids.shard_cache import ShardCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.storage import Storage


class File(NamedTuple):
    """One file of a sample."""

    extension: str
    """The field without its leading dot."""
    offset: int
    """Bytes from the start of the shard to its first byte."""
    size: int
    """Bytes in it."""


class Sample(NamedTuple):
    """One sample."""

    key: str
    """What its files share."""
    files: list[File]
    """In archive order."""


def read_samples(shard: Mapping[str, Any], storage: Storage) -> list[Sample]:
    """Return the samples of a shard with the places of their files; as many samples as the descriptor says.

    Raises:
        WidsError: The shard cannot be read, is compressed, or has a sparse file, which lies in several pieces.
    """
    url = str(shard["url"])
    if not basename(url).lower().endswith(".tar"):
        raise WidsError(f"{redact(url)}: is compressed, and other tools read only plain .tar; unpack the shards first")
    reader = ShardCache([shard], storage, 1).get(0)
    count = reader.num_samples if shard.get("nsamples") is None else shard["nsamples"]
    try:
        return [
            Sample(
                reader.key(position),
                [File(field[1:], place.offset, place.size) for field, place in reader.locate(position, url).items()],
            )
            for position in range(count)
        ]
    except ValueError as error:
        raise WidsError(f"{redact(url)}: cannot be indexed for other tools: {error}") from error
