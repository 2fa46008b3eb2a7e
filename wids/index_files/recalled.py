"""What index packs say about shards that are not at hand, held against the shards once they are opened.

A pack's index can be compared with the whole of its shard only when the shard is there. Before that it answers for the
shard if the pack has one entry of the shard's name, of the size that the descriptor states, and with at least its count of
samples. What was told is kept as a digest. Opening a shard of which other samples or places were told is an error, so that
no read contradicts an answer unnoticed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.errors import ShardMismatchError, redact
from wids.tar import Listing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wids.index_files.files import IndexFiles
    from wids.storage import Storage

_MOST_KEPT = 64
"""Listings that are kept; to make one takes about a millisecond for a shard of 10,000 samples."""


class Recalled:
    """Lists shards without opening them; safe to use from several threads and after a fork.

    Args:
        storage: Tells which shards are at hand.
        files: Finds their indexes.
    """

    def __init__(self, storage: Storage, files: IndexFiles) -> None:
        self._storage = storage
        self._files = files
        self._kept: dict[int, Listing] = {}
        self.told: dict[int, int] = {}
        """Number of a shard to the digest of the index that was told of it."""

    def find(self, number: int, shard: Mapping[str, Any]) -> Listing | None:
        """Return the listing of a shard that would have to be fetched or copied; None when only the shard can tell.

        Args:
            number: Number of the shard.
            shard: The shard's entry in the descriptor.

        Raises:
            FetchError: It is a local shard that is not there, or the cache folder cannot be used.
            ShardMismatchError: Something else was told of the shard before; or it is a local one of another size than the
                descriptor says.
        """
        listing = self._kept.get(number)
        if listing is not None or self._storage.is_at_hand(shard):
            return listing
        index = self._files.recall(shard)
        if index is None:
            return None
        listing = Listing(index, redact(str(shard["url"])))
        self.check(number, listing)
        self.note(number, listing)
        self._kept[number] = listing
        for oldest in list(self._kept)[:-_MOST_KEPT]:
            self._kept.pop(oldest, None)
        return listing

    def note(self, number: int, listing: Listing) -> None:
        """Remember that samples of a shard are told from this listing, which was not compared with the shard itself."""
        if number not in self.told:
            self.told[number] = listing.index.digest()

    def check(self, number: int, listing: Listing) -> None:
        """Compare a shard with what was told of it, if anything was.

        Args:
            number: Number of the shard.
            listing: What its index says now.

        Raises:
            ShardMismatchError: Other samples, fields or places were told.
        """
        told = self.told.get(number)
        if told is not None and told != listing.index.digest():
            self._kept.pop(number, None)
            raise ShardMismatchError(
                f"{listing.name}: its samples or their places differ from what its index said before it was opened; "
                "open the dataset again, and write its index pack again with: widsindex create --index"
            )

    def forget(self) -> None:
        """Release the listings; what was told stays known."""
        self._kept.clear()
