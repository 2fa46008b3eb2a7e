"""What to do about a damaged sample: raise the error, use another sample, or call the user's function."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from wids.decode import OwnDecoderError
from wids.errors import DecodeError, ShardMismatchError, TarFormatError, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

logger = logging.getLogger(__name__)

DAMAGE = (DecodeError, TarFormatError, ShardMismatchError)
"""The errors that mean that one sample is damaged; missing packages, the network and whole shards raise others."""

_TOLERATED = 100
_TOLERATED_SHARE = 0.01
"""Replacements are an error when there are more of them than both this number and this share of the reads."""


class Replacer:
    """Applies a dataset's `on_error`, and counts the samples replaced in this process.

    Args:
        on_error: `"raise"`, `"replace"`, or a callable `(error, index)`.

    Raises:
        ValueError: `on_error` is none of these.
    """

    def __init__(self, on_error: Any) -> None:
        if on_error not in {"raise", "replace"} and not callable(on_error):
            raise ValueError(f"on_error is {on_error!r}; it must be 'raise', 'replace' or a callable (error, index)")
        self._on_error = on_error
        self.replacements: Counter[str] = Counter()

    def replace(
        self, error: Exception, index: int, shard: str, accesses: int, others: Iterable[Callable[[], Any]]
    ) -> Any:
        """Return the replacement for a damaged sample.

        Args:
            error: The error, whose message names the sample.
            index: Index of the sample.
            shard: URL of the sample's shard.
            accesses: Number of samples read so far.
            others: Functions that each read another sample of the shard, the next one first.

        Raises:
            Exception: `error`, if `on_error` says so, or if no other sample of the shard is readable; an error of the same
                type if too many samples were replaced.
        """
        if self._on_error == "raise" or isinstance(error, OwnDecoderError):
            raise error
        if self._on_error != "replace":
            return self._on_error(error, index)
        self.replacements[shard] += 1
        self._check_share(error, accesses)
        for read_other in others:
            try:
                sample = read_other()
            except OwnDecoderError:
                raise
            except DAMAGE:
                continue
            logger.warning("replaced: %s", error)
            return sample
        raise error

    def _check_share(self, error: Exception, accesses: int) -> None:
        replaced = self.replacements.total()
        if replaced <= _TOLERATED or replaced <= _TOLERATED_SHARE * accesses:
            return
        worst = ", ".join(f"{redact(shard)} ({count})" for shard, count in self.replacements.most_common(5))
        raise type(error)(
            f"{replaced} of {accesses} samples were damaged and replaced, most in {worst}; repair these shards. "
            f"The last one: {error}"
        ) from error
