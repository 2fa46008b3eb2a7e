"""The stream gives what CPython's `random.shuffle` gives, also after skipping."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.sampling.shuffle import ShuffleStream, Unshuffled

SIZES = st.integers(0, 700) | st.sampled_from([255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4097, 20_000])


@given(seed=st.integers(0, 2**80), sizes=st.lists(st.tuples(SIZES, st.booleans()), max_size=12))
def test_it_goes_on_as_random_shuffle_does_whether_items_are_taken_or_skipped(
    seed: int, sizes: list[tuple[int, bool]]
) -> None:
    stream, rng = ShuffleStream(seed), random.Random(seed)
    for size, skipped in sizes:
        items = list(range(size))
        rng.shuffle(items)

        if skipped:
            stream.skip(size)
        else:
            assert stream.shuffled(size).tolist() == items
        assert stream.below(size + 1) == rng.randrange(size + 1)


def test_a_copy_goes_on_alone() -> None:
    stream, alone = ShuffleStream(3), ShuffleStream(3)
    stream.skip(1000)
    alone.skip(1000)

    other = stream.copy()
    other.skip(5000)

    assert stream.shuffled(9).tolist() == alone.shuffled(9).tolist()
    alone.skip(0)
    assert other.shuffled(3000).tolist() != alone.shuffled(3000).tolist()


def test_positions_of_large_chunks_are_32_bit_numbers() -> None:
    assert ShuffleStream(0).shuffled(100_000).nbytes == Unshuffled().shuffled(100_000).nbytes == 400_000


def test_more_items_than_one_word_can_draw_are_an_error() -> None:
    with pytest.raises(ValueError, match="take smaller chunks"):
        ShuffleStream(0).skip(2**32 + 1)
