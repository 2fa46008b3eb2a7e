"""What differs between two datasets, against multisets of `(shard, key)`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import wids
from tests.support import write_shards, write_tar
from wids.tools import create_index, write_selection
from wids.tools.diff import diff

contents = st.dictionaries(
    st.sampled_from(["a.tar", "b.tar", "c.tar"]), st.lists(st.sampled_from("klmnop"), max_size=6), min_size=1
)


def write(folder: Path, shards: dict[str, list[str]]) -> list[tuple[str, int]]:
    """Write shards with these keys; one that follows itself is one sample with the one before."""
    folder.mkdir(exist_ok=True)
    return [
        (str(write_tar(folder / name, [(f"{key}.{place}", b"") for place, key in enumerate(keys)])), len(keys))
        for name, keys in shards.items()
    ]


def without_repeats(shards: dict[str, list[str]]) -> dict[str, list[str]]:
    return {
        name: [key for place, key in enumerate(keys) if not place or keys[place - 1] != key]
        for name, keys in shards.items()
    }


@settings(max_examples=60)
@given(contents.map(without_repeats), contents.map(without_repeats))
def test_samples_added_removed_and_moved_equal_those_of_multisets(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, list[str]], after: dict[str, list[str]]
) -> None:
    # New folders each time: what is written over a file in the same tick of the clock, as large, is taken for the old one.
    folder = tmp_path_factory.mktemp("diff")
    found = diff(write(folder / "before", before), write(folder / "after", after))

    placed = [Counter((name, key) for name, keys in shards.items() for key in keys) for shards in (before, after)]
    left = [Counter(key for _, key in rest.elements()) for rest in (placed[0] - placed[1], placed[1] - placed[0])]
    assert found.samples_moved.count == (left[0] & left[1]).total()
    assert found.samples_removed.count == (left[0] - left[1]).total()
    assert found.samples_added.count == (left[1] - left[0]).total()
    for difference, expected in ((found.samples_added, left[1] - left[0]), (found.samples_removed, left[0] - left[1])):
        assert set(difference.examples) <= set(expected)
        assert len(difference.examples) == min(10, difference.count)  # as many as are shown
    assert (set(found.added), set(found.removed)) == (set(after) - set(before), set(before) - set(after))
    assert set(found.changed) == {name for name in before if name in after and len(before[name]) != len(after[name])}
    assert bool(found) == (placed[0] != placed[1] or set(before) != set(after) or found.reordered)


def test_equal_shards_in_another_folder_do_not_differ(tmp_path: Path) -> None:
    shards = {"a.tar": ["k", "l"], "b.tar": ["m"]}
    before, after = write(tmp_path / "before", shards), write(tmp_path / "after", shards)

    assert not diff(before, after)
    assert diff(before, after[::-1]).reordered


def test_shards_with_equal_checksums_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    written = write_shards(tmp_path / "before", [4, 6])
    create_index([path for path, _ in written], tmp_path / "before" / "train.json")
    (tmp_path / "after").mkdir()
    write_shards(tmp_path / "after", [4, 6, 3])
    create_index(str(tmp_path / "after"), tmp_path / "after" / "train.json")
    Path(written[0][0]).unlink()

    found = diff(tmp_path / "before" / "train.json", tmp_path / "after" / "train.json")

    assert found.added == ["shard-0002.tar"]
    assert found.samples_added.count == 3
    assert found.samples_added.examples == ["000010", "000011", "000012"]


def test_entries_that_differ_between_descriptors_are_listed(tmp_path: Path) -> None:
    before, after = write(tmp_path / "before", {"a.tar": ["k"]}), write(tmp_path / "after", {"a.tar": ["k", "l"]})
    pairs = [
        {"url": path, "nsamples": count, "filesize": 1, "md5sum": f"{count}" * 32} for path, count in before + after
    ]
    for pair in pairs:
        pair["filesize"] = Path(str(pair["url"])).stat().st_size

    found = diff([pairs[0]], [pairs[1]])

    assert found.changed == {"a.tar": {"nsamples": (1, 2), "md5sum": ("1" * 32, "2" * 32)}}
    assert found.samples_added.examples == ["l"]


def test_shards_of_one_name_in_different_folders_are_numbered(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    before = [write(folder, {"0.tar": ["k"]})[0][0] for folder in folders]
    states = [[{"url": url, "nsamples": 1, "md5sum": digit * 32} for url in before] for digit in "12"]

    found = diff(*states)

    assert list(found.changed) == ["0.tar", "0.tar (2)"]
    assert diff([], states[0]).added == ["0.tar", "0.tar (2)"]


def test_a_selection_differs_by_the_samples_that_it_leaves_out(tmp_path: Path) -> None:
    write_shards(tmp_path, [4, 6])
    create_index(str(tmp_path), tmp_path / "train.json")
    write_selection(tmp_path / "train.json", [0, 9, 3], tmp_path / "small.json")

    found = diff(tmp_path / "train.json", tmp_path / "small.json")

    assert (found.added, found.removed, found.changed, found.reordered) == ([], [], {}, False)
    assert (found.samples_removed.count, found.samples_added.count, found.samples_moved.count) == (7, 0, 0)


def test_a_descriptor_that_cannot_be_read_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(wids.FetchError, match="nowhere"):
        diff(tmp_path / "nowhere.json", tmp_path / "nowhere.json")
