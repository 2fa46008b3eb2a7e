"""Turn a seed into shuffled positions: the same orders as CPython's `random.shuffle` gives, but cheap to skip.

To shuffle `n` items, `random.shuffle` goes through `i` from `n - 1` down to 1. It draws 32-bit words from the Mersenne
Twister and looks at the top bits of each, as many as `i + 1` has, until these form a number of at most `i`; then it
swaps the items at `i` and at that number. Which words are accepted depends only on `n` and on the words. So this module
judges whole blocks of words at once. Where the result of a shuffle is not needed, it only counts the words and swaps
nothing, which takes a fifth of the time.

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
"""`(n,) int32 or int64`: each position from 0 to `n - 1` once."""

_ONE_BY_ONE = 256
"""Up to this many items, a loop is faster than arrays."""

_BLOCK = 1 << 16
"""Maximum number of draws that are made together."""

_LARGEST = 1 << 32
"""Maximum number of items: with more, a draw would take more than one word."""

_WORDS = 4096
"""Size to which the batches of generated words grow, each twice as large as the one before."""


class Unshuffled:
    """Takes the place of a `ShuffleStream` where nothing is shuffled."""

    def shuffled(self, num_items: int) -> Positions:
        """Return the positions of `num_items` items in order."""
        return np.arange(num_items, dtype=_dtype(num_items))

    def skip(self, num_items: int) -> None:
        """Do nothing."""


class ShuffleStream:
    """The results of one `random.Random(seed)` that shuffles one list after another.

    Args:
        seed: The seed of the generator.

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
            ValueError: There are more than 2**32 items.
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
        """Advance as if `num_items` items had been shuffled."""
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
        """Yield blocks of the positions that the items from the last down to the second are swapped with."""
        if num_items > _LARGEST:
            raise ValueError(
                f"{num_items} items are shuffled together; at most {_LARGEST} can be, so take smaller chunks"
            )
        return self._draw_blocks(num_items)

    def _draw_blocks(self, num_items: int) -> Iterator[list[int]]:
        high = num_items - 1
        while high >= _ONE_BY_ONE:
            # From `high` down to `low`, draws have the same number of bits.
            bits = (high + 1).bit_length()
            low = max((1 << bits - 1) - 1, _ONE_BY_ONE)
            taken = self._draw_block(high, min(high - low + 1, _BLOCK), 32 - bits)
            high -= len(taken)
            yield taken.tolist()
        yield self._draw_singly(high)

    def _draw_block(self, high: int, count: int, shift: int) -> NDArray[np.int64]:
        """Return up to `count` of the next draws, at least one; their bound is `high` and falls by one with each."""
        numbers = self._peek(count + (count >> 1) + 16) >> shift
        taken = numbers <= high
        while True:
            # A draw is taken if it is within a bound that falls by one with each draw taken before it. This condition
            # refers to itself, but it has exactly one solution, which the loop approaches: each round settles at least
            # one more draw for good, and in practice nearly all.
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
        """Return the next words without consuming them."""
        if len(self._words) - self._next < num_words:
            self._made = max(num_words, min(2 * self._made, _WORDS))
            # One call for many bits gives the same words as a call for each word, the first word in the lowest bits.
            raw = self._random.getrandbits(32 * self._made).to_bytes(4 * self._made, "little")
            more = np.frombuffer(raw, "<u4").astype(np.int64)
            self._words = np.concatenate([self._words[self._next :], more])
            self._next = 0
        return self._words[self._next : self._next + num_words]


class SeparateShuffles:
    """Shuffles each list with a generator of its own, so that skipping one costs nothing.

    Args:
        seed: The seed of the first list; each further list has the next number, for up to 2**32 lists.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def shuffled(self, num_items: int) -> Positions:
        """Return the positions of `num_items` items after a shuffle."""
        self._seed += 1
        return ShuffleStream(self._seed - 1).shuffled(num_items)

    def skip(self, _num_items: int) -> None:
        """Advance to the next list."""
        self._seed += 1


def _dtype(num_items: int) -> type[np.int32 | np.int64]:
    return np.int32 if num_items <= np.iinfo(np.int32).max else np.int64
