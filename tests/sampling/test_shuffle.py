"""`ShuffleStream` gives the orders of CPython's `random.shuffle`, also after skips."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.sampling.shuffle import SeparateShuffles, ShuffleStream, Unshuffled

SIZES = st.integers(0, 700) | st.sampled_from([255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 4097, 20_000])


@given(seed=st.integers(0, 2**80), sizes=st.lists(st.tuples(SIZES, st.booleans()), max_size=12))
def test_a_stream_of_shuffles_equals_random_shuffle_also_after_skips(seed: int, sizes: list[tuple[int, bool]]) -> None:
    stream, rng = ShuffleStream(seed), random.Random(seed)
    for size, skipped in sizes:
        items = list(range(size))
        rng.shuffle(items)

        if skipped:
            stream.skip(size)
        else:
            assert stream.shuffled(size).tolist() == items
        assert stream.below(size + 1) == rng.randrange(size + 1)


@pytest.mark.parametrize("bound", [1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 10**12, 2**64 + 3])
def test_numbers_below_any_bound_equal_those_of_random_randrange(bound: int) -> None:
    stream, rng = ShuffleStream(5), random.Random(5)

    assert [stream.below(bound) for _ in range(50)] == [rng.randrange(bound) for _ in range(50)]


def test_separate_shuffles_do_not_depend_on_earlier_ones() -> None:
    taken, skipped = SeparateShuffles(5), SeparateShuffles(5)

    orders = [taken.shuffled(size).tolist() for size in (10, 300, 20)]
    skipped.skip(10)

    assert skipped.shuffled(300).tolist() == orders[1]
    skipped.skip(0)
    assert skipped.shuffled(20).tolist() != orders[2]
    assert sorted(orders[0]) == list(range(10))


def test_positions_of_large_chunks_are_32_bit_numbers() -> None:
    assert ShuffleStream(0).shuffled(100_000).nbytes == Unshuffled().shuffled(100_000).nbytes == 400_000


def test_more_than_2_to_the_32_items_in_a_chunk_are_an_error() -> None:
    with pytest.raises(ValueError, match="take smaller chunks"):
        ShuffleStream(0).skip(2**32 + 1)
