"""torchdata's `StatefulDataLoader` restores the place of training without further set-up."""

from __future__ import annotations

import json
import pickle
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.sampling.test_epochs import Sharded
from wids.sampling import ChunkedSampler, DistributedChunkedSampler, ShardListSampler

if TYPE_CHECKING:
    from collections.abc import Iterable

# torchdata calls a function that torch has since deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


class Data(Sharded):
    """Shards whose samples are their indices."""

    def __getitem__(self, index: int) -> int:
        return index


DATA = Data([20, 30, 33])


def ints(batches: Iterable[Any]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def make_sampler(kind: str) -> Any:
    if kind == "ChunkedSampler":
        return ChunkedSampler(DATA, chunksize=10)
    if kind == "ShardListSampler":
        return ShardListSampler(DATA)
    return DistributedChunkedSampler(DATA, num_replicas=3, rank=1, chunksize=10)


def make_loader(kind: str, workers: int, **kwargs: Any) -> StatefulDataLoader[Any]:
    return StatefulDataLoader(DATA, sampler=make_sampler(kind), batch_size=4, num_workers=workers, **kwargs)


@pytest.mark.parametrize("kind", ["ChunkedSampler", "ShardListSampler", "DistributedChunkedSampler"])
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("calls_set_epoch", [True, False], ids=["set_epoch", "no set_epoch"])
def test_a_stateful_loader_resumes_at_the_next_batch_after_each_stop(
    kind: str, workers: int, persistent: bool, calls_set_epoch: bool
) -> None:
    whole = make_loader(kind, 0)
    epochs = [ints(whole) for _ in range(4)]
    seen: list[list[list[int]]] = [[] for _ in epochs]
    state: Any = None
    epoch = 0

    for stop in (3, 2, None, 1, None, None):
        loader = make_loader(kind, workers, persistent_workers=persistent)
        if state is not None:
            loader.load_state_dict(pickle.loads(state))
        if calls_set_epoch:
            loader.sampler.set_epoch(epoch)
        seen[epoch] += ints(islice(loader, stop))
        state = pickle.dumps(loader.state_dict())
        epoch += stop is None

    assert seen == [*epochs[:3], []]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_taken_before_the_first_batch_restores_the_beginning(workers: int) -> None:
    loader, again = make_loader("ChunkedSampler", workers), make_loader("ChunkedSampler", workers)

    again.load_state_dict(loader.state_dict())

    assert ints(again) == ints(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_sampler_state_resumes_on_another_number_of_ranks(workers: int) -> None:
    loader = make_loader("DistributedChunkedSampler", workers)
    batches = ints(islice(loader, 3))
    state = json.loads(json.dumps(loader.sampler.state_dict(consumed=3 * 4 * 3)))
    whole = [list(DistributedChunkedSampler(DATA, num_replicas=3, rank=rank, chunksize=10)) for rank in range(3)]
    order = [index for row in zip(*whole, strict=True) for index in row]

    rest = []
    for rank in range(2):
        sampler = DistributedChunkedSampler(DATA, num_replicas=2, rank=rank)
        sampler.load_state_dict(state)
        rest.append(list(sampler))

    assert list(chain.from_iterable(batches)) == order[1:36:3]
    assert [index for row in zip(*rest, strict=True) for index in row] == order[36:]
