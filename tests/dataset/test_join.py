"""A join has the samples that a join of dictionaries has, and behaves like a dataset."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from tests.storage.web_server import web_server
from tests.support import write_tar
from wids.errors import DecodeError

if TYPE_CHECKING:
    from pathlib import Path

Shards = dict[str, list[str]]
"""Names of shards, each with its keys in order."""

KEYS = st.lists(st.sampled_from("abcdef"), max_size=5, unique=True)
SHARDS: st.SearchStrategy[Shards] = st.dictionaries(st.sampled_from(["s0", "s1", "t0", "t1"]), KEYS, max_size=3)


def write(folder: Path, shards: Shards, fields: tuple[str, ...] = ("txt",), **options: Any) -> wids.ShardListDataset:
    """Write shards whose samples contain their own place, `mine s0/a.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    for name, keys in shards.items():
        members = [
            (f"{key}.{field}", f"{folder.name} {name}/{key}.{field}".encode()) for key in keys for field in fields
        ]
        listed.append((str(write_tar(folder / f"{name}.tar", members)), len(keys)))
    options.setdefault("cache_dir", str(folder / "cache"))
    return wids.ShardListDataset(listed, **options)


def join_dictionaries(mine: Shards, other: Shards) -> list[tuple[str, str, str | None]] | None:
    """Return `(shard, key, the other's shard or None)` of each of my samples; None if a key is ambiguous."""
    places = [(shard, key) for shard, keys in mine.items() for key in keys]
    offered = [(shard, key) for shard, keys in other.items() for key in keys]
    found: dict[tuple[str, str], str] = {}
    # First within shards of the same name, where shards with a name that only one side has form one group; then by key
    # alone, among the samples that are left.
    for group in (lambda shard: shard if shard in mine and shard in other else None), (lambda _: None):
        free = [place for place in offered if place not in {(theirs, key) for (_, key), theirs in found.items()}]
        for shard, key in [place for place in places if place not in found]:
            candidates = [
                theirs for theirs, offered_key in free if offered_key == key and group(theirs) == group(shard)
            ]
            if len(candidates) > 1:
                return None
            if candidates:
                found[shard, key] = candidates[0]
    return [(shard, key, found.get((shard, key))) for shard, key in places]


@settings(max_examples=60)
@given(SHARDS, SHARDS, st.sampled_from(["inner", "left"]))
def test_a_join_has_the_samples_of_a_join_of_dictionaries(
    tmp_path_factory: pytest.TempPathFactory, mine: Shards, other: Shards, how: Any
) -> None:
    folder = tmp_path_factory.mktemp("join")
    left, right = write(folder / "left", mine), write(folder / "right", other)
    expected = join_dictionaries(mine, other)

    if expected is None:
        with pytest.raises(ValueError, match=r"(has a key|have keys) that the other side has more than once: '[a-f]'"):
            left.join(right, how=how, prefix="o.")
        return
    if how == "inner":
        expected = [row for row in expected if row[2] is not None]
    joined = left.join(right, how=how, prefix="o.")

    assert len(joined) == len(expected)
    for copy in (joined, pickle.loads(pickle.dumps(joined))):
        assert [(sample["txt"], sample.get("o.txt")) for sample in copy] == [
            (f"left {shard}/{key}.txt", None if theirs is None else f"right {theirs}/{key}.txt")
            for shard, key, theirs in expected
        ]
    assert list(joined.keys()) == [key for _, key, _ in expected]


@settings(max_examples=30)
@given(data=st.data())
def test_views_of_both_sides_and_of_the_join_keep_their_own_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("views")
    mine, other = {"s0": list("abcd"), "s1": list("efg")}, {"x": list("gfedcba")}
    rows = data.draw(st.lists(st.integers(0, 6), max_size=9))
    others = data.draw(st.lists(st.integers(0, 6), unique=True))

    left, right = write(folder / "left", mine).select(rows), write(folder / "right", other).select(others)
    joined = left.join(right, prefix="o.")

    keys = ["abcdefg"[row] for row in rows if 6 - row in others]
    assert [sample["o.txt"] for sample in joined] == [f"right x/{key}.txt" for key in keys]
    if keys:
        chosen = data.draw(st.lists(st.integers(0, len(keys) - 1)))
        assert [sample["o.txt"][-5] for sample in joined.select(chosen)] == [keys[place] for place in chosen]
        assert [sample["o.txt"][-5] for sample in joined[::-2]] == keys[::-2]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[wids.ShardListDataset, wids.ShardListDataset]:
    mine = write(tmp_path / "left", {"s0": list("abc"), "s1": list("de")}, ("txt", "text"))
    return mine, write(tmp_path / "right", {"s0": list("cba"), "s1": list("e")}, ("txt", "cap.txt"))


def test_a_join_has_the_methods_and_attributes_of_a_dataset(
    sides: tuple[wids.ShardListDataset, wids.ShardListDataset],
) -> None:
    left, right = sides
    joined = left.join(right, prefix="o.", how="left")

    assert (len(joined), joined.lengths, joined.shards) == (5, [3, 2], left.shards)
    assert joined.key(4) == "e"
    assert joined.index_of("e") == 4
    assert joined.read(0) == {**left.read(0), ".o.txt": b"right s0/a.txt", ".o.cap.txt": b"right s0/a.cap.txt"}
    assert joined.read(0, ["o.txt", "txt"]) == {".txt": b"left s0/a.txt", ".o.txt": b"right s0/a.txt"}
    assert bytes(joined.view(4)[".o.cap.txt"]) == b"right s1/e.cap.txt"
    assert joined.open(1, "o.cap.txt").read() == b"right s0/b.cap.txt"
    assert joined.open(1, "text").read() == b"left s0/b.text"
    assert joined.locate(0)[".o.txt"] == right.locate(2)[".txt"]
    assert joined.locate(3) == left.locate(3)
    assert joined.sizes("o.cap.txt").tolist() == [18, 18, 18, -1, 18]
    assert joined[::-1].sizes("o.cap.txt").tolist() == [18, -1, 18, 18, 18]
    assert joined.has("txt", "o.txt").tolist() == [True, True, True, False, True]
    assert joined.fingerprint == left.fingerprint
    assert [sample["__index__"] for sample in joined.__getitems__([4, 0])] == [4, 0]
    assert sorted(wids.DistributedChunkedSampler(joined, num_replicas=1, rank=0)) == list(range(5))
    with pytest.raises(KeyError, match=r"'o\.jpg'"):
        joined.read(0, ["o.jpg"])
    before = joined.stats()["accesses"]
    assert before == left.stats()["accesses"] + right.stats()["accesses"]
    joined.close()
    assert joined[0]["o.txt"] == "right s0/a.txt"


def test_each_side_is_decoded_by_its_own_steps(sides: tuple[wids.ShardListDataset, wids.ShardListDataset]) -> None:
    left, right = sides

    joined = left.join(right.map(upper), prefix="o.").map(add_length)

    assert joined[0]["o.txt"] == "RIGHT S0/A.TXT"
    assert joined[0]["length"] == len("left s0/a.txt" + "right s0/a.txt")
    raw = left.join(right, prefix="o.").decode([])
    assert {type(value).__name__ for name, value in raw[0].items() if name.startswith(".")} == {"BytesIO"}


def upper(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value.upper() if name.startswith(".") else value for name, value in sample.items()}


def add_length(sample: dict[str, Any]) -> dict[str, Any]:
    sample["length"] = len(sample["txt"] + sample["o.txt"])
    return sample


def test_a_side_is_not_read_when_none_of_its_fields_are_selected(
    sides: tuple[wids.ShardListDataset, wids.ShardListDataset],
) -> None:
    left, right = sides
    joined = left.join(right, prefix="o.")
    before = right.get_stats()

    assert joined.to_tuple("txt")[0] == ("left s0/a.txt",)
    assert joined.select_fields("text")[0]["text"] == "left s0/a.text"
    assert right.get_stats() == before
    assert joined.to_tuple("o.cap.txt", "txt")[0] == ("right s0/a.cap.txt", "left s0/a.txt")
    (join,) = joined.select_fields(["o.cap.txt"])._joins()
    assert [name for name in join.other[0] if name.startswith(".")] == [".cap.txt"]
    assert left.select_fields("text").join(right.select_fields("txt"))[0]["txt"] == "right s0/a.txt"


def test_a_field_that_both_sides_have_needs_a_prefix(
    sides: tuple[wids.ShardListDataset, wids.ShardListDataset],
) -> None:
    left, right = sides

    with pytest.raises(
        ValueError, match=re.escape("both sides of a join have the field '.txt'; give join() a prefix=")
    ):
        _ = left.join(right)[0]


def test_joins_with_wrong_arguments_are_errors(
    sides: tuple[wids.ShardListDataset, wids.ShardListDataset], tmp_path: Path
) -> None:
    left, right = sides
    twice = write(tmp_path / "twice", {"x": list("ab"), "y": list("bacde")})

    with pytest.raises(ValueError, match="2 samples have keys that the other side has more than once: 'a', 'b'; join"):
        left.join(twice)
    with pytest.raises(ValueError, match="the other side has 4 samples, expected 5"):
        left.join(right, on="index")
    with pytest.raises(ValueError, match="how is 'outer'"):
        left.join(right, how="outer")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="source is of type int"):
        left.join(3)
    with pytest.raises(TypeError, match="the other dataset's are tuple"):
        _ = left.join(right.to_tuple("txt"))[0]
    with pytest.raises(TypeError, match="a step before it made a tuple"):
        _ = left.to_tuple("txt").join(right)[0]


def test_samples_are_joined_by_index(sides: tuple[wids.ShardListDataset, wids.ShardListDataset]) -> None:
    left, right = sides

    joined = left[1:].join(right, on="index", prefix="o.")

    assert [sample["o.txt"] for sample in joined] == [sample["txt"] for sample in right]


def test_a_table_is_joined_by_key(sides: tuple[wids.ShardListDataset, wids.ShardListDataset]) -> None:
    left, _ = sides
    table = {"key": ["e", "b", "zz"], "score": [5, 2, 0]}

    inner, outer = left.join(table, prefix="new."), left.join(table, how="left")

    assert [(sample["__key__"], sample["new.score"]) for sample in inner] == [("b", 2), ("e", 5)]
    assert [sample["score"] for sample in outer] == [None, 2, None, None, 5]
    assert inner.column("new.score").tolist() == [2, 5]  # type: ignore[union-attr]
    assert inner.matches("new.score > 2").tolist() == [False, True]


def test_joins_can_be_joined(sides: tuple[wids.ShardListDataset, wids.ShardListDataset]) -> None:
    left, right = sides
    third = right.join(left.select_fields("text"), prefix="l.")

    joined = left.join(right, prefix="r.").join(third, prefix="t.")

    assert joined[0]["t.l.text"] == left[0]["text"]
    assert joined.read(0, ["t.l.text"]) == {".t.l.text": b"left s0/a.text"}
    assert joined.to_tuple("r.txt", "t.l.text")[0] == (right[2]["txt"], left[0]["text"])


def test_a_joined_sample_whose_other_side_is_damaged_is_replaced(tmp_path: Path) -> None:
    left = write(tmp_path / "left", {"s": list("abc")}, on_error="replace")
    members = [("a.json", b"1"), ("b.json", b"{broken"), ("c.json", b"3")]
    right = wids.ShardListDataset([(str(write_tar(tmp_path / "right.tar", members)), 3)], on_error="replace")

    joined = left.join(right)

    assert [(sample["__key__"], sample["json"]) for sample in joined] == [("a", 1), ("c", 3), ("c", 3)]
    assert joined.stats()["replacements"] == 1
    with pytest.raises(DecodeError, match=r"key 'b'"):
        _ = write(tmp_path / "again", {"s": list("abc")}).join(right)[1]


def test_a_batch_of_a_join_makes_at_most_one_range_request_for_each_side(tmp_path: Path) -> None:
    local = write(tmp_path / "left", {"s": list("abcdef")}), write(tmp_path / "right", {"s": list("fedcba")})
    with web_server() as server:
        server.has_ranges = True
        for side in ("left", "right"):
            server.objects[f"{side}/s.tar"] = (tmp_path / side / "s.tar").read_bytes()
        sides = [
            wids.ShardListDataset(
                [(server.url(f"{side}/s.tar"), 6)], access="range", cache_dir=str(tmp_path / f"cache-{side}")
            )
            for side in ("left", "right")
        ]
        joined = sides[0].join(sides[1], prefix="o.")
        joined.read(5)  # both shards are open
        before = joined.stats()["requests"]

        samples = joined.__getitems__([0, 2, 4])

        assert [sample["o.txt"] for sample in samples] == [f"right s/{key}.txt" for key in "ace"]
        assert joined.stats()["requests"] - before <= 2
        expected = [sample["o.txt"] for sample in local[0].join(local[1], prefix="o.")]
        assert [sample["o.txt"] for sample in joined] == expected
