"""A seed to shuffled positions: the orders that CPython's `random.shuffle` gives, and skips them cheaply.

`random.shuffle` of `n` items draws, for each `i` from `n - 1` down to 1, the top bits of one 32-bit word of the Mersenne
twister, as many as `i` has room for, until they are at most `i`, and swaps the items `i` and that number. Which words are
taken depends only on `n` and on the words. So whole blocks of words are judged at once here, and a shuffle that nobody
looks at only has its words counted, without a swap, in a fifth of the time.

Source: CPython, `Lib/random.py`, `shuffle` and `_randbelow_with_getrandbits`, the same from 3.10 to 3.14.
"""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

Positions = NDArray[Any]
"""`(n,) int32 or int64`, each position from 0 to `n - 1` once."""

_ONE_BY_ONE = 256
"""Up to this many items, a loop is faster than arrays."""

_BLOCK = 1 << 16
"""Draws that are made together, at most."""

_LARGEST = 1 << 32
"""Items beyond which a draw takes more than one word."""

_WORDS = 4096
"""Words made at a time, at least, once that many are likely to be needed."""


class Unshuffled:
    """Gives positions in their order; stands where a `ShuffleStream` may stand."""

    def shuffled(self, num_items: int) -> Positions:
        """Return the positions as they are."""
        return np.arange(num_items, dtype=_dtype(num_items))

    def skip(self, num_items: int) -> None:
        """Do nothing."""


class ShuffleStream:
    """What one `random.Random(seed)` would give when it shuffles one list after another.

    Args:
        seed: Of the order.

    Examples:
        >>> items, rng = list(range(5)), random.Random(7)
        >>> rng.shuffle(items)
        >>> ShuffleStream(7).shuffled(5).tolist() == items
        True
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # an order, no secret
        self._words: NDArray[np.int64] = np.empty(0, np.int64)
        self._next = 0
        self._made = 64

    def shuffled(self, num_items: int) -> Positions:
        """Return the positions of `num_items` items after a shuffle.

        Raises:
            ValueError: They are more than 2**32.
        """
        draws = self._draw(num_items)
        dtype = _dtype(num_items)
        items = array(np.dtype(dtype).char, range(num_items))
        place = num_items
        for others in draws:
            for other in others:
                place -= 1
                items[place], items[other] = items[other], items[place]
        return np.frombuffer(items, dtype)

    def skip(self, num_items: int) -> None:
        """Go on as if `num_items` items had been shuffled."""
        for _ in self._draw(num_items):
            pass

    def below(self, bound: int) -> int:
        """Return a number from 0 to `bound - 1`, as `random.Random.randrange` draws it."""
        bits = bound.bit_length()
        num_words = -(-bits // 32)
        while True:
            words = self._peek(num_words).tolist()
            words[-1] >>= 32 * num_words - bits
            self._next += num_words
            number = sum(word << 32 * place for place, word in enumerate(words))
            if number < bound:
                return int(number)

    def _draw(self, num_items: int) -> Iterator[list[int]]:
        """Return what each item from the last down to the second is swapped with, some at a time."""
        if num_items > _LARGEST:
            raise ValueError(
                f"{num_items} items are shuffled together; at most {_LARGEST} can be, so take smaller chunks"
            )
        return self._draw_blocks(num_items)

    def _draw_blocks(self, num_items: int) -> Iterator[list[int]]:
        high = num_items - 1
        while high >= _ONE_BY_ONE:
            # Down to `low`, draws have the same number of bits.
            bits = (high + 1).bit_length()
            low = max((1 << bits - 1) - 1, _ONE_BY_ONE)
            taken = self._draw_block(high, min(high - low + 1, _BLOCK), 32 - bits)
            high -= len(taken)
            yield taken.tolist()
        yield self._draw_singly(high)

    def _draw_block(self, high: int, count: int, shift: int) -> NDArray[np.int64]:
        """Return some of the next `count` draws, at least one; the first is at most `high`, the next at most one less."""
        numbers = self._peek(count + (count >> 1) + 16) >> shift
        taken = numbers <= high
        while True:
            # A draw is taken when it is within a bound that falls with each one taken before. What that says of itself
            # has one solution only, and each round settles at least one more draw for good, in practice nearly all.
            before: NDArray[np.int64] = np.cumsum(taken) - taken
            again = numbers <= high - before
            if np.array_equal(taken, again):
                break
            taken = again
        places = np.flatnonzero(taken)[:count]
        self._next += int(places[-1]) + 1 if len(places) == count else len(numbers)
        return numbers[places]

    def _draw_singly(self, high: int) -> list[int]:
        draws = []
        while high > 0:
            shift = 32 - (high + 1).bit_length()
            used = 0
            for word in self._peek(2 * high).tolist():
                used += 1
                number = word >> shift
                if number <= high:
                    draws.append(number)
                    high -= 1
                    if high == 0:
                        break
                    shift = 32 - (high + 1).bit_length()
            self._next += used
        return draws

    def _peek(self, num_words: int) -> NDArray[np.int64]:
        """Return the next words, without taking them."""
        if len(self._words) - self._next < num_words:
            self._made = max(num_words, min(2 * self._made, _WORDS))
            # As many bits are as many words, the first one lowest.
            raw = self._random.getrandbits(32 * self._made).to_bytes(4 * self._made, "little")
            more = np.frombuffer(raw, "<u4").astype(np.int64)
            self._words = np.concatenate([self._words[self._next :], more])
            self._next = 0
        return self._words[self._next : self._next + num_words]


class SeparateShuffles:
    """Shuffles each list with a stream of its own, so that skipping one costs nothing.

    Args:
        seed: Of all of them; their numbers are counted from it, up to 2**32.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def shuffled(self, num_items: int) -> Positions:
        """Return the positions of `num_items` items after a shuffle."""
        self._seed += 1
        return ShuffleStream(self._seed - 1).shuffled(num_items)

    def skip(self, _num_items: int) -> None:
        """Go on to the next list."""
        self._seed += 1


def _dtype(num_items: int) -> type[np.int32 | np.int64]:
    return np.int32 if num_items <= np.iinfo(np.int32).max else np.int64
