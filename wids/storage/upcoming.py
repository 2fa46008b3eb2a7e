"""The shards that a process needs next: another process fetches or copies them, and they are protected from removal."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.errors import WidsError
from wids.storage.ahead import FetchAhead
from wids.storage.locations import locate
from wids.storage.process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from wids.storage.storage import Storage

_log = logging.getLogger(__name__)

_MOST_COPYING = 64
"""Most copies of local shards that are tracked at a time; the oldest request is forgotten first."""


class Upcoming:
    """Has shards brought into the disk cache before they are read.

    Args:
        storage: Storage that fetches them.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._ahead = PerProcess(lambda: FetchAhead(storage))
        self._announcement = PerProcess(storage.space.announcement)
        self._wanted: list[Mapping[str, Any]] = []
        self._copying: dict[str, tuple[Mapping[str, Any], str]] = {}

    def want(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Fetch shards in the background, the next one first, instead of those of an earlier call; return at once."""
        self._wanted = list(shards)
        self._announce(shards)
        self._tell()

    def copy(self, shard: Mapping[str, Any], path: str) -> None:
        """Copy a local shard to this path in the background; return at once."""
        self._copying[shard["url"]] = (shard, path)
        for url, (_, made) in list(self._copying.items()):
            if Path(made).exists() or len(self._copying) > _MOST_COPYING:
                self._copying.pop(url, None)
        self._tell()

    def is_copied(self, url: str) -> bool:
        """Return whether a copy that `copy` asked for is complete by now."""
        copying = self._copying.get(url)
        return copying is not None and Path(copying[1]).exists()

    def stop(self) -> None:
        """Stop the process that fetches shards, if there is one, and withdraw all requests."""
        self._wanted = []
        self._copying.clear()
        for made in (self._ahead.take(), self._announcement.take()):
            if made is not None:
                made.close()

    def _tell(self) -> None:
        self._ahead.get().want([*self._wanted, *(shard for shard, _ in list(self._copying.values()))])

    def _announce(self, shards: Sequence[Mapping[str, Any]]) -> None:
        """Announce to all processes that use the cache folder what is needed next, so that they do not remove it."""
        # Local shards are skipped unless they are copied: finding out whether one is compressed would read from it.
        cache_local = self._storage.options.cache_local
        may_be_cached = [shard for shard in shards if cache_local or locate(shard["url"]).kind != "local"]
        ids = [shard_id for shard in may_be_cached if (shard_id := self._storage.cached_as(shard)) is not None]
        try:
            if ids and not self._announcement.is_made:
                self._storage.make_cache_folder()
            if ids or self._announcement.is_made:
                self._announcement.get().tell(ids)
        except (WidsError, OSError) as error:
            _log.debug("what is needed next is not announced: %s", error)
