"""Folders open as other tools have left them, with their splits and counts."""

from __future__ import annotations

import glob
import io
import re
import uuid
from pathlib import Path
from typing import Any

import fsspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.descriptor import load_descriptor
from wids.descriptor.documents import parse_document
from wids.descriptor.folders import find_in_store
from wids.descriptor.hub import split_by_names
from wids.descriptor.urls import expand_braces
from wids.errors import DescriptorError, FetchError
from wids.storage import Storage

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""YAML that is small, but would expand to gigabytes."""


def write(folder: Path, files: dict[str, Any]) -> Path:
    """Write files of text, bytes, or JSON of anything else; tars need not be valid, as nothing here reads them."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            content.encode()
            if isinstance(content, str)
            else content
            if isinstance(content, bytes)
            else orjson.dumps(content)
        )
    return folder


def load(folder: Path, split: str | None = None) -> list[tuple[str, int | None]]:
    """Return the name and count of each shard."""
    found = load_descriptor(folder, fetch=lambda path: Path(path).read_bytes(), split=split)
    return [(str(Path(shard["url"]).relative_to(folder)), shard["nsamples"]) for shard in found.shards]


def tars(*names: str) -> dict[str, bytes]:
    return dict.fromkeys(names, b"")


# Counts beside shards


def test_counts_of_img2dataset_are_used(tmp_path: Path) -> None:
    write(
        tmp_path,
        {**tars("00000.tar", "00001.tar"), "00000_stats.json": {"count": 10, "successes": 7}, "00000.parquet": b""},
    )
    write(tmp_path, {"00001_stats.json": {"count": 10, "successes": 9}})

    assert load(tmp_path) == [("00000.tar", 7), ("00001.tar", 9)]


def test_a_shard_that_img2dataset_did_not_finish_gives_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {**tars("00000.tar", "00001.tar"), "00000_stats.json": {"successes": 7}})

    assert load(tmp_path) == [("00000.tar", 7), ("00001.tar", None)]
    assert "img2dataset has not written its statistics of 00001.tar (1 shard in all)" in caplog.text


@pytest.mark.parametrize(
    "broken", [b'{"successes"', b"[]", b'{"successes": -1}', b'{"successes": "7"}', b'{"successes": true}']
)
def test_invalid_statistics_give_a_warning(tmp_path: Path, broken: bytes, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {**tars("00000.tar"), "00000_stats.json": broken})

    assert load(tmp_path) == [("00000.tar", None)]
    assert "00000_stats.json" in caplog.text


@pytest.mark.parametrize("place", ["", "idx/", "index/", "idx_files/"])
@pytest.mark.parametrize("version", ["v1.1", "v1.2"])
def test_counts_of_dali_are_used(tmp_path: Path, place: str, version: str) -> None:
    write(tmp_path, {**tars("a.tar"), f"{place}a.idx": f"{version} 12\njpg 512 3 0.jpg\n"})

    assert load(tmp_path) == [("a.tar", 12)]


def test_dali_indexes_with_names_are_used_as_offsets(tmp_path: Path) -> None:
    write(tmp_path, {**tars("a.tar", "b.tar"), "a.idx": "v1.2 1\njpg 512 3 0.jpg\n", "b.idx": "v1.1 1\njpg 512 3\n"})

    shards = load_descriptor(tmp_path, fetch=lambda path: Path(path).read_bytes()).shards

    assert [shard.get("offsets") for shard in shards] == [str(tmp_path / "a.idx"), None]


def test_counts_of_energon_offset_files_are_used(tmp_path: Path) -> None:
    offsets = b"".join(place.to_bytes(8, "little") for place in (0, 1024, 2048, 10240))
    write(tmp_path, {**tars("a.tar"), "a.tar.idx": offsets})

    assert load(tmp_path) == [("a.tar", 3)]


@pytest.mark.parametrize("content", [b"", b"v1.3 5\n", b"v1.2 -5\n", b"v1.2", b"1234567", b"\1\0\0\0\0\0\0\0"])
def test_idx_files_of_unknown_format_are_ignored(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, {**tars("a.tar"), "a.idx": content})

    assert load(tmp_path) == [("a.tar", None)]


# Energon

INFO = {"energon_version": "7.4.1", "shard_counts": {"parts/0.tar": 5, "parts/1.tar": 6, "parts/2.tar": 7}}


def prepared(folder: Path, split: str, info: Any = INFO, info_name: str = ".info.json") -> Path:
    return write(
        folder, {f".nv-meta/{info_name}": info, ".nv-meta/split.yaml": split, **tars("parts/0.tar", "parts/1.tar")}
    )


def test_splits_of_energon_are_chosen_by_name(tmp_path: Path) -> None:
    prepared(
        tmp_path, "split_parts:\n  train:\n  - parts/{0..1}.tar\n  val: ['parts/2.tar']\n  test: []\nexclude: []\n"
    )

    assert load(tmp_path, "train") == [("parts/0.tar", 5), ("parts/1.tar", 6)]
    assert load(tmp_path, "val") == [("parts/2.tar", 7)]
    with pytest.raises(
        DescriptorError, match=r"has the splits train \(2 shards\), val \(1 shard\), test \(0 shards\); name one"
    ):
        load(tmp_path)
    with pytest.raises(DescriptorError, match="has no split 'dev'; it has train"):
        load(tmp_path, "dev")
    with pytest.raises(DescriptorError, match="the split 'test' has no shards; name another one"):
        load(tmp_path, "test")


def test_the_only_split_of_energon_with_shards_needs_no_name(tmp_path: Path) -> None:
    prepared(tmp_path, "split_parts:\n  train: [parts/0.tar]\n  val: []\n")

    assert load(tmp_path) == [("parts/0.tar", 5)]


def test_shards_that_energon_excludes_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepared(tmp_path, "split_parts:\n  train: ['parts/{0..2}.tar']\nexclude: ['parts/{0..1}.tar', parts/2.tar/3]\n")

    assert load(tmp_path) == [("parts/2.tar", 7)]
    assert "excludes 1 single samples" in caplog.text


def test_yaml_info_and_json_splits_of_energon_are_read(tmp_path: Path) -> None:
    info = "shard_counts:\n  parts/0.tar: 5\n"
    write(
        tmp_path / "old",
        {".nv-meta/.info.yaml": info, ".nv-meta/split.json": {"split_parts": {"train": ["parts/0.tar"]}}},
    )
    write(tmp_path / "undivided", {".nv-meta/.info.json": INFO})

    assert load(tmp_path / "old") == [("parts/0.tar", 5)]
    assert len(load(tmp_path / "undivided")) == 3


@pytest.mark.parametrize(
    ("split", "info", "message"),
    [
        ("split_parts: 3\n", INFO, "split.yaml: split_parts is a number"),
        ("split_parts: {train: parts/0.tar}\n", INFO, "split_parts.train is a string; it must be a list of names"),
        ("split_parts: [\n", INFO, "split.yaml: is not YAML: .* at line"),
        (
            "!!python/object/apply:os.system ['true']\n",
            INFO,
            "split.yaml: is not YAML: could not determine a constructor",
        ),
        (f"split_parts: {{}}\n{BOMB}", INFO, "holds no .tar shards"),
        (f"{BOMB}split_parts: *i\n", INFO, "split_parts is a list"),
        ("split_parts: {train: ['{0..99999999}.tar']}\n", INFO, "stands for more than 10000000 names"),
        ("split_parts: {train: ['{0..3.tar']}\n", INFO, "{0..3.tar: it has an unmatched brace"),
        ("split_parts: {}\n", {"shard_counts": {"a.tar": -1}}, r"shard_counts\['a.tar'\] is a number; it must be"),
        ("split_parts: {}\n", {"shard_counts": []}, "shard_counts is a list"),
        ("split_parts: {}\n", b"{", "info.json: is not JSON"),
        ("split_parts: {train: ['../x.tar']}\n", INFO, "split_parts.train has '../x.tar', which is not in the folder"),
        ("split_parts: {}\n", {"shard_counts": {"/x.tar": 1}}, "shard_counts has '/x.tar', which is not in the folder"),
        ("split_parts: {}\n", INFO, "holds no .tar shards"),
    ],
)
def test_errors_in_files_of_energon_are_named(tmp_path: Path, split: str, info: Any, message: str) -> None:
    prepared(tmp_path, split, info)

    with pytest.raises(DescriptorError, match=message) as error:
        load(tmp_path)

    assert len(str(error.value)) < 1000


def test_a_folder_that_energon_did_not_finish_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {".nv-meta/dataset.yaml": "", **tars("0.tar")})

    with pytest.raises(DescriptorError, match=r"there is no .nv-meta/.info.json"):
        load(tmp_path)


# Hugging Face

README = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: train
    path: "data/**/train-*.tar"
  - split: test
    path: [holdout.tar, "more/*.tar"]
- config_name: small
  data_dir: tiny
---
# A title
"""


def test_the_readme_of_a_repository_defines_its_splits(tmp_path: Path) -> None:
    names = ("data/train-0.tar", "data/x/train-1.tar", "data/val-0.tar", "holdout.tar", "more/b.tar", "more/a.tar")
    write(tmp_path, {"README.md": README, **tars(*names, "tiny/train.tar", "tiny/val.tar", ".git/x/train-9.tar")})

    assert load(tmp_path, "train") == [("data/train-0.tar", None), ("data/x/train-1.tar", None)]
    assert load(tmp_path, "test") == [("holdout.tar", None), ("more/a.tar", None), ("more/b.tar", None)]
    assert load(tmp_path, "small/validation") == [("tiny/val.tar", None)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("data_files: '**/*.tar'", ["data/a.tar"]),
        ("data_files: '*/*.tar'", ["data/a.tar"]),
        ("data_files: ['__old/*.tar', data/a.tar]", ["__old/b.tar", "data/a.tar"]),
        ("data_dir: ./data/", ["data/a.tar"]),
        ("config_name: all", ["data/a.tar"]),
    ],
    ids=["any depth", "one deep", "asked for", "a folder from here", "no pattern"],
)
def test_folders_that_begin_with_two_underscores_are_skipped_unless_named(
    tmp_path: Path, config: str, expected: list[str]
) -> None:
    readme = f"---\nconfigs:\n- {config}\n---\n"
    write(tmp_path, {"README.md": readme, **tars("data/a.tar", "__old/b.tar", "data/__old/c.tar")})

    assert [name for name, _ in load(tmp_path)] == expected


def test_names_define_the_splits_of_a_repository_whose_readme_has_none(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": "---\nlicense: mit\n---\n", **tars("train.tar", "test.tar")})

    with pytest.raises(DescriptorError, match="has the splits train"):
        load(tmp_path)
    assert load(tmp_path, "test") == [("test.tar", None)]


def test_a_folder_with_several_splits_needs_a_split_name(tmp_path: Path) -> None:
    write(tmp_path, tars("train/0.tar", "val/0.tar", "val/deep/1.tar"))

    assert load(tmp_path, "validation") == [("val/0.tar", None), ("val/deep/1.tar", None)]
    with pytest.raises(DescriptorError, match="name one with split="):
        load(tmp_path)


def test_a_plain_folder_has_all_shards_unless_a_split_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": "# No header\n", **tars("train-0.tar", "other.tar", "val-0.tar", "below/x.tar")})

    assert [name for name, _ in load(tmp_path)] == ["other.tar", "train-0.tar", "val-0.tar"]
    assert load(tmp_path, "validation") == [("val-0.tar", None)]


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ("configs: 3", "configs is a number"),
        ("configs: [{data_files: [{split: a}]}]", r"configs\[0\].data_files: each must have a split and a path"),
        ("configs: [{data_files: [1]}]", "a path is a list; it must be a pattern"),
        ("configs: [", "README.md: is not YAML"),
    ],
)
def test_errors_in_a_readme_are_named(tmp_path: Path, configs: str, message: str) -> None:
    write(tmp_path, {"README.md": f"---\n{configs}\n---\n", **tars("a.tar")})

    with pytest.raises(DescriptorError, match=message):
        load(tmp_path)


@given(
    st.lists(st.sampled_from(["train", "val", "dev", "x", "data", "my-test", "trainer"]), min_size=1, max_size=3),
    st.data(),
)
def test_splits_by_name_are_disjoint_and_keep_the_order(folders: list[str], data: st.DataObject) -> None:
    files = data.draw(
        st.lists(st.sampled_from(["a", "train", "eval_3", "fold-00000-of-00001"]), min_size=1, max_size=5)
    )
    names = sorted({"/".join([*folders[:number], f"{file}.tar"]) for number, file in enumerate(files)})

    splits = split_by_names(names)

    found = [name for shards in splits.values() for name in shards]
    assert splits
    assert len(found) == len(set(found))
    assert set(found) <= set(names)
    assert all(shards == [name for name in names if name in shards] for shards in splits.values())


# What has no splits


@pytest.mark.parametrize("what", ["train.json", "a.tar", "*.tar"])
def test_a_descriptor_a_shard_and_a_pattern_have_no_splits(tmp_path: Path, what: str) -> None:
    write(tmp_path, {"train.json": {"shardlist": []}, **tars("a.tar")})

    with pytest.raises(DescriptorError, match=re.escape(f"{what}: is not a folder and has no split 'train'")):
        load_descriptor(f"{tmp_path}/{what}", fetch=lambda path: Path(path).read_bytes(), split="train")


@pytest.mark.parametrize("what", [{"shardlist": []}, io.BytesIO(b"{}"), [("a.tar", 1)], [{"url": "a.tar"}]])
def test_objects_have_no_splits(what: Any) -> None:
    with pytest.raises(DescriptorError, match="is not a folder and has no split 'train'"):
        load_descriptor(what, fetch=lambda _: b"", split="train")


def test_shards_of_the_current_folder_have_plain_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, tars("a.tar", "b/c.tar"))
    monkeypatch.chdir(tmp_path)

    assert [shard["url"] for shard in load_descriptor(".", fetch=lambda _: b"").shards] == ["a.tar"]


def test_a_split_applies_to_each_folder_of_a_list(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, tars("train/0.tar", "val/0.tar"))

    found = load_descriptor([tmp_path / "a", tmp_path / "b"], fetch=lambda _: b"", split="train")

    assert [shard["url"] for shard in found.shards] == [f"{tmp_path}/{name}/train/0.tar" for name in ("a", "b")]


def test_the_error_for_a_folder_of_images_names_widsindex_import(tmp_path: Path) -> None:
    write(tmp_path, {"cat/1.jpg": b""})

    with pytest.raises(DescriptorError, match="make shards of a folder of images with: widsindex import"):
        load(tmp_path)


def test_documents_that_are_no_mappings_are_refused() -> None:
    with pytest.raises(DescriptorError, match=r"x.yaml: holds a list"):
        parse_document(b"- 1\n", "x.yaml")


@pytest.mark.parametrize(
    "pattern", ["{0..9999999999}.tar", "{0..9999}{-9..9999}.tar", "{a,b}" * 30, "{a,b{0..99999999},c}"]
)
def test_patterns_with_too_many_names_are_refused(pattern: str) -> None:
    with pytest.raises(DescriptorError, match="stands for more than 10000000 names"):
        expand_braces(pattern)


@pytest.mark.parametrize("pattern", ["{0..3.tar", "a-{b,{c}.tar", "a{b,c}}.tar"])
def test_an_unmatched_brace_is_an_error_unless_escaped(pattern: str) -> None:
    with pytest.raises(DescriptorError, match="it has an unmatched brace"):
        expand_braces(pattern)
    assert expand_braces(re.sub(r"([{}])", r"\\\1", pattern)) == [pattern]


# Patterns


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same shards in a folder and in a store; return path and URL."""
    folder = tmp_path_factory.mktemp("twice")
    names = [
        "a/t-0.tar",
        "a/t-1.tar",
        "a/._t-1.tar",
        "a/t-1.json",
        "b/t-1.tar",
        "b/c/t-9.tar.gz",
        "top[1].tar",
        "top1.tar",
    ]
    write(folder, tars(*names))
    store = f"memory://{uuid.uuid4().hex}"
    for name in names:
        fsspec.filesystem("memory").pipe_file(f"{store}/{name}", b"")
    return str(folder), store


@pytest.mark.parametrize(
    "pattern",
    [
        "a/*.tar",
        "a/t-[1-9].tar",
        "*/t-1.tar",
        "[ab]/*",
        "*/c/*.tar*",
        "*.tar",
        "{b,a}/t-*.tar",
        "*/*/*",
        "top[1].tar",
        "b/*",
    ],
)
def test_a_pattern_finds_in_a_store_what_it_finds_in_a_folder(twice: tuple[str, str], pattern: str) -> None:
    storage = Storage()
    folder, store = twice

    found = load_descriptor(f"{store}/{pattern}", fetch=storage.read, list_folder=storage.list_folder).shards

    expected = [
        path
        for name in expand_braces(pattern)
        for path in sorted([name] if Path(folder, name).exists() else glob.glob(name, root_dir=folder))  # noqa: PTH207
        if Path(folder, path).is_file() and not path.rpartition("/")[2].startswith("._")
    ]
    assert expected
    assert [shard["url"].removeprefix(f"{store}/") for shard in found] == expected


def test_patterns_that_find_nothing_in_a_store_are_errors(twice: tuple[str, str]) -> None:
    storage = Storage()

    def load_pattern(pattern: str) -> None:
        load_descriptor(f"{twice[1]}/{pattern}", fetch=storage.read, list_folder=storage.list_folder)

    with pytest.raises(DescriptorError, match=r"/a/x\*\.tar: nothing matches this pattern"):
        load_pattern("a/x*.tar")
    with pytest.raises(DescriptorError, match=r"has \*\*, which is for local folders"):
        load_pattern("**/*.tar")
    with pytest.raises(FetchError, match=r"no\[1\]\.json: cannot be opened"):
        load_pattern("none/no[1].json")


def test_a_web_server_lists_nothing_so_that_wildcards_are_part_of_the_name() -> None:
    storage = Storage()
    urls = ["http://[::1]:1/a-*.tar", "https://host/a[1].tar?sig=*"]

    found = load_descriptor(urls, fetch=storage.read, list_folder=storage.list_folder)

    assert [shard["url"] for shard in found.shards] == urls


def test_patterns_in_a_store_list_each_folder_once_and_take_a_question_mark_for_a_query() -> None:
    listed = []

    def list_folder(url: str) -> list[str]:
        listed.append(url)
        return ["a-0.tar?version=1", "a-0.tar?version=2", "a-1.tarxversion=1"]

    patterns = [f"s3://bucket/folder/a-{number}*?version=1" for number in range(20)]

    assert find_in_store(patterns, list_folder) == ["s3://bucket/folder/a-0.tar?version=1"]
    assert listed == ["s3://bucket/folder"]
