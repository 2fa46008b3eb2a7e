"""`ShardWriter`: its shards are read alike by all readers of tars, and appear whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from tests.storage.reading import wait_until
from wids.errors import EncodeError, FetchError, WidsError
from wids.tar.headers import BLOCK
from wids.tools import create_index
from wids.tools.sample_names import encode_field, encode_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Sample = dict[str, Any]

ODD: list[Sample] = [
    {"__key__": "000", "jpg": b"jpeg", ".txt": "text", "__url__": "left out"},
    {"__key__": "a/b.c/001", "seg.PNG": b"", "cls": 3},
    {"__key__": "Grüße/日本", ".json": {"a": [1, None]}, ".bin": bytes(range(256)) * 40},
    {"__key__": "d/" * 60 + "long with a prefix", "txt": "x" * 1536},
    {"__key__": "n" * 180, "txt": "y", "field" * 10: b"z"},
    {"__key__": "bytes\udcff", "txt": "no UTF-8"},
    {"__key__": "000", "txt": "the same key again, but not behind itself"},
]
"""Samples whose names or sizes are rare."""


def write(pattern: object, samples: Iterable[Mapping[str, Any]], **options: Any) -> None:
    with wids.ShardWriter(str(pattern), **options) as writer:
        for sample in samples:
            writer.write(sample)


def numbered(count: int, *, first: int = 0) -> list[Sample]:
    return [
        {"__key__": f"{number:06d}", "txt": f"text {number}", "cls": number} for number in range(first, first + count)
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def expected(samples: list[Sample]) -> list[tuple[str, dict[str, bytes]]]:
    encode = wids.encode.Encoder()
    return [
        (
            sample["__key__"],
            {
                (dotted := f".{field.lstrip('.')}"): bytes(encode("", dotted, value))
                for field, value in sample.items()
                if not field.startswith("__")
            },
        )
        for sample in samples
    ]


def read(shards: object, **options: Any) -> list[tuple[str, dict[str, bytes]]]:
    with wids.ShardListDataset(shards, **options) as dataset:
        return [(dataset.key(index), dict(dataset.read(index))) for index in range(len(dataset))]


# Other readers


def members(samples: list[Sample]) -> list[tuple[str, bytes]]:
    return [(key + field, data) for key, fields in expected(samples) for field, data in fields.items()]


def read_with_tarfile(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path, encoding="utf-8") as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def read_with_program(path: Path, program: str) -> list[tuple[str, bytes]]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    listed = subprocess.run([program, "-tf", path], env=environment, capture_output=True, check=True)
    folder = path.with_name(f"{path.name}-{program}")
    folder.mkdir()
    done = subprocess.run([program, "-xf", path, "-C", folder], env=environment, capture_output=True, check=True)
    assert (listed.stderr, done.stderr) == (b"", b"")
    found = [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]
    assert len(listed.stdout.splitlines()) == len(found)  # nothing is unpacked but members of samples
    return [(name, (folder / name).read_bytes()) for name in sorted(found)]


@pytest.mark.parametrize("align", [None, 4096], ids=["packed", "aligned"])
def test_written_shards_are_read_alike_by_wids_tarfile_tar_and_bsdtar(tmp_path: Path, align: int | None) -> None:
    samples = ODD[:-1]  # unpacked into one folder, a key that comes again would replace its own files
    write(tmp_path / "a-%d.tar", samples, align=align)
    path = tmp_path / "a-0.tar"

    assert read(str(path)) == expected(samples)
    assert read_with_tarfile(path) == members(samples)
    programs = [program for program in ("tar", "bsdtar") if shutil.which(program)]
    assert "tar" in programs
    for program in programs:
        assert read_with_program(path, program) == sorted(members(samples))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves its files open
@pytest.mark.parametrize("align", [None, 4096], ids=["packed", "aligned"])
def test_webdataset_reads_the_samples_that_were_written(tmp_path: Path, align: int | None) -> None:
    webdataset = pytest.importorskip("webdataset")
    samples = [sample for sample in ODD if "\udcff" not in sample["__key__"]]  # webdataset reads UTF-8 only
    write(tmp_path / "a-%d.tar", samples, align=align)

    found = [
        (sample["__key__"], {f".{name}": data for name, data in sample.items() if not name.startswith("__")})
        for sample in webdataset.WebDataset(str(tmp_path / "a-0.tar"), shardshuffle=False, empty_check=False)
    ]

    assert found == [(key, {name.lower(): data for name, data in fields.items()}) for key, fields in expected(samples)]


def test_aligned_members_begin_at_multiples_of_4096_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", ODD, align=4096, max_samples=3)

    with wids.ShardListDataset(str(tmp_path / "a.json")) as dataset:
        places = [place for index in range(len(dataset)) for place in dataset.locate(index).values()]

    assert all(place.offset % 4096 == 0 for place in places)
    assert read(str(tmp_path / "a.json")) == expected(ODD)


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2", ".tgz"])
def test_equal_samples_give_equal_bytes(tmp_path: Path, suffix: str) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder / f"a-%03d{suffix}", ODD, max_samples=2)

    assert names(tmp_path / "one") == [*(f"a-{number:03d}{suffix}" for number in range(4)), "a.json", "a.widx"]
    assert content(tmp_path / "one") == content(tmp_path / "two")
    assert read(str(tmp_path / "one" / "a.json")) == expected(ODD)


def test_images_arrays_and_values_with_own_encoders_are_encoded(tmp_path: Path) -> None:
    image = PIL.Image.new("RGB", (8, 6), (200, 10, 30))
    write(
        tmp_path / "a-%d.tar",
        [{"__key__": "0", "png": image, "npy": np.arange(3), "x": 3}],
        encoders={".x": lambda x: b"%d" % x},
    )

    with wids.ShardListDataset(str(tmp_path / "a.json")) as dataset:
        assert dataset[0][".png"].tobytes() == image.tobytes()
        assert dataset[0][".npy"].tolist() == [0, 1, 2]
        assert dataset[0][".x"].read() == b"3"


# Sizes


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=25),
    max_samples=st.none() | st.integers(1, 6),
    max_bytes=st.none() | st.integers(1, 9000),
    align=st.sampled_from([None, 1024]),
)
def test_shards_are_as_full_as_their_limits_allow(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    max_samples: int | None,
    max_bytes: int | None,
    align: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("full")
    samples = [{"__key__": f"{number}", "bin": bytes(size)} for number, size in enumerate(sizes)]
    write(folder / "a-%d.tar", samples, maxcount=max_samples, maxsize=max_bytes, align=align, index=False)

    counts = []
    for number in range(len(names(folder))):
        path = folder / f"a-{number}.tar"
        found = read_with_tarfile(path)
        counts.append(len(found))
        size = path.stat().st_size
        assert max_samples is None or len(found) <= max_samples
        assert max_bytes is None or size <= max_bytes or len(found) == 1
        following = sum(counts)
        if following < len(sizes) and max_samples != len(found):
            # The next sample, with its header and at most as much as aligning it takes, would not have had room.
            most = BLOCK + -(-sizes[following] // BLOCK) * BLOCK + (0 if align is None else align + BLOCK)
            assert max_bytes is not None
            assert size + most > max_bytes
    assert sum(counts) == len(sizes)


def test_max_samples_and_mtime_may_be_floats(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", numbered(5), max_samples=2e0, mtime=1234567890.75)

    assert names(tmp_path) == ["a-0.tar", "a-1.tar", "a-2.tar", "a.json", "a.widx"]
    with tarfile.open(tmp_path / "a-0.tar") as tar:
        assert {member.mtime for member in tar} == {1234567890}


def test_the_default_limit_of_a_shard_is_a_gigabyte() -> None:
    assert wids.tools.shard_file.make_limits(None, None).max_bytes == 10**9
    assert wids.tools.shard_file.make_limits(5, None).max_bytes is None
    assert wids.tools.shard_file.make_limits(None, "2GB").max_bytes == 2 * 10**9


# Descriptor and pack


@pytest.mark.parametrize("suffix", [".tar", ".tar.zst"])
def test_the_descriptor_equals_the_one_that_create_index_writes(tmp_path: Path, suffix: str) -> None:
    write(tmp_path / f"train-%04d{suffix}", numbered(25), max_samples=10, md5=True)
    own = {name: (tmp_path / name).read_bytes() for name in ("train.json", "train.widx")}

    create_index(sorted(map(str, tmp_path.glob(f"*{suffix}"))), tmp_path / "train.json", index=True)

    assert own == {name: (tmp_path / name).read_bytes() for name in own}


def test_the_descriptor_has_counts_sizes_and_indexes_without_md5(tmp_path: Path) -> None:
    write(tmp_path / "train-%04d.tar", numbered(3))

    with wids.ShardListDataset(str(tmp_path / "train.json")) as dataset:
        assert dataset.dataset_name == "train"
        assert [set(shard) - {"dataset", "index"} for shard in dataset.shards] == [{"url", "nsamples", "filesize"}]
        assert dataset.stats()["index_builds"] == 0
        assert dataset[2]["txt"] == "text 2"
        assert dataset.stats()["index_builds"] == 0


def test_a_writer_without_samples_writes_the_descriptor_of_an_empty_dataset(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", [])
    write(tmp_path / "b-%d.tar", [], index=False)

    assert names(tmp_path) == ["a.json", "a.widx"]
    with wids.ShardListDataset(tmp_path / "a.json") as dataset:
        assert (len(dataset), list(dataset)) == (0, [])
    write(tmp_path / "a-%d.tar", numbered(1), resume=True)
    assert len(wids.ShardListDataset(tmp_path / "a.json")) == 1


def test_facts_are_written_into_the_descriptor(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", numbered(1), facts={"name": "mine", "classes": ["cat"]})

    assert {"name": "mine", "classes": ["cat"]}.items() <= wids.ShardListDataset(tmp_path / "a.json").spec.items()
    with pytest.raises(ValueError, match="facts has shardlist, which the shards determine"):
        wids.ShardWriter(tmp_path / "b-%d.tar", facts={"shardlist": []})
    with pytest.raises(
        wids.DescriptorError, match=r"b\.json: cannot be written, because JSON cannot hold one of its values: "
    ):
        wids.ShardWriter(tmp_path / "b-%d.tar", facts={"info": object()})


# Names that would not be read back

KEYS = st.text(st.sampled_from("ab./\0_ é\udc80\udcc3\udca9\ud800"), max_size=8)


@settings(max_examples=300)
@given(key=KEYS, field=KEYS)
def test_a_key_with_its_field_is_refused_or_read_back(key: str, field: str) -> None:
    try:
        name = encode_key(key) + encode_field(field)
    except EncodeError:
        return
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        tar.addfile(tarfile.TarInfo(name.decode("utf-8", "surrogateescape")))

    samples = wids.IndexedTarSamples(stream=io.BytesIO(data.getvalue()))

    assert [list(sample) for sample in samples] == [[f".{field.removeprefix('.')}", "__key__"]]
    assert samples.keys() == [key]
    assert not key.startswith("/")
    assert ".." not in key.split("/")


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"__key__": "a.b", "txt": "x"}, "key 'a.b': has a dot after its last slash"),
        ({"__key__": "", "txt": "x"}, "key '': is empty"),
        ({"__key__": "/a", "txt": "x"}, "begins with a slash"),
        ({"__key__": "a/", "txt": "x"}, "ends with a slash"),
        ({"__key__": "../a", "txt": "x"}, "has '..' for a folder"),
        ({"__key__": "a//b", "txt": "x"}, "a folder without a name"),
        ({"__key__": "a\0b", "txt": "x"}, "has a NUL"),
        ({"__key__": "\ud800", "txt": "x"}, "has a lone surrogate"),
        ({"__key__": 3, "txt": "x"}, "key 3: is of type int"),
        ({"txt": "x"}, "key None: is of type NoneType"),
        ({"__key__": "before", "txt": "x"}, "key 'before': is also that of the previous sample"),
        ({"__key__": "b"}, "key 'b': has no fields"),
        ({"__key__": "b", "__url__": "x"}, "key 'b': has no fields"),
        ({"__key__": "b", "txt": "x", ".txt": "y"}, "has the field '.txt' twice"),
        ({"__key__": "b", "": "x"}, "field '': is not a name"),
        ({"__key__": "b", "a/txt": "x"}, "field 'a/txt': has a slash"),
        ({"__key__": "b", 3: "x"}, "field 3: is of type int"),
        ({"__key__": "b", "xyz": 3}, "key 'b', field '.xyz': there is no encoder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sample_that_would_not_be_read_back_is_refused_and_the_next_is_written(
    tmp_path: Path, sample: Sample, message: str
) -> None:
    with wids.ShardWriter(str(tmp_path / "a-%d.tar")) as writer:
        writer.write({"__key__": "before", "txt": "x"})
        with pytest.raises(EncodeError, match=re.escape(message)):
            writer.write(sample)
        writer.write({"__key__": "after", "txt": "x"})

    assert [key for key, _ in read(str(tmp_path / "a.json"))] == ["before", "after"]


# Failures and resuming


class StopError(Exception):
    pass


def stop_after(samples: list[Sample]) -> Iterator[Sample]:
    yield from samples
    raise StopError


@pytest.mark.parametrize("count", [0, 4, 5, 12])
def test_resuming_after_an_error_gives_the_same_shards_as_without_it(tmp_path: Path, count: int) -> None:
    samples = numbered(23)
    write(tmp_path / "whole" / "a-%d.tar", samples, max_samples=5)
    folder = tmp_path / "a"
    with pytest.raises(StopError):
        write(folder / "a-%d.tar", stop_after(samples[:count]), max_samples=5)

    full = max(0, count - 1) // 5  # a shard is full when the next sample has no room in it
    assert not folder.exists() or names(folder) == [f"a-{number}.tar" for number in range(full)]
    with wids.ShardWriter(str(folder / "a-%d.tar"), max_samples=5, resume=True) as writer:
        assert writer.num_samples == 5 * full
        assert writer.last_key == (samples[5 * full - 1]["__key__"] if full else None)
        for sample in samples[writer.num_samples :]:
            writer.write(sample)
    assert content(folder) == content(tmp_path / "whole")


def test_resuming_with_all_shards_present_writes_the_descriptor_again(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", numbered(7), max_samples=5)
    before = content(tmp_path)
    (tmp_path / "a.json").unlink()

    write(tmp_path / "a-%d.tar", [], resume=True)

    assert content(tmp_path) == before


def test_resuming_with_the_key_of_the_last_sample_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", numbered(5))

    with (
        pytest.raises(EncodeError, match="is also that of the previous sample"),
        wids.ShardWriter(str(tmp_path / "a-%d.tar"), resume=True) as writer,
    ):
        writer.write(numbered(5)[-1])


@pytest.mark.parametrize("there", ["a-0.tar", "a.json"])
def test_existing_files_are_replaced_only_with_overwrite(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_bytes(b"precious")

    with pytest.raises(FileExistsError, match=rf"{there}: already exists; .*resume=True.*overwrite=True"):
        write(tmp_path / "a-%d.tar", numbered(3))
    assert content(tmp_path) == {there: b"precious"}

    write(tmp_path / "a-%d.tar", numbered(3), overwrite=True)
    assert [key for key, _ in read(str(tmp_path / "a.json"))] == ["000000", "000001", "000002"]


def test_overwriting_removes_the_shards_of_a_longer_dataset(tmp_path: Path) -> None:
    write(tmp_path / "a-%d.tar", numbered(9), max_samples=2)

    write(tmp_path / "a-%d.tar", numbered(3), max_samples=2, overwrite=True)

    assert names(tmp_path) == ["a-0.tar", "a-1.tar", "a.json", "a.widx"]


def test_shards_of_another_range_of_numbers_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "a-%03d.tar", numbered(4), max_samples=2, start_shard=100, index=False)
    write(tmp_path / "a-%03d.tar", numbered(4), max_samples=2, index=False)

    assert names(tmp_path) == ["a-000.tar", "a-001.tar", "a-100.tar", "a-101.tar"]


def test_a_shard_made_before_it_is_begun_here_is_not_replaced(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        yield from numbered(1)
        (tmp_path / "a-1.tar").write_bytes(b"precious")
        yield from numbered(5, first=1)

    with pytest.raises(FileExistsError, match=r"a-1\.tar: already exists"):
        write(tmp_path / "a-%d.tar", samples(), max_samples=2)

    assert (tmp_path / "a-1.tar").read_bytes() == b"precious"


def test_a_shard_made_by_another_process_while_writing_is_not_replaced(tmp_path: Path) -> None:
    def samples() -> Iterator[Sample]:
        yield from numbered(2)
        (tmp_path / "a-0.tar").write_bytes(b"precious")
        yield from numbered(3, first=2)

    with pytest.raises(FileExistsError, match=r"a-0\.tar: was written by another process"):
        write(tmp_path / "a-%d.tar", samples(), max_samples=2)

    assert content(tmp_path) == {"a-0.tar": b"precious"}


@pytest.mark.parametrize("call", ["write", "num_samples", "close"])
def test_a_shard_that_fails_while_the_next_one_is_written_raises_its_own_error_once(tmp_path: Path, call: str) -> None:
    writer = wids.ShardWriter(tmp_path / "a-%d.tar", max_samples=2)
    calls = {
        "write": lambda: writer.write({"__key__": "z", "cls": 1}),
        "num_samples": lambda: writer.num_samples,
        "close": writer.close,
    }
    for sample in numbered(2):
        writer.write(sample)
    (tmp_path / "a-0.tar").write_bytes(b"precious")
    writer.write(numbered(3)[-1])
    wait_until(lambda: len(names(tmp_path)) == 2)  # the part of a-0.tar is removed, after which its failure is known

    with pytest.raises(FileExistsError, match=r"a-0\.tar: was written by another process"):
        calls[call]()
    with pytest.raises(WidsError, match=r"a-%d\.tar: writing failed: .*a-0\.tar: was written by another process"):
        calls["write"]()
    with contextlib.suppress(WidsError):
        writer.close()
    assert content(tmp_path) == {"a-0.tar": b"precious"}


def test_a_full_disk_is_an_error_that_names_the_shard_and_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys, wids\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "with wids.ShardWriter(sys.argv[1]) as writer:\n"
        "    for number in range(100):\n"
        "        writer.write({'__key__': str(number), 'bin': bytes(10_000)})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a-%d.tar")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 1
    assert re.search(r"OSError: .*a-0\.tar: cannot be written: File too large", done.stderr)
    assert names(tmp_path) == []


def test_a_shard_that_cannot_be_finished_is_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    calls = []

    def fail_at_the_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_at_the_second)

    with pytest.raises(OSError, match=r"a-1\.tar: cannot be written: Input/output error"):
        write(tmp_path / "a-%d.tar", numbered(10), max_samples=2)
    assert names(tmp_path) == ["a-0.tar"]


def test_a_writer_that_is_not_closed_leaves_only_whole_shards_and_warns(tmp_path: Path) -> None:
    code = (
        "import os, time, wids\n"
        "writer = wids.ShardWriter('a-%d.tar', max_samples=2)\n"
        "for number in range(3): writer.write({'__key__': str(number), 'cls': number})\n"
        "if not os.fork(): raise SystemExit\n"
        "assert os.wait()[1] == 0, 'the fork has failed'\n"
        "while not os.path.exists('a-0.tar') or len(os.listdir('.')) > 2: time.sleep(0.01)\n"  # it is finished meanwhile
        "(part,) = {*os.listdir('.')} - {'a-0.tar'}\n"
        "assert os.path.getsize(part) == 0, 'the fork wrote its copy'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0
    assert b"a-1.tar-" in done.stderr
    assert b"its writer was not closed" in done.stderr
    assert names(tmp_path) == ["a-0.tar"]


_FORKED = """
import os, sys, wids

samples = [{"__key__": str(number), "bin": os.urandom(3000)} for number in range(200)]

def refused(call, *arguments):
    try:
        call(*arguments)
    except wids.WidsError as error:
        return "was opened before this process was forked" in str(error)

def child(writer, act):
    if act == "writes":
        os._exit(not refused(writer.write, samples[100]))
    if act == "closes":
        os._exit(not refused(writer.close))
    sys.exit(0)  # leaves the block, and the interpreter with what is in its buffers

def write(pattern, act):
    with wids.ShardWriter(pattern, max_samples=60) as writer:
        for sample in samples[:100]:
            writer.write(sample)
        if not os.fork():
            child(writer, act)
        assert os.wait()[1] == 0, "the child has failed"
        for sample in samples[100:]:
            writer.write(sample)

cases = {"a-%d.tar": "writes", "b-%d.tar": "closes", "c-%d.tar": "exits", "d-%d.tar.gz": "exits", "memory://f/e-%d.tar": "exits"}
for pattern, act in cases.items():
    write(pattern, act)
for pattern, act in cases.items():
    with wids.ShardListDataset(pattern.partition("-")[0] + ".json", transformations=None) as dataset:
        found = [(sample["__key__"], sample[".bin"].getvalue()) for sample in dataset]
    assert found == [(sample["__key__"], sample["bin"]) for sample in samples], (pattern, act)
"""


def test_a_forked_process_cannot_write_and_does_not_disturb_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORKED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=False,
        timeout=150,
    )

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst"])
def test_an_abandoned_compressed_shard_prints_nothing_at_exit(tmp_path: Path, suffix: str) -> None:
    code = (
        "import os, sys, wids\n"
        f"with wids.ShardWriter('a-%d{suffix}') as writer:\n"
        "    writer.write({'__key__': '0', 'bin': os.urandom(200_000)})\n"
        "    sys.exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        check=False,
        timeout=150,
    )

    assert (done.returncode, done.stderr) == (3, b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("align", [None, 4096], ids=["packed", "aligned"])
def test_samples_written_by_several_threads_are_all_kept(tmp_path: Path, align: int | None) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with (
            wids.ShardWriter(tmp_path / "a-%d.tar", max_samples=90, align=align) as writer,
            ThreadPoolExecutor(4) as pool,
        ):
            list(pool.map(writer.write, numbered(400)))
    finally:
        sys.setswitchinterval(interval)

    with wids.ShardListDataset(str(tmp_path / "a.json")) as dataset:
        found = {sample["__key__"]: (sample[".txt"], sample[".cls"]) for sample in dataset}
        assert dataset.lengths == [90, 90, 90, 90, 40]
    assert found == {sample["__key__"]: (sample["txt"], sample["cls"]) for sample in numbered(400)}


def test_a_closed_writer_refuses_samples(tmp_path: Path) -> None:
    with wids.ShardWriter(str(tmp_path / "a-%d.tar")) as writer:
        writer.write(numbered(1)[0])
    writer.close()

    assert (writer.num_samples, writer.last_key) == (1, "000000")
    with pytest.raises(WidsError, match="the writer is closed"):
        writer.write(numbered(2)[1])


@pytest.mark.parametrize("place", ["{}/new/folder/a-%d.tar", "file://{}/new/folder/a-%d.tar"])
def test_missing_folders_of_a_path_or_file_url_are_made(tmp_path: Path, place: str) -> None:
    write(place.format(tmp_path), numbered(2))

    assert names(tmp_path / "new" / "folder") == ["a-0.tar", "a.json", "a.widx"]


# Arguments


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        ("out/a.tar", {}, "is not a pattern for shards"),
        ("out/%d/a.tar", {}, "is not a pattern for shards"),
        ("out/a-%d-%d.tar", {}, "is not a pattern for shards"),
        ("out/a-%d", {}, "is not a name for shards"),
        ("out/.a-%d.tar", {}, "is not a name for shards"),
        ("out/a-%c.tar", {}, "is not a pattern for shards"),
        ("out/a-%x.tar", {}, "is not a pattern for shards"),
        ("out/a-%999999999d.tar", {}, "is not a pattern for shards"),
        ("out/a-%%d.tar", {}, "is not a pattern for shards"),
        ("100%/a-%d.tar", {}, "is not a pattern for shards"),
        ("pipe:cat > a-%d.tar", {}, "has no folder in it"),
        ("file:a-%d.tar", {}, "has no folder in it"),
        ("s3://a-%d.tar", {}, "has no folder in it"),
        ("a-%d.tar", {"max_samples": 2.5}, "max_samples is 2.5; it must be a whole number"),
        ("a-%d.tar", {"max_samples": float("inf")}, "max_samples is inf; it must be a whole number"),
        ("a-%d.tar", {"maxcount": "9"}, "max_samples is '9'; it must be a whole number"),
        ("a-%d.tar", {"max_samples": 0}, "max_samples is 0"),
        ("a-%d.tar", {"max_bytes": "much"}, "max_bytes is 'much'"),
        ("a-%d.tar", {"max_bytes": 1, "maxsize": 2}, "max_bytes and maxsize are the same"),
        ("a-%d.tar", {"max_samples": 1, "maxcount": 2}, "max_samples and maxcount are the same"),
        ("a-%d.tar", {"start_shard": -1}, "start_shard is -1"),
        ("a-%d.tar", {"align": 3}, "align is 3"),
        ("a-%d.tar", {"mtime": -3}, "mtime is -3"),
        ("a-%d.tar", {"resume": True, "overwrite": True}, "give one of the two"),
    ],
    ids=str,
)
def test_invalid_arguments_of_shard_writer_are_refused(pattern: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        wids.ShardWriter(pattern, **options)


@pytest.mark.parametrize("url", ["https://me:secret@x.org/a-%d.tar", "pipe:cat > /x/a-%d.tar"])
def test_web_servers_and_commands_are_refused_as_targets(url: str) -> None:
    with pytest.raises(FetchError, match="cannot be written to") as caught:
        wids.ShardWriter(url)

    assert "secret" not in str(caught.value)


# Stores


def test_shards_are_written_to_a_store_and_resumed_there(tmp_path: Path) -> None:
    folder = f"memory://{uuid.uuid4().hex}/out"
    samples = numbered(12)
    write(f"{folder}/a-%d.tar", samples[:9], max_samples=5, index=False)
    files: Any = fsspec.filesystem("memory")
    assert sorted(name.rpartition("/")[2] for name in files.ls(folder, detail=False)) == ["a-0.tar", "a-1.tar"]
    files.rm_file(f"{folder}/a-1.tar")

    with wids.ShardWriter(f"{folder}/a-%d.tar", max_samples=5, resume=True) as writer:
        for sample in samples[writer.num_samples :]:
            writer.write(sample)

    write(tmp_path / "a-%d.tar", samples, max_samples=5)
    found = {name.rpartition("/")[2]: files.cat_file(name) for name in files.ls(folder, detail=False)}
    assert found == content(tmp_path)
    assert read(f"{folder}/a.json") == expected(samples)
    with pytest.raises(FileExistsError, match=r"memory://.*/a-0\.tar: already exists"):
        write(f"{folder}/a-%d.tar", samples)


def test_a_failed_upload_is_an_error_and_leaves_nothing_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = f"memory://{uuid.uuid4().hex}"
    files: Any = fsspec.filesystem("memory")

    def fail(_: object, source: str, path: str) -> None:
        files.pipe_file(path, Path(source).read_bytes()[:100])
        raise PermissionError("read only")

    monkeypatch.setattr(type(files), "put_file", fail)

    with pytest.raises(FetchError, match=r"a-0\.tar: cannot be uploaded: .*read only"):
        write(f"{folder}/a-%d.tar", numbered(3))
    assert files.ls(folder, detail=False) == []


def test_random_samples_are_read_back(tmp_path: Path) -> None:
    draw = random.Random(5)
    samples = [
        {
            "__key__": f"{draw.choice(['', 'a/', 'b.c/'])}{number}",
            **{
                field: draw.randbytes(draw.randrange(4000))
                for field in draw.sample(["jpg", ".txt", "a.b.c", "JSON"], 2)
            },
        }
        for number in range(200)
    ]
    write(tmp_path / "a-%d.tar", samples, max_bytes=100_000)

    assert len(names(tmp_path)) > 5
    assert read(str(tmp_path / "a.json")) == expected(samples)


def test_a_file_in_the_way_of_the_folder_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"")

    for folder in ("out", "out/below"):
        with pytest.raises(
            NotADirectoryError, match=r"out.*: cannot be created because a file is in the way; name another folder"
        ):
            write(f"{tmp_path}/{folder}/a-%d.tar", numbered(1))
