"""`dataset[i]` returns the right bytes, whatever happens around it."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader

import wids
from tests.storage.reading import wait_until
from tests.support import CORPORA, sample_members, write_descriptor, write_shards, write_tar
from wids import wids_decode

needs_corpora = pytest.mark.skipif(not CORPORA.is_dir(), reason=f"no corpora at {CORPORA}")


@pytest.fixture
def shards(tmp_path: Path) -> list[tuple[str, int]]:
    return write_shards(tmp_path, [3, 0, 3, 3])


def texts(dataset: Any) -> list[str]:
    return [sample[".txt"] for sample in dataset]


EXPECTED = [f"text of {number}" for number in range(9)]


@pytest.mark.parametrize("io", ["mmap", "pread"])
def test_every_index_gives_its_sample(shards: list[tuple[str, int]], io: Any) -> None:
    dataset = wids.ShardListDataset(shards, io=io)

    assert len(dataset) == 9
    assert texts(dataset) == EXPECTED
    assert [dataset[i - 9][".txt"] for i in range(9)] == EXPECTED
    assert dataset[np.int64(4)] == {
        ".txt": "text of 4", ".cls": 4, "__key__": "000004", "__dataset__": "", "__shard__": shards[2][0],
        "__index__": 4, "__shardindex__": 1,
    }  # fmt: skip
    assert type(dataset[np.int64(4)]["__index__"]) is int
    for wrong in (9, -10):
        with pytest.raises(IndexError, match=str(wrong)):
            dataset[wrong]


def test_slices_are_views_that_keep_the_parents_index(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards)

    for view, rows in (
        (dataset[2:8], range(2, 8)),
        (dataset[2:8][1::2], range(3, 8, 2)),
        (dataset[::-1], range(8, -1, -1)),
        (dataset[5:5], range(0)),
    ):
        assert [sample["__index__"] for sample in view] == list(rows)
        assert sum(view.lengths) == len(view)
    with pytest.raises(IndexError, match="view of 6"):
        dataset[2:8][6]
    assert dataset[2:8].index_of("000002") == 0


def test_raw_access_returns_bytes_views_files_and_locations(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards)

    assert dataset.read(4) == {".txt": b"text of 4", ".cls": b"4"}
    assert bytes(dataset.view(4, ["TXT"])[".txt"]) == b"text of 4"
    place = dataset.locate(4)[".txt"]
    with Path(place.url).open("rb") as shard:
        shard.seek(place.offset)
        assert shard.read(place.size) == b"text of 4"
    with dataset.open(4, "txt") as file:
        file.seek(5)
        assert file.read() == b"of 4"
    assert dataset.key(4) == "000004"
    assert dataset.index_of("000007") == 7
    with pytest.raises(KeyError, match=r"'000003x'.*'000003' and '000004'"):
        dataset.index_of("000003x")
    with pytest.raises(KeyError, match=r"\.txt, \.cls"):
        dataset.open(4, "jpg")
    with pytest.raises(KeyError, match=r"\.txt, \.cls"):
        dataset.read(4, ["jpg"])


def test_only_selected_fields_are_read(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards, fields=["txt"], transformations=[])

    assert [name for name in dataset[0] if name.startswith(".")] == [".txt"]
    narrowed = wids.ShardListDataset(shards).to_tuple("cls")
    assert narrowed[3] == (3,)
    assert narrowed.read(3) == {".cls": b"3"}
    after_a_function = wids.ShardListDataset(shards).map(lambda sample: sample).to_tuple("cls")
    assert set(after_a_function.read(3)) == {".txt", ".cls"}


def test_a_single_field_is_named_without_a_list(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards)

    assert [name for name in wids.ShardListDataset(shards, fields="txt")[0] if name.startswith(".")] == [".txt"]
    for whole in (dataset, wids.concat([dataset]), dataset.join(dataset.select_fields("cls"), prefix="other.")):
        assert whole.read(3, "cls") == whole.read(3, ["cls"]) == {".cls": b"3"}
        assert whole.view(3, ".cls") == {".cls": b"3"}


def test_to_tuple_rename_select_fields_map_batched_and_decode_shape_samples(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards)

    assert dataset.to_tuple("jpg;txt", "cls")[3] == ("text of 3", 3)
    assert dataset.to_tuple("jpg", "cls", missing=None)[3] == (None, 3)
    with pytest.raises(KeyError, match="none of 'jpg'"):
        dataset.to_tuple("jpg")[3]
    assert dataset.rename(label="cls")[3]["label"] == 3
    assert ".cls" not in dataset.rename(label="cls")[3]
    assert dataset.select_fields("cls")[3].keys() == {
        ".cls",
        "__key__",
        "__dataset__",
        "__shard__",
        "__index__",
        "__shardindex__",
    }
    assert dataset.map(lambda sample: sample["cls"] * 10)[3] == 30
    batches = list(dataset.to_tuple("cls", "txt").batched(4))
    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert batches[2][1] == ["text of 8"]
    raw = dataset.decode([])
    assert raw[3][".cls"].read() == b"3"
    assert texts(dataset.map(lambda s: s).decode("numpy")) == EXPECTED


def test_a_view_stays_readable_after_eviction_close_and_removal_of_its_file(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards, lru_size=1)
    view = dataset.view(0)[".txt"]
    file = dataset.open(1, "txt")

    dataset[8]
    dataset.close()
    Path(shards[0][0]).unlink()

    assert bytes(view) == b"text of 0"
    assert file.read() == b"text of 1"
    name = shards[0][0]  # the full path: other tests may have a shard of the same name open
    if sys.platform == "linux":
        assert name in Path("/proc/self/maps").read_text()
    file.close()
    del view, file
    gc.collect()
    if sys.platform == "linux":
        assert name not in Path("/proc/self/maps").read_text()
    assert dataset[8][".txt"] == "text of 8"


def test_open_shards_are_limited_and_the_least_recently_used_is_closed(tmp_path: Path) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [1] * 6), lru_size=3)

    for index in (0, 1, 2, 0, 3):
        dataset[index]

    assert [shard in dataset._cache for shard in range(6)] == [True, False, True, True, False, False]
    assert dataset.get_stats() == (5, 4)
    for index in random.Random(0).choices(range(6), k=200):
        dataset[index]
        assert len(dataset._cache) <= 3


def _pages_of_indexes(shards: Any, cache_dir: str) -> dict[str, int]:
    """Return kB that are copies of this process's own, not pages of the file, by kept index, when all has been read."""
    dataset = wids.ShardListDataset(shards, transformations=[], cache_dir=cache_dir)
    assert len(list(dataset.keys())) == sum(1 for _ in dataset)
    own: dict[str, int] = {}
    name = None
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name = words[-1] if words[-1].startswith(cache_dir) and words[-1].endswith(".widx") else None
        elif name is not None and words[0] == "Anonymous:":
            own[name] = own.get(name, 0) + int(words[1])
    return own


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell whose pages are")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_the_pages_of_indexes(tmp_path: Path, method: str) -> None:
    shards = write_shards(tmp_path, [2000, 2000])
    arguments = (shards, str(tmp_path / "cache"))
    here = _pages_of_indexes(*arguments)

    with multiprocessing.get_context(method).Pool(1) as pool:
        there = pool.apply(_pages_of_indexes, arguments)

    assert len(here) == 2
    assert here == there == dict.fromkeys(here, 0)


def test_threads_read_right_bytes_through_one_open_shard(tmp_path: Path) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [20] * 5), lru_size=1)
    wrong: list[Any] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(300):
            index = rng.randrange(100)
            try:
                if dataset[index][".txt"] != f"text of {index}":
                    wrong.append(index)
            except Exception as error:  # any error at all fails the test
                wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []


def test_a_dataset_pickles_before_and_after_the_first_read(shards: list[tuple[str, int]]) -> None:
    dataset = wids.ShardListDataset(shards)

    assert texts(pickle.loads(pickle.dumps(dataset))) == EXPECTED
    dataset.index_of("000001")
    assert len(pickle.dumps(dataset)) < 4000
    assert texts(pickle.loads(pickle.dumps(dataset[2:]))) == EXPECTED[2:]


@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_a_data_loader_reads_with_workers(shards: list[tuple[str, int]], context: str) -> None:
    dataset = wids.ShardListDataset(shards).to_tuple("cls", "txt")
    dataset[0]

    loader: DataLoader[Any] = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=context)

    assert [label for labels, _ in loader for label in labels.tolist()] == list(range(9))


def test_a_data_loader_reads_without_workers(shards: list[tuple[str, int]]) -> None:
    loader: DataLoader[Any] = DataLoader(wids.ShardListDataset(shards), batch_size=9, collate_fn=wids.collate)

    batch = next(iter(loader))

    assert batch[".txt"] == EXPECTED
    assert batch["__index__"].tolist() == list(range(9))


class Doubled(wids.ShardListDataset):
    def __getitem__(self, index: Any) -> Any:
        return 2 * super().__getitem__(index)[".cls"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_calls_the_getitem_of_a_subclass(shards: list[tuple[str, int]], workers: int) -> None:
    loader: DataLoader[Any] = DataLoader(Doubled(shards), batch_size=9, num_workers=workers)

    assert next(iter(loader)).tolist() == list(range(0, 18, 2))


def _read_all(dataset: Any, answers: Any) -> None:
    answers.put(texts(dataset))


def test_a_child_that_is_forked_while_another_thread_reads_can_read(tmp_path: Path) -> None:
    dataset = wids.ShardListDataset(write_shards(tmp_path, [3] * 30), lru_size=2)
    # Imports all modules: a child cannot import what another thread was importing at the moment of the fork.
    texts(dataset)
    stop = threading.Event()

    def read() -> None:
        rng = random.Random(0)
        while not stop.is_set():
            dataset[rng.randrange(90)]

    thread = threading.Thread(target=read)
    thread.start()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    try:
        for _ in range(5):
            child = context.Process(target=_read_all, args=(dataset, answers))
            child.start()
            assert answers.get(timeout=60) == [f"text of {number}" for number in range(90)]
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        thread.join()


# What is wrong with the input


def test_fewer_samples_than_the_descriptor_says_is_an_error_that_names_both_counts(tmp_path: Path) -> None:
    ((path, _),) = write_shards(tmp_path, [3])
    dataset = wids.ShardListDataset([(path, 5)])

    for read in (lambda: dataset[4], lambda: list(dataset)):
        with pytest.raises(wids.ShardMismatchError, match=r"has 3 samples, .*says 5;.*widsindex update --recount"):
            read()


def test_more_samples_than_the_descriptor_says_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ((path, _),) = write_shards(tmp_path, [3])
    dataset = wids.ShardListDataset([(path, 2)])

    assert texts(dataset) == EXPECTED[:2]
    dataset.close()
    assert texts(dataset) == EXPECTED[:2]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "has 3 samples, its descriptor says 2" in caplog.text


def test_a_shard_of_another_size_than_the_descriptor_says_is_refused(tmp_path: Path) -> None:
    ((path, _),) = write_shards(tmp_path, [3])
    shard = {"url": path, "nsamples": 3, "filesize": 1}

    with pytest.raises(wids.ShardMismatchError, match="descriptor says 1;"):
        wids.ShardListDataset([shard])[0]
    assert wids.ShardListDataset([shard], checksum="none")[0][".txt"] == "text of 0"
    with pytest.raises(wids.ShardMismatchError, match="MD5"):
        wids.ShardListDataset([{"url": path, "nsamples": 3, "md5sum": "0" * 32}], checksum="md5")[0]


def test_a_bad_field_names_index_shard_key_field_and_command(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("x.txt", b"fine"), ("y.json", b"{bad"), ("z.pkl", pickle.dumps(1))])
    path = write_descriptor(tmp_path / "d.json", [{"url": "a.tar", "nsamples": 3}])
    dataset = wids.ShardListDataset(path)

    with pytest.raises(wids.DecodeError) as caught:
        dataset[1]
    message = str(caught.value)
    for part in ("index 1", str(tmp_path / "a.tar"), "key 'y'", "field '.json'", f"widsindex sample {path} 1"):
        assert part in message
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    with pytest.raises(wids.DecodeError, match="allow_pickle=True"):
        dataset[2]
    assert wids.ShardListDataset(path, allow_pickle=True)[2][".pkl"] == 1


def test_a_damaged_sample_is_replaced_by_the_next_readable_one(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.cls", b"x"), ("b.cls", b"1"), ("c.cls", b"?"), ("d.cls", b"y")])
    dataset = wids.ShardListDataset([path], on_error="replace")

    assert [sample["__key__"] for sample in dataset] == ["b", "b", "b", "b"]
    assert [sample["__index__"] for sample in dataset] == [1, 1, 1, 1]
    asked = wids.ShardListDataset([path], on_error=lambda error, index: (type(error), index))
    assert asked[2] == (wids.DecodeError, 2)
    with pytest.raises(ZeroDivisionError):
        dataset.map(lambda sample: sample[".cls"] / 0)[1]
    with pytest.raises(ValueError, match="on_error"):
        wids.ShardListDataset([path], on_error="ignore")  # type: ignore[arg-type]


def test_too_many_replacements_are_an_error(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.cls", b"x"), ("b.cls", b"1")])
    dataset = wids.ShardListDataset([path], on_error="replace")

    with pytest.raises(wids.DecodeError, match=r"101 of .* most in .*a\.tar"):
        [dataset[0] for _ in range(102)]


def test_empty_lists_and_folders_are_accepted_and_unknown_options_are_errors(shards: list[tuple[str, int]]) -> None:
    assert len(wids.ShardListDataset([])) == 0
    assert list(wids.ShardListDataset([])) == []
    assert len(wids.ShardListDataset(Path(shards[0][0]).parent)) == 9
    assert wids.ShardListDataset(shards, transformations=None)[0][".txt"].read() == b"text of 0"
    for name, value in (("checksum", "sha"), ("io", "x"), ("lru_size", 0), ("transformations", "rbg8")):
        with pytest.raises(ValueError, match=name if name != "transformations" else "rgb8"):
            wids.ShardListDataset(shards, **{name: value})  # type: ignore[arg-type]


def test_a_missing_file_or_a_text_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(wids.FetchError, match=r"missing\.json.*is the path right"):
        wids.ShardListDataset(tmp_path / "missing.json")
    with pytest.raises(wids.FetchError, match=r"missing\.tar.*is the path right"):
        wids.ShardListDataset([(tmp_path / "missing.tar", 1)])[0]
    (tmp_path / "text.tar").write_text("no tar\n" * 200)
    with pytest.raises(wids.TarFormatError, match=r"text\.tar: not a tar archive"):
        wids.ShardListDataset([tmp_path / "text.tar"])


def test_a_shard_that_ends_between_members_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_tar(tmp_path / "a.tar", sample_members(3))
    os.truncate(path, 4 * 1024)

    assert texts(wids.ShardListDataset([path])) == EXPECTED[:2]
    assert "without its end blocks" in caplog.text


def test_a_local_file_that_was_replaced_is_read_anew_when_reopened(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", sample_members(2))
    dataset = wids.ShardListDataset([path])
    assert texts(dataset) == EXPECTED[:2]

    write_tar(tmp_path / "b.tar", sample_members(2, first=5)).replace(path)

    assert texts(dataset) == EXPECTED[:2]
    dataset.close()
    assert texts(dataset) == EXPECTED[5:7]


def test_local_shards_are_opened_in_place_and_only_their_indexes_are_kept(
    shards: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("WIDS_CACHE", str(cache))

    assert texts(wids.ShardListDataset(shards)) == EXPECTED
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} == {".widx"}


def test_cache_local_reads_in_place_until_the_copy_is_whole(
    shards: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("WIDS_CACHE", str(cache))
    with wids.ShardListDataset(shards, cache_local=True, lru_size=1) as dataset:
        assert texts(dataset) == EXPECTED
        wait_until(lambda: len(list(cache.glob("*.tar"))) == 3)
        assert texts(dataset) == EXPECTED
        assert any(str(cache) in line and ".tar" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_errors_are_the_same_under_python_optimization(tmp_path: Path) -> None:
    ((path, _),) = write_shards(tmp_path, [3])
    script = f"import wids; dataset = wids.ShardListDataset([({path!r}, 5)]); dataset[0]"

    plain, optimized = (
        subprocess.run([sys.executable, *flags, "-c", script], capture_output=True, text=True, check=False)
        for flags in ([], ["-O"])
    )

    assert "ShardMismatchError" in plain.stderr.splitlines()[-1]
    assert (optimized.returncode, optimized.stderr) == (plain.returncode, plain.stderr)


def test_keys_include_folders_with_dots_and_files_without_a_field_are_ignored(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar", [("./README", b""), ("a/b.c/x.txt", b"1"), ("._y.txt", b""), (".DS_Store", b"")]
    )

    (sample,) = wids.ShardListDataset([path])
    assert (sample["__key__"], sample["txt"]) == ("a/b.c/x", "1")


def test_a_field_is_found_without_its_dot_and_in_any_case(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.TXT", b"1")])
    sample = wids.ShardListDataset([path])[0]

    assert sample["txt"] == sample[".TXT"] == sample.get("TXT") == "1"
    assert "txt" in sample
    assert sample.get("jpg", 7) == 7
    with pytest.raises(KeyError, match=r"has \.TXT"):
        sample["jpg"]


@needs_corpora
@pytest.mark.parametrize(("name", "count"), [("mpdata", 100), ("tendata", 100), ("compressed", 3), ("testgz", 1000)])
def test_webdatasets_own_shards_read_as_tarfile_reads_them(name: str, count: int) -> None:
    path = CORPORA / "tar" / "webdataset" / f"{name}.tar"
    dataset = wids.ShardListDataset([path])
    with tarfile.open(path) as tar:
        expected = [tar.extractfile(member).read() for member in tar if member.isreg()]  # type: ignore[union-attr]

    assert len(dataset) == count
    assert [data for index in range(count) for data in dataset.read(index).values()] == expected
    assert len(list(dataset)) == count


@needs_corpora
def test_a_compressed_shard_is_unpacked_into_the_cache(tmp_path: Path) -> None:
    dataset = wids.ShardListDataset(CORPORA / "tar" / "webdataset" / "sample.tgz", cache_dir=str(tmp_path))

    assert len(dataset) == 90
    assert dataset.decode("numpy")[3]["png"].shape == (28, 28)
    assert len(list(tmp_path.glob("*.tar"))) == 1


def test_old_import_paths_and_attributes_of_0_1_11_work(shards: list[tuple[str, int]], tmp_path: Path) -> None:
    from wids.wids import IndexedTarSamples, ShardListDataset, compute_num_samples, group_by_key, splitname
    from wids.wids_decode import decode_all_gz, decode_basic, default_decoder
    from wids.wids_mmtar import MMIndexedTar
    from wids.wids_tar import TarFileReader

    path = shards[0][0]
    dataset = ShardListDataset(shards, cache_dir=str(tmp_path / "c"), dataset_name="d")
    assert dataset.lengths == [3, 0, 3, 3]
    assert list(dataset.cum_lengths) == [3, 3, 6, 9]
    assert (dataset.total_length, dataset.dataset_name, dataset.cache_dir) == (9, "d", str(tmp_path / "c"))
    assert dataset.shards[0]["url"] == path
    dataset.transformations.append(lambda sample: sample["cls"])
    assert dataset[4] == 4
    assert dataset.add_transform(lambda label: label + 1)[4] == 5
    assert dataset.get_shard(4)[1:] == (1, dataset.shards[2])
    dataset.check_cache_misses()
    assert compute_num_samples(path) == 3
    assert splitname("a/b.c/x.seg.png") == ("a/b.c/x", ".seg.png")
    assert group_by_key(["a.x", "a.y", "README", "b.x"]) == [[0, 1], [3]]
    samples = IndexedTarSamples(path=path, expected_size=3, md5sum=hashlib.md5(Path(path).read_bytes()).hexdigest())
    assert len(samples) == 3
    assert samples[-1][".txt"].read() == samples["000002"][".txt"].read() == b"text of 2"
    with Path(path).open("rb") as stream:
        assert [sample["__key__"] for sample in IndexedTarSamples(stream=stream)] == samples.keys()
    for kind in (MMIndexedTar, TarFileReader):
        tar = kind(path)
        assert tar.names()[0] == "000000.txt"
        assert tar.get_file(0)[1].read() == b"text of 0"
        assert tar["000001.txt"] == ("000001.txt", b"text of 1")
        assert len(list(tar)) == len(tar) == 6
    sample = {"__key__": "k", ".cls": b"3"}
    assert default_decoder(sample, "PIL")[".cls"] == default_decoder(sample, format="numpy")[".cls"] == 3
    assert decode_basic(sample)[".cls"] == 3
    assert decode_all_gz(sample) == sample


def test_importing_and_indexing_need_no_torch(tmp_path: Path, shards: list[tuple[str, int]]) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('absent')")
    script = (
        "import sys, wids; from wids.cli import main; "
        f"main(['create', {shards[0][0]!r}, '-o', {str(tmp_path / 'o.json')!r}]); "
        f"main(['sample', {str(tmp_path / 'o.json')!r}, '1']); "
        f"print(wids.ShardListDataset({str(tmp_path / 'o.json')!r})[2]['txt'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    assert "text of 2" in done.stdout
    assert json.loads((tmp_path / "o.json").read_text())["shardlist"][0]["nsamples"] == 3


def test_a_decode_error_in_a_custom_step_names_the_sample_and_is_never_replaced(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("x.cls", b"?"), ("y.cls", b"1")])
    step = partial(wids_decode.default_decoder, format="PIL")

    for on_error in ("raise", "replace"):
        dataset = wids.ShardListDataset([path], transformations=[step], on_error=on_error)
        with pytest.raises(wids.DecodeError, match=r"index 0, shard .*a\.tar, key 'x', field '\.cls'"):
            dataset[0]
