"""Many shards to what is in each; those that a journal knows and that have not changed are not read again."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from wids.closing import threads
from wids.errors import FetchError, WidsError, redact
from wids.storage.locations import locate, unsigned
from wids.storage.progress import format_size
from wids.tools.describe import ShardDescription, Wanted, describe_shard
from wids.tools.progress import make_bar
from wids.tools.spread import spread
from wids.words import storable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor

    from typing_extensions import Self

    from wids.storage import Storage
    from wids.tools.journal import Journal

_log = logging.getLogger(__name__)

_ASKED_AT_ONCE = 16
"""Remote shards whose tags are asked for at the same time."""


class Survey:
    """Finds out what is in shards.

    Args:
        journal: An open one, which has what was found before, and takes what is found now.
        storage: Opens shards.
        wanted: What to find out about each.
    """

    def __init__(self, journal: Journal, storage: Storage, wanted: Wanted) -> None:
        self._journal = journal
        self._storage = storage
        self._wanted = wanted
        self.found: dict[str, ShardDescription] = {}
        """By URL; without the shards' indexes, which the journal has."""

    def run(self, shards: Mapping[str, str], executor: Executor | None, *, progress: bool) -> dict[str, str]:
        """Find out about the shards that the journal does not know; return errors by URL, of those that cannot be read.

        Args:
            shards: By URL, what the descriptor and the pack call them.
            executor: Reads them; None for one after the other in this thread.
            progress: Show a bar when it takes more than a moment.

        Raises:
            WidsError: A process of the executor was ended.
            OSError: The journal cannot be written.
        """
        missing = self._look_up(shards)
        work = partial(_try_describe, self._storage, self._wanted)
        errors: dict[str, str] = {}
        with _Bar(len(shards), list(self.found.values()), is_shown=progress) as bar:
            for (url, _), result in spread(work, missing.items(), executor):
                if isinstance(result, str):
                    errors[url] = result
                else:
                    self._journal.add(_same(url), result)
                    self.found[url] = result.without_pack()
                bar.add(result)
        for url, name in shards.items():
            # Logged here and not where the shard is read, which may be a process whose log nobody sees.
            for note in self.found[url].notes if url in self.found else []:
                _log.warning("%s: %s", redact(name), note)
        return {url: errors[url] for url in shards if url in errors}

    def packed(self, url: str, name: str) -> tuple[str, bytes]:
        """Return what a pack holds of a shard that was found.

        Args:
            url: Of the shard.
            name: What the pack calls it.
        """
        return self._journal.packed(_same(url), name)

    def settle(self) -> None:
        """Let the journal keep these shards alone; descriptor and pack must have been written."""
        self._journal.settle(map(_same, self.found))

    def _look_up(self, shards: Mapping[str, str]) -> dict[str, ShardDescription | None]:
        """Use what is known; return the shards that must be read, each with what is known of it nevertheless, or None."""
        known = {url: self._journal.find(_same(url), name) for url, name in shards.items()}
        asked = [url for url, found in known.items() if found is not None and found.identity is not None]
        missing = dict.fromkeys(shards)
        with threads(_ASKED_AT_ONCE) as pool:
            for url, identity in zip(asked, pool.map(self._storage.stored.identify, asked), strict=True):
                found = known[url]
                if found is None or found.identity != identity:
                    continue
                if found.lacks(self._wanted):
                    missing[url] = found.without_pack()
                else:
                    del missing[url]
                    self.found[url] = found.without_pack()
        return missing


class _Bar:
    """A bar that shows shards, time left, samples and bytes."""

    def __init__(self, num_shards: int, done: list[ShardDescription], *, is_shown: bool) -> None:
        self._num_samples = sum(found.num_samples for found in done)
        self._num_bytes = sum(found.size for found in done)
        self._bar = make_bar("indexing", num_shards, num_done=len(done), is_shown=is_shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def add(self, result: ShardDescription | str) -> None:
        """Count a shard that is done."""
        if not isinstance(result, str):
            self._num_samples += result.num_samples
            self._num_bytes += result.size
            self._bar.set_postfix_str(
                f"{self._num_samples:,} {'sample' if self._num_samples == 1 else 'samples'}, {format_size(self._num_bytes)}",
                refresh=False,
            )
        self._bar.update()


def _try_describe(
    storage: Storage, wanted: Wanted, shard: tuple[str, ShardDescription | None]
) -> ShardDescription | str:
    """Return what is in a shard, or why it cannot be read."""
    url, known = shard
    try:
        return describe_shard(url, storage, wanted, known)
    except (WidsError, OSError) as error:
        return str(error)


def _same(url: str) -> str:
    """Return what the journal calls a shard: an absolute URL or path, without the signature that expires."""
    try:
        return storable(unsigned(locate(url)))  # the name of a folder may be no UTF-8, which JSON cannot hold
    except FetchError:
        return url  # opening it raises an error that says what is wrong
