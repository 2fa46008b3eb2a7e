"""Whatever names shards becomes one list of them, and each error names its place."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import write_descriptor, write_shards
from wids.descriptor import Descriptor, ShardOffsets, load_descriptor
from wids.descriptor.urls import Base
from wids.errors import DescriptorError

SHARD = {"url": "a.tar", "nsamples": 3, "filesize": 10, "md5sum": "0" * 32}


def read_local(path: str) -> bytes:
    return Path(path).read_bytes()


def load(shards: Any, **kwargs: Any) -> Descriptor:
    return load_descriptor(shards, fetch=read_local, **kwargs)


def served(contents: dict[str, Any]) -> Any:
    return lambda url: orjson.dumps(contents[url])


def urls(descriptor: Descriptor) -> list[str]:
    return [shard["url"] for shard in descriptor.shards]


def test_a_descriptor_loads_from_path_string_and_file(tmp_path: Path) -> None:
    path = write_descriptor(tmp_path / "train.json", [SHARD], name="train", extra=1)

    with path.open("rb") as file:
        loaded = [load(path), load(str(path)), load(file), load(io.StringIO(path.read_text()), base=str(tmp_path))]

    for descriptor in loaded:
        assert urls(descriptor) == [str(tmp_path / "a.tar")]
        assert descriptor.name == "train"
        assert descriptor.spec["extra"] == 1
        assert descriptor.shards[0]["dataset"] == "train"


def test_folders_patterns_and_single_shards_are_listed_in_order(tmp_path: Path) -> None:
    paths = [path for path, _ in write_shards(tmp_path, [1, 1, 1])]
    (tmp_path / "._shard-0000.tar").write_bytes(b"")

    assert urls(load(tmp_path)) == paths
    assert urls(load(f"{tmp_path}/shard-*.tar")) == paths
    assert urls(load(f"{tmp_path}/shard-{{0000..0002}}.tar")) == paths
    assert urls(load(paths[1])) == [paths[1]]
    assert urls(load(f"file://{tmp_path}/shard-0000.tar")) == [f"file://{tmp_path}/shard-0000.tar"]
    assert load(tmp_path).shards[0]["nsamples"] is None


def test_a_list_may_mix_all_kinds_of_shards(tmp_path: Path) -> None:
    descriptor = write_descriptor(tmp_path / "b.json", [SHARD], name="b")

    loaded = load([("x.tar", 1), {"url": "y.tar", "nsamples": 2}, Path("z.tar"), "s3://b/w.tar", descriptor])

    assert urls(loaded) == ["x.tar", "y.tar", "z.tar", "s3://b/w.tar", str(tmp_path / "a.tar")]
    assert [shard["nsamples"] for shard in loaded.shards] == [1, 2, None, None, 3]
    assert [shard["dataset"] for shard in loaded.shards] == ["", "", "", "", "b"]
    assert load([]).shards == []


@pytest.mark.parametrize(
    ("place", "base", "own", "expected"),
    [
        ("/d/train.json", None, None, "/d/a.tar"),
        ("/d/train.json", None, "shards", "/d/shards/a.tar"),
        ("/d/train.json", None, "https://h/x", "https://h/x/a.tar"),
        ("/d/train.json", "/e", "https://h/x", "/e/a.tar"),
        ("https://h/d/train.json?sig=1", None, None, "https://h/d/a.tar"),
        ("s3://b/d/train.json", None, "../x", "s3://b/x/a.tar"),
        ("train.json", None, None, "a.tar"),
    ],
)
def test_relative_urls_resolve_against_base_then_the_descriptors_own_then_its_place(
    place: str, base: str | None, own: str | None, expected: str
) -> None:
    content = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1}], **({"base": own} if own else {})}

    assert urls(load_descriptor(place, fetch=served({place: content}), base=base)) == [expected]


@pytest.mark.parametrize("name", ["/abs/a.tar", "https://h/a.tar", "s3://b/a.tar", "pipe:cat a.tar", "file:///a.tar"])
def test_absolute_urls_are_not_changed_by_the_base(name: str) -> None:
    base = "/d" if name.startswith("/") else "https://host/d"
    assert Base(base).join(name) == name


def test_components_bring_their_names_and_weights() -> None:
    contents = {
        "/d/top.json": {
            "wids_version": 1,
            "name": "top",
            "datasets": [
                {"source_url": "sub/one.json", "weight": 2.0},
                {"name": "two", "base": "/e", "shardlist": [{"url": "b.tar", "nsamples": 1}]},
                {"datasets": [{"shardlist": [{"url": "c.tar", "nsamples": 1}]}]},
            ],
        },
        "/d/sub/one.json": {"wids_version": 1, "name": "one", "shardlist": [{"url": "a.tar", "nsamples": 1}]},
    }

    loaded = load_descriptor("/d/top.json", fetch=served(contents))

    assert urls(loaded) == ["/d/sub/a.tar", "/e/b.tar", "/d/c.tar"]
    assert [shard["dataset"] for shard in loaded.shards] == ["one", "two", "top"]
    assert [shard.get("weight") for shard in loaded.shards] == [2.0, None, None]


def test_descriptors_that_name_each_other_are_refused() -> None:
    contents = {
        "/a.json": {"datasets": [{"source_url": "b.json"}]},
        "/b.json": {"datasets": [{"source_url": "a.json"}]},
    }

    with pytest.raises(DescriptorError, match=r"/a\.json -> /b\.json -> /a\.json"):
        load_descriptor("/a.json", fetch=served(contents))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", r"^d\.json: holds a list"),
        (b"{,", r"^d\.json: is not JSON: .* line 1, column 2"),
        (b'{"wids_version": 2}', "wids_version is 2"),
        (b'{"wids_version": 1}', "neither shardlist nor datasets"),
        (b'{"shardlist": {}}', "shardlist is an object; it must be a list"),
        (b'{"shardlist": [3]}', r"shardlist\[0\] is a number; it must be an object"),
        (b'{"shardlist": [{"url": "a", "nsamples": 1}, {"url": "b", "nsamples": -2}]}',
         r"^d\.json: shardlist\[1\]\.nsamples is -2; it must be at least 0"),
        (b'{"shardlist": [{"nsamples": 1}]}', r"shardlist\[0\]\.url is missing"),
        (b'{"datasets": [{"shardlist": [{"url": 7}]}]}', r"datasets\[0\]\.shardlist\[0\]\.url is 7; it must be a string"),
        (b'{"datasets": [{}]}', r"datasets\[0\] has no shardlist, datasets or source_url"),
        (b'{"shardlist": [{"url": "a", "md5sum": "x"}]}', r"md5sum is 'x'; it must be 32"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_named_with_its_json_path(content: bytes, message: str) -> None:
    with pytest.raises(DescriptorError, match=message):
        load_descriptor("d.json", fetch=lambda _: content)


WRONG: list[Any] = [None, True, 1.5, -1, "", [], {}, "x"]
RIGHT = {
    "wids_version": 1,
    "name": "n",
    "datasets": [{"name": "c", "weight": 1, "datasets": [{"shardlist": [SHARD]}]}],
    "shardlist": [SHARD],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


@given(st.sampled_from(places(RIGHT)), st.sampled_from(WRONG))
def test_a_wrong_value_at_any_depth_is_a_descriptor_error_or_allowed(place: tuple[Any, ...], wrong: Any) -> None:
    content = copy.deepcopy(RIGHT)
    inner: Any = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong

    try:
        loaded = load_descriptor("/d.json", fetch=lambda _: orjson.dumps(content))
    except DescriptorError as error:
        assert str(place[-1] if isinstance(place[-1], str) else place[-2]) in str(error)
    else:
        for shard in loaded.shards:
            assert isinstance(shard["url"], str)
            assert shard["nsamples"] is None or type(shard["nsamples"]) is int


def test_an_empty_folder_and_an_empty_pattern_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DescriptorError, match=r"holds no \.tar shards"):
        load(tmp_path)
    with pytest.raises(DescriptorError, match="nothing matches"):
        load(f"{tmp_path}/*.tar")


def test_options_and_dataset_name_replace_the_descriptors_own(tmp_path: Path) -> None:
    path = write_descriptor(tmp_path / "a.json", [SHARD], name="own")

    assert urls(load(path, options={"base": "/b"})) == ["/b/a.tar"]
    assert load(path, dataset_name="mine").shards[0]["dataset"] == "mine"


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(-80, 80))
def test_an_index_is_found_as_in_a_list_of_all_positions(lengths: list[int], index: int) -> None:
    everything = [(shard, position) for shard, length in enumerate(lengths) for position in range(length)]
    offsets = ShardOffsets(lengths)

    assert len(offsets) == len(everything)
    if -len(everything) <= index < len(everything):
        assert offsets.find_shard(index) == everything[index]
    else:
        with pytest.raises(IndexError, match=str(index)):
            offsets.find_shard(index)
