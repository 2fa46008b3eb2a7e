"""What happens to a sample whose bytes are damaged: raise, take another one, or ask the user."""

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
"""What is wrong with one sample, not with a package, the network or a whole shard."""

_TOLERATED = 100
_TOLERATED_SHARE = 0.01


class Replacer:
    """Applies the dataset's `on_error`, and counts what it replaced in this process.

    Args:
        on_error: `"raise"`, `"replace"`, or a callable `(error, index)`.

    Raises:
        ValueError: It is none of these.
    """

    def __init__(self, on_error: Any) -> None:
        if on_error not in {"raise", "replace"} and not callable(on_error):
            raise ValueError(f"on_error is {on_error!r}; it must be 'raise', 'replace' or a callable (error, index)")
        self._on_error = on_error
        self.replacements: Counter[str] = Counter()

    def replace(
        self, error: Exception, index: int, shard: str, accesses: int, others: Iterable[Callable[[], Any]]
    ) -> Any:
        """Return what stands for a damaged sample.

        Args:
            error: What is wrong, with its place.
            index: Of the sample.
            shard: URL of its shard.
            accesses: Samples read so far.
            others: Each reads one of the shard's other samples, the next one first.

        Raises:
            Exception: `error` itself, when it is to be raised, too much was replaced, or no other sample is readable.
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
