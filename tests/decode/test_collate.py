"""Batches are those of torch's default collate if samples are alike, lists if not, or errors that name the field."""

from __future__ import annotations

import collections
import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils.data import DataLoader, default_collate
from webdataset.filters import default_collation_fn

import wids
from tests.decode.files import IMAGES, audio, same
from tests.support import write_tar
from wids.dataset.sample import Sample
from wids.decode import collate, stack_columns

if TYPE_CHECKING:
    from pathlib import Path


class Pair(NamedTuple):
    image: Any
    label: Any


def test_a_batch_of_samples_has_the_lookups_of_a_sample() -> None:
    batch = collate([Sample({".jpg": 1}), Sample({".jpg": 2})])

    assert batch["jpg"].tolist() == [1, 2]
    assert "JPG" in batch
    assert type(pickle.loads(pickle.dumps(batch))) is Sample
    assert collate([collections.defaultdict(int, a=1)]) == {"a": torch.tensor([1])}


@pytest.mark.parametrize(
    "samples",
    [
        [{".cls": 1, "__key__": "a"}, {".cls": 2, "__key__": "b"}],
        [1, 2],
        [1.5, 2.5],
        [True, False],
        ["a", "b"],
        [b"a", b"b"],
        [np.float32(1), np.float32(2)],
        [np.int8(1), np.int8(2)],
        [np.bool_(1), np.bool_(0)],
        [np.float64(1), np.float64(2)],
        [np.zeros((2, 3), np.uint8)] * 2,
        [np.zeros((), np.float16)] * 2,
        [np.zeros((0, 3))] * 2,
        [np.ones(2, np.complex64)] * 2,
        [torch.ones(2, 3), torch.zeros(2, 3)],
        [torch.tensor(1), torch.tensor(2)],
        [{"a": {"b": 1, "c": "x"}}, {"a": {"b": 2, "c": "y"}}],
        [{"a": torch.ones(2)}],
    ],
    ids=["sample", "int", "float", "bool", "str", "bytes", "float32", "int8", "numpy bool", "float64", "arrays", "0-d", "empty",
         "complex", "tensors", "0-d tensors", "nested", "one"],
)  # fmt: skip
def test_values_of_one_type_are_collated_as_torch_collates_them(samples: list[Any]) -> None:
    assert same(collate(samples), default_collate(samples))


@settings(max_examples=100)
@given(
    hnp.scalar_dtypes().filter(
        lambda dtype: dtype.kind in "biufc" and dtype.itemsize <= 16 and dtype.name != "longdouble"
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=3),
    st.integers(1, 4),
)
def test_arrays_that_agree_in_shape_and_dtype_are_stacked(dtype: Any, shape: tuple[int, ...], count: int) -> None:
    values = [np.full(shape, number, dtype) for number in range(count)]

    found = collate(values)

    assert same(found.numpy(), np.stack(values).astype(dtype.newbyteorder("=")))


def test_reversed_transposed_big_endian_and_read_only_arrays_are_stacked() -> None:
    array = np.arange(6.0).reshape(2, 3)
    locked = array.copy()
    locked.flags.writeable = False

    for value in (array[:, ::-1], array.T, array.astype(">f8"), locked):
        assert same(collate([value, value]).numpy(), np.stack([value, value]).astype("f8"))


@pytest.mark.parametrize(
    "values",
    [
        [None, None],
        [None, 1],
        [1, "a"],
        [1, True],
        [torch.ones(2), torch.ones(3)],
        [torch.ones(2), torch.ones(2, dtype=torch.int32)],
        [np.ones(2), np.ones((2, 1))],
        [np.ones(2), np.ones(2, np.float32)],
        [np.ones(2), torch.ones(2)],
        [np.float32(1), np.float64(1)],
        [np.array(["a"]), np.array(["b"])],
        [np.array([None]), np.array([None])],
        [np.array(["2020"], "M8[D]")] * 2,
        [np.zeros(2, [("a", "i4")])] * 2,
        [np.longdouble(1), np.longdouble(2)],
        [np.ma.masked_array([1, 2], [True, False])] * 2,
        [2**70, 1],
        [10**400, 1.0],
        [PIL.Image.new("L", (2, 2)), PIL.Image.new("L", (2, 2))],
        [{"a": 1}, {"b": 2}],
        [{"a": 1}, None],
        [(1, 2), (1,)],
        [(1, 2), None],
        [object(), object()],
        [{1}, {2}],
    ],
    ids=lambda values: " and ".join(type(value).__name__ for value in values),
)
def test_values_that_cannot_be_stacked_become_a_list(values: list[Any]) -> None:
    batch = collate([{"field": value} for value in values])

    assert isinstance(batch["field"], list)
    assert all(one is other for one, other in zip(batch["field"], values, strict=True))


def test_integers_and_floats_together_become_floats_in_either_order() -> None:
    for values in ([1, 2.5], [2.5, 1]):
        assert same(collate(values), torch.tensor(values, dtype=torch.float64))


def test_lists_in_samples_stay_lists_even_if_their_lengths_agree() -> None:
    pairs: list[list[list[int]]] = [[[1, 2], [3, 4]], [[1, 2], [3]], [[], []]]
    for boxes in pairs:
        samples = [{".json": {"boxes": of_sample}} for of_sample in boxes]
        assert collate(samples) == {".json": {"boxes": boxes}}


def test_collate_pickles_for_workers_that_are_spawned() -> None:
    assert pickle.loads(pickle.dumps(wids.collate)) is collate


def test_tuples_lists_and_dictionaries_keep_their_type() -> None:
    image = PIL.Image.new("L", (2, 2))

    pair = collate([Pair(image, 1), Pair(image, 2)])
    assert type(pair) is Pair
    assert pair.image == [image, image]
    assert same(pair.label, torch.tensor([1, 2]))
    assert same(collate([("a", 1), ("b", 2)]), (["a", "b"], torch.tensor([1, 2])))
    assert same(collate([["a", 1], ["b", 2]]), [["a", "b"], torch.tensor([1, 2])])
    assert same(collate([{"x": Pair(1, "a")}, {"x": Pair(2, "b")}])["x"], Pair(torch.tensor([1, 2]), ["a", "b"]))
    ordered = collate([collections.OrderedDict(b=1, a=2), Sample(b=3, a=4)])
    assert list(ordered) == ["b", "a"]


def test_a_missing_field_names_itself_and_the_sample_without_it() -> None:
    with_field = {"__key__": "a", "__index__": 7, ".cls": None}
    without = {"__key__": "b", "__index__": 8}

    for samples in ([with_field, without], [without, with_field], [Sample(with_field), Sample(without)]):
        with pytest.raises(
            ValueError, match=r"field '\.cls' is missing in the sample with index 8, key 'b'.*select_fields"
        ):
            collate(samples)
    with pytest.raises(ValueError, match=r"field '\.JPG'"):
        collate([Sample({".jpg": 1}), Sample({".JPG": 1})])


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        ((), "no samples"),
        ([(1, 2), (1,)], "sample 1 of the batch has 1 value, the first has 2"),
        ([{"a": 1}, (1,)], "sample 1 of the batch is of type tuple, the first of type dict"),
        ([(1,), {"a": 1}], "sample 1 of the batch is of type dict, the first of type tuple"),
        ([(1,), None], "sample 1 of the batch is of type NoneType"),
    ],
    ids=["empty", "empty tuple", "lengths", "dict and tuple", "tuple and dict", "None"],
)
def test_an_empty_batch_or_one_of_mixed_samples_is_an_error(samples: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        collate(samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_batches_decoded_samples(workers: int, tmp_path: Path) -> None:
    members = []
    for number in range(5):
        sound = audio(np.zeros(100 + number, np.float32), "WAV")
        json = b'{"w": 1.5, "n": [%d]}' % number
        files = {"cls": b"%d" % number, "jpg": IMAGES["jpg"], "json": json, "wav": sound}
        members += [(f"{number}.{extension}", data) for extension, data in files.items()]
    path = write_tar(tmp_path / "a.tar", members)
    dataset = wids.ShardListDataset([(str(path), 5)])
    arrays = dataset.decode("torchrgb8")

    batches = list(DataLoader(dataset, batch_size=2, num_workers=workers, collate_fn=wids.collate))
    tensors = next(iter(DataLoader(arrays, batch_size=5, num_workers=workers, collate_fn=wids.collate)))

    assert [batch[".cls"].tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    first = batches[0]
    assert first["__key__"] == ["0", "1"]
    assert first["__index__"].tolist() == [0, 1]
    assert [picture.size for picture in first[".jpg"]] == [(11, 9)] * 2
    assert same(first[".json"], {"w": torch.tensor([1.5, 1.5], dtype=torch.float64), "n": [[0], [1]]})
    samples, rates = first[".wav"]
    assert [tuple(sound.shape) for sound in samples] == [(1, 100), (1, 101)]
    assert rates.tolist() == [48000, 48000]
    assert tensors[".jpg"].shape == (5, 3, 9, 11)


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "a"), (2, "b")],
        [(1.5,), (2,)],
        [(True,), (False,)],
        [(np.ones((2, 3)),), (np.zeros((2, 3)),)],
        [(torch.ones(2),), (torch.zeros(2),)],
        [(None, b"x", {"a": 1}), (None, b"y", {"b": 1})],
    ],
    ids=["numbers", "mixed", "bools", "arrays", "tensors", "others"],
)
def test_columns_are_stacked_where_webdataset_stacks_them(rows: list[tuple[Any, ...]]) -> None:
    assert same(tuple(stack_columns(rows)), tuple(default_collation_fn(rows)))


def test_ragged_columns_are_lists_where_webdataset_fails() -> None:
    rows: list[tuple[Any, ...]] = [(np.ones(2), torch.ones(2), 1), (np.ones(3), torch.ones(3), None)]

    assert [type(column) for column in stack_columns(rows)] == [list, list, list]
    assert stack_columns([]) == ()
    with pytest.raises(ValueError, match="sample 1 of the batch has 1 value"):
        stack_columns([(1, 2), (1,)])
