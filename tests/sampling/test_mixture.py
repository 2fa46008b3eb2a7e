"""Mixtures keep their proportions in every prefix, on any number of ranks, across stops and epochs."""

from __future__ import annotations

import json
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils.data import DistributedSampler

import wids
from tests.support import sample_members, write_descriptor, write_shards, write_tar
from wids.sampling import ChunkedSampler, MixtureSampler
from wids.sampling.turns import Turns, whole_shares

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WEIGHTS = st.lists(st.integers(0, 6) | st.sampled_from([0.1, 0.25, 1000, 0.7]), min_size=1, max_size=7)


def mix(lengths: list[int], weights: Sequence[float], **kwargs: Any) -> MixtureSampler:
    return MixtureSampler(wids.concat([range(length) for length in lengths]), weights=weights, **kwargs)


@given(weights=WEIGHTS, start=st.integers(0, 3000), num_turns=st.integers(0, 400))
def test_every_prefix_of_a_mixture_has_the_shares_to_within_one_sample(
    weights: list[float], start: int, num_turns: int
) -> None:
    assume(any(weights))
    shares = whole_shares(weights)
    total = sum(weights)
    turns = Turns(shares)
    turns.seek(start)

    for place in range(start + 1, start + num_turns + 1):
        turns.take(1)
        assert sum(turns.counts) == place
        for count, weight in zip(turns.counts, weights, strict=True):
            assert abs(count - weight / total * place) < 1
    assert [share / sum(shares) for share in shares] == pytest.approx([weight / total for weight in weights])


@given(weights=WEIGHTS, start=st.integers(0, 300))
def test_seek_reaches_the_same_state_as_taking_turns(weights: list[float], start: int) -> None:
    assume(any(weights))
    sought, taken = Turns(whole_shares(weights)), Turns(whole_shares(weights))

    sought.seek(start)
    taken.take(start)

    assert sought.take(50) == taken.take(50)


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=4), data=st.data(), num_samples=st.integers(0, 60),
    ranks=st.integers(1, 5), epoch=st.integers(0, 3), chunksize=st.integers(1, 20),
    stops=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=3),
)  # fmt: skip
def test_ranks_share_one_order_that_is_resumed_at_any_place(
    lengths: list[int], data: st.DataObject, num_samples: int, ranks: int, epoch: int, chunksize: int,
    stops: list[tuple[int, int]],
) -> None:  # fmt: skip
    weights = data.draw(st.lists(st.integers(1, 9), min_size=len(lengths), max_size=len(lengths)))

    def make(num_replicas: int, rank: int) -> MixtureSampler:
        return mix(
            lengths, weights, num_samples=num_samples, num_replicas=num_replicas, rank=rank, chunksize=chunksize
        )  # fmt: skip

    alone = make(1, 0)
    alone.set_epoch(epoch)
    order = list(alone)
    state = {**alone.state_dict(), "epoch": epoch, "place": 0}
    seen: list[int] = []
    for num_replicas, rows in [*stops, (ranks, num_samples)]:
        samplers = [make(num_replicas, rank) for rank in range(num_replicas)]
        for sampler in samplers:
            sampler.load_state_dict(state)
        if samplers[0].epoch > epoch:
            break
        seen += chain.from_iterable(zip(*(list(islice(sampler, rows)) for sampler in samplers), strict=True))
        state = json.loads(json.dumps(samplers[0].state_dict()))

    assert len(order) == num_samples
    assert seen[:num_samples] == order


def test_a_component_runs_through_its_own_epochs_across_those_of_the_mixture() -> None:
    sampler = mix([10, 25], [1, 3], num_samples=17, chunksize=5, seed=2)
    order = list(chain.from_iterable(list(sampler) for _ in range(20)))

    for start, length in ((0, 10), (10, 25)):
        mine = [index - start for index in order if start <= index < start + length]
        alone = ChunkedSampler(range(length), chunksize=5, seed=2)
        expected = list(chain.from_iterable(list(alone) for _ in range(len(mine) // length + 1)))
        assert mine == expected[: len(mine)]
    assert len(sampler) == 17


def test_an_epoch_does_not_depend_on_earlier_ones() -> None:
    sampler, again = (mix([10, 25], [0.3, 0.7], num_samples=33) for _ in range(2))
    epochs = [list(sampler) for _ in range(5)]

    again.set_epoch(4)

    assert list(again) == epochs[4]


def test_weights_come_from_the_descriptors(tmp_path: Path) -> None:
    shards = {}
    for name, count in (("a", 6), ("b", 4)):
        path = write_tar(tmp_path / f"{name}.tar", sample_members(count))
        shards[name] = [{"url": str(path), "nsamples": count}]
    both = write_descriptor(
        tmp_path / "both.json", [], datasets=[
            {"name": "a", "shardlist": shards["a"], "weight": 3}, {"name": "b", "shardlist": shards["b"], "weight": 1},
        ],
    )  # fmt: skip
    dataset = wids.ShardListDataset(str(both))

    sampler = MixtureSampler(dataset)

    assert sampler.shares == [3, 1]
    assert [dataset[index]["__dataset__"] for index in sampler].count("a") in {7, 8}
    assert list(sampler) != list(MixtureSampler(dataset, weights={"a": 1, "b": 1}))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, r"no weights are given"),
        ({"weights": [1]}, r"weights has 1 entries, but the dataset has 2 components"),
        ({"weights": [1, -1]}, r"weights\[1\] is -1"),
        ({"weights": [1, float("nan")]}, r"weights\[1\] is nan"),
        ({"weights": [0, 0]}, "all weights are 0"),
        ({"weights": {"a": 1}}, r"weights are for \['a'\]"),
        ({"weights": [1, 1], "num_samples": -1}, "num_samples is -1"),
        ({"weights": [1, 1], "chunksize": 0}, "chunksize is 0"),
    ],
)
def test_wrong_weights_are_errors(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MixtureSampler(wids.concat([range(5), range(5)]), **kwargs)


def test_an_empty_component_needs_weight_0() -> None:
    with pytest.raises(ValueError, match="give it weight 0"):
        mix([5, 0], [1, 1])
    assert sorted(mix([5, 0], [1, 0])) == [0, 1, 2, 3, 4]


def test_a_dataset_without_components_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no components"):
        MixtureSampler(range(5), weights=[1])
    (tmp_path / "x").mkdir()
    scattered = [
        {"url": url, "nsamples": count, "dataset": name}
        for (url, count), name in zip(write_shards(tmp_path, [1, 1, 1]), "aba", strict=True)
    ]
    with pytest.raises(ValueError, match="'a' are not next to each other"):
        MixtureSampler(wids.ShardListDataset(scattered), weights=[1, 1])


def test_mixture_sampler_is_a_distributed_sampler() -> None:
    sampler = mix([5, 5], [1, 1], num_samples=9, num_replicas=4, rank=1)

    assert isinstance(sampler, DistributedSampler)
    assert (sampler.rank, sampler.num_replicas, sampler.num_samples, sampler.total_size) == (1, 4, 3, 12)


def test_a_state_of_other_weights_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shares=\[1, 2\], but this sampler has \[1, 1\]"):
        mix([5, 5], [1, 1]).load_state_dict(mix([5, 5], [1, 2]).state_dict())
