"""Laws of `DistributedChunkedSampler`, for any data, lanes, ranks and flags; the oracle is made of nested loops."""

from __future__ import annotations

import json
import logging
from itertools import chain, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampling.oracle import Case, dealt, places_of
from wids.sampling import ChunkedSampler, DistributedChunkedSampler


@st.composite
def any_case(draw: st.DrawFn) -> Case:
    shuffle = draw(st.booleans())
    drop_last = draw(st.booleans())
    return Case(
        n=draw(st.integers(0, 120)),
        lanes=draw(st.integers(1, 9)),
        chunksize=draw(st.integers(1, 40) | st.just(1000)),
        seed=draw(st.integers(0, 5)),
        shuffle=shuffle,
        shufflefirst=draw(st.booleans()),
        drop_last=drop_last,
        even=drop_last or draw(st.booleans()),
        repartition=shuffle and draw(st.booleans()),
    )


CASES = any_case()
EPOCHS = st.integers(0, 3)
RANKS = st.integers(1, 9)


def samplers(case: Case, ranks: int, data: Any = None) -> list[DistributedChunkedSampler]:
    return [
        DistributedChunkedSampler(data or range(case.n), num_replicas=ranks, rank=rank, **case.kwargs())
        for rank in range(ranks)
    ]


@given(case=CASES, epoch=EPOCHS, ranks=RANKS)
def test_each_rank_yields_what_the_oracle_deals_it(case: Case, epoch: int, ranks: int) -> None:
    expected = dealt(case, epoch, 0, ranks)
    for sampler, order in zip(samplers(case, ranks), expected, strict=True):
        sampler.set_epoch(epoch)

        assert len(sampler) == sampler.remaining == len(order)
        assert list(sampler) == order
        assert len(sampler) == len(order)


@given(case=CASES, epoch=EPOCHS, ranks=RANKS)
def test_ranks_are_equally_long_and_repeat_no_more_than_they_must(case: Case, epoch: int, ranks: int) -> None:
    orders = []
    for sampler in samplers(case, ranks):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    together = list(chain.from_iterable(orders))

    if case.even:
        assert len({len(order) for order in orders}) == 1
    if case.drop_last:
        assert len(set(together)) == len(together) > case.n - case.lanes - ranks
    elif case.even and case.n:
        assert set(together) == set(range(case.n))
        assert len(together) - case.n <= case.lanes - 1 + ranks - 1
    else:
        assert sorted(together) == list(range(case.n))


@given(case=CASES, epoch=EPOCHS, ranks=RANKS)
def test_the_global_order_does_not_depend_on_ranks(case: Case, epoch: int, ranks: int) -> None:
    orders = []
    for sampler in samplers(case, ranks):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    places = places_of(case, epoch)

    if case.even:
        interleaved = list(chain.from_iterable(zip(*orders, strict=True)))
        whole = [index for index in places if index is not None]
        assert interleaved[: len(whole)] == whole[: len(interleaved)]
    assert list(chain.from_iterable(samplers(case, 1)[0].global_order(epoch))) == [p for p in places if p is not None]


@given(case=CASES, epoch=EPOCHS, stops=st.lists(st.tuples(RANKS, st.integers(0, 20)), min_size=1, max_size=5))
def test_resuming_at_any_place_any_number_of_times_loses_and_repeats_nothing(
    case: Case, epoch: int, stops: list[tuple[int, int]]
) -> None:
    places = [index for index in places_of(case, epoch) if index is not None]
    seen: list[int] = []
    state: dict[str, Any] = {**samplers(case, 1)[0].state_dict(), "epoch": epoch}
    for ranks, rows in [*stops, (1, len(places) + 1)]:
        restored = samplers(case, ranks)
        for sampler in restored:
            sampler.load_state_dict(state)
        if restored[0].epoch > epoch:
            break
        orders = [list(islice(sampler, rows)) for sampler in restored]
        state = json.loads(json.dumps(restored[0].state_dict()))
        if case.even:
            seen += chain.from_iterable(zip(*orders, strict=True))
        else:  # ranks have stopped at the same place, but not after equally many samples
            left = dealt(case, epoch, state["place"], 1)[0] if state["epoch"] == epoch else []
            seen = places[: len(places) - len(left)]

    if not case.drop_last:
        assert seen[: len(places)] == places
    assert seen == (places * 10)[: len(seen)]


@given(case=CASES, epoch=EPOCHS, place=st.integers(0, 130), ranks=RANKS)
def test_ranks_restored_at_any_place_yield_what_the_oracle_deals_them(
    case: Case, epoch: int, place: int, ranks: int
) -> None:
    state = {**samplers(case, 1)[0].state_dict(), "epoch": epoch, "place": place}
    for sampler, order in zip(samplers(case, ranks), dealt(case, epoch, place, ranks), strict=True):
        sampler.load_state_dict(state)

        if sampler.epoch == epoch:
            assert sampler.remaining == len(order)
            assert list(sampler) == order
        else:
            assert sum(map(len, dealt(case, epoch, place, ranks))) == 0
        assert sampler.epoch == epoch + 1


@given(case=CASES, epoch=EPOCHS, ranks=RANKS, done=st.integers(0, 130))
def test_the_state_of_consumed_samples_is_the_state_after_yielding_them(
    case: Case, epoch: int, ranks: int, done: int
) -> None:
    sampler = samplers(case, ranks)[0]
    sampler.set_epoch(epoch)
    taken = len(list(islice(sampler, done)))
    yielded = sampler.state_dict()

    ahead = samplers(case, ranks)[0]
    ahead.set_epoch(epoch)
    list(ahead)
    if case.even and taken:
        consumed = ahead.state_dict(consumed=taken * ranks)
        assert consumed == yielded


def test_a_large_dataset_has_the_same_global_order_on_any_number_of_ranks() -> None:
    case = Case(n=100_003, lanes=64, chunksize=500, seed=1)
    places = places_of(case, 1)
    for ranks in (1, 48, 63, 64, 96):
        sampler = samplers(case, ranks)[-1]
        sampler.set_epoch(1)
        order = list(sampler)

        mine = places[ranks - 1 :: ranks]
        assert order[: len(mine)] == mine


def test_with_as_many_ranks_as_lanes_a_rank_has_the_order_of_0_1_11() -> None:
    for rank in range(4):
        sampler = DistributedChunkedSampler(range(1000), num_replicas=4, rank=rank, chunksize=100, seed=3)
        old = ChunkedSampler(range(1000), num_samples=(250 * rank, 250 * rank + 250), chunksize=100, seed=3)

        assert [list(sampler), list(sampler)] == [list(old), list(old)]


def test_ranks_that_read_from_many_lanes_at_once_log_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def warnings(**kwargs: Any) -> list[str]:
        caplog.clear()
        sampler = DistributedChunkedSampler(range(10**9), rank=0, num_canonical_replicas=64, **kwargs)
        with caplog.at_level(logging.WARNING):
            next(iter(sampler))
            next(iter(sampler))
        return [record.getMessage() for record in caplog.records]

    assert warnings(num_replicas=64, chunksize=10) == []
    assert warnings(num_replicas=32, chunksize=10) == []
    [message] = warnings(num_replicas=63, chunksize=10)
    assert message.startswith("rank 0 of 63 reads from 64 of 64 canonical replicas at once")


def test_num_canonical_replicas_of_0_is_an_error() -> None:
    with pytest.raises(ValueError, match="num_canonical_replicas is 0; it must be at least 1"):
        DistributedChunkedSampler(range(9), num_canonical_replicas=0)
