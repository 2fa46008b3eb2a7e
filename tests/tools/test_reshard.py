"""`reshard` against an oracle that reads the shards with `tarfile` and deals the samples out one by one."""

from __future__ import annotations

import json
import random
import re
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wids
from tests.support import sample_members, write_shards, write_tar
from wids.errors import DescriptorError, TarFormatError, WidsError
from wids.storage import Storage
from wids.tools import reshard

if TYPE_CHECKING:
    from pathlib import Path

Sample = tuple[str, list[tuple[str, bytes]]]
"""Key, and `(field, data)` of each member."""


def read(path: Path) -> list[Sample]:
    """Return the samples of a shard, read with `tarfile`."""
    samples: list[Sample] = []
    with tarfile.open(path) as tar:
        for info in tar:
            folder, slash, base = info.name.rpartition("/")
            key, _, field = base.partition(".")
            data = tar.extractfile(info).read()  # type: ignore[union-attr]
            if not samples or samples[-1][0] != folder + slash + key:
                samples.append((folder + slash + key, []))
            samples[-1][1].append((f".{field}", data))
    return samples


def read_all(folder: Path) -> list[list[Sample]]:
    """Return the samples of each shard of a folder."""
    return [read(path) for path in sorted(folder.glob("*.tar"))]


def deal(samples: list[Sample], max_samples: int | None, max_bytes: int | None) -> list[list[Sample]]:
    """Return what goes into each shard."""
    shards: list[list[Sample]] = []
    filled = 0
    for key, members in samples:
        size = sum(512 + -(-len(data) // 512) * 512 for _, data in members)
        fits = bool(shards) and shards[-1][-1][0] != key
        fits = fits and (max_samples is None or len(shards[-1]) < max_samples)
        if not fits or (max_bytes is not None and filled + size + 1024 > max_bytes):
            shards.append([])
            filled = 0
        shards[-1].append((key, members))
        filled += size
    return shards


SAMPLES = st.lists(
    st.tuples(
        st.sampled_from(["0", "1", "a/2", "b.c/3", "4"]),
        st.lists(
            st.tuples(st.sampled_from([".txt", ".jpg", ".seg.png"]), st.binary(max_size=1200)),
            min_size=1,
            max_size=3,
            unique_by=lambda member: member[0],
        ),
    ),
    min_size=1,
    max_size=25,
).map(lambda samples: [one for one, before in zip(samples, [("", []), *samples], strict=False) if one[0] != before[0]])


@settings(max_examples=60)
@given(
    samples=SAMPLES,
    cut=st.integers(1, 10),
    max_samples=st.none() | st.integers(1, 6),
    max_bytes=st.none() | st.integers(1, 9000),
    seed=st.none() | st.integers(0, 5),
)
def test_new_shards_equal_those_of_writing_one_sample_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    samples: list[Sample],
    cut: int,
    max_samples: int | None,
    max_bytes: int | None,
    seed: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("reshard")
    (folder / "old").mkdir()
    for number, first in enumerate(range(0, len(samples), cut)):
        members = [(key + field, data) for key, fields in samples[first : first + cut] for field, data in fields]
        write_tar(folder / "old" / f"{number:03d}.tar", members)
    order = list(range(len(samples)))
    if seed is not None:
        random.Random(seed).shuffle(order)

    made = reshard(
        folder / "old",
        folder / "new" / "a-%03d.tar",
        max_samples=max_samples,
        max_bytes=max_bytes,
        shuffle=seed is not None,
        seed=seed or 0,
    )

    expected = deal([samples[place] for place in order], max_samples, max_bytes)
    assert read_all(folder / "new") == expected
    assert (made.num_samples, made.num_shards, made.num_resumed) == (len(samples), len(expected), 0)
    with wids.ShardListDataset(str(folder / "new" / "a.json"), transformations=None) as dataset:
        found = [(dataset.key(index), list(dataset.read(index).items())) for index in range(len(dataset))]
    assert found == [samples[place] for place in order]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder of three shards of `000000` to `000024`, with `.txt` and `.cls`."""
    folder = tmp_path / "old"
    folder.mkdir()
    write_shards(folder, [10, 5, 10])
    return folder


def keys(shards: object) -> list[str]:
    with wids.ShardListDataset(shards) as dataset:
        return [dataset.key(index) for index in range(len(dataset))]


def test_reshard_takes_a_range_of_samples_or_those_with_given_keys(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "range" / "a-%d.tar", samples=range(8, 13))
    reshard(old, tmp_path / "keys" / "a-%d.tar", keys=["000020", "000003"])
    reshard(old, tmp_path / "both" / "a-%d.tar", keys=["000020", "000003"], samples=range(10, 25))

    assert keys(str(tmp_path / "range" / "a.json")) == [f"{number:06d}" for number in range(8, 13)]
    assert keys(str(tmp_path / "keys" / "a.json")) == ["000003", "000020"]
    assert keys(str(tmp_path / "both" / "a.json")) == ["000020"]


@pytest.mark.parametrize("kind", ["file", "view"])
def test_reshard_of_a_selection_takes_its_samples_in_its_order(tmp_path: Path, old: Path, kind: str) -> None:
    rows = [20, 3, 3, 11, 9]
    with wids.ShardListDataset(str(old)) as dataset:
        wids.tools.write_selection(dataset, rows, tmp_path / "selected.json")
        selection: Any = tmp_path / "selected.json" if kind == "file" else dataset.select(rows)
        chosen = [f"{row:06d}" for row in rows]

        reshard(selection, tmp_path / "all" / "a-%d.tar")
        reshard(selection, tmp_path / "range" / "a-%d.tar", samples=range(1, 4))
        reshard(selection, tmp_path / "keys" / "a-%d.tar", keys=["000009", "000020"])
        reshard(selection, tmp_path / "mixed" / "a-%d.tar", shuffle=True, seed=3)
        with pytest.raises(LookupError, match="1 of the keys is in no sample: '000000'"):
            reshard(selection, tmp_path / "none" / "a-%d.tar", keys=["000000", "000003"])
        with pytest.raises(LookupError, match="samples 0-5 are out of range for 5 samples"):
            reshard(selection, tmp_path / "none" / "a-%d.tar", samples=range(6))

    assert keys(str(tmp_path / "all" / "a.json")) == chosen
    assert keys(str(tmp_path / "range" / "a.json")) == chosen[1:4]
    assert keys(str(tmp_path / "keys" / "a.json")) == ["000020", "000009"]
    random.Random(3).shuffle(chosen)
    assert keys(str(tmp_path / "mixed" / "a.json")) == chosen
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["file", "selection", "view"])
def test_reshard_keeps_what_the_descriptor_says_besides_its_shards(tmp_path: Path, old: Path, kind: str) -> None:
    facts = {"classes": ["cat", "dog"], "info": "of ours"}
    reshard(old, tmp_path / "a-%d.tar")
    content = json.loads((tmp_path / "a.json").read_bytes()) | facts
    (tmp_path / "a.json").write_text(json.dumps(content))
    wids.tools.write_selection(tmp_path / "a.json", [3, 4], tmp_path / "selected.json")
    with wids.ShardListDataset(str(tmp_path / "a.json")) as dataset:
        given: Any = {"file": tmp_path / "a.json", "selection": tmp_path / "selected.json", "view": dataset[:3]}[kind]

        reshard(given, tmp_path / "new" / "b-%d.tar", max_samples=1e0)

    found = json.loads((tmp_path / "new" / "b.json").read_bytes())
    assert {key: found[key] for key in facts} == facts
    assert found.keys() == content.keys()
    assert (found["name"], found["index"]) == ("b", "b.widx")


def test_reshard_refuses_a_selection_of_other_shards(tmp_path: Path, old: Path) -> None:
    with wids.ShardListDataset(str(old)) as dataset:
        content = wids.tools.write_selection(dataset, [1], tmp_path / "selected.json")

    with pytest.raises(DescriptorError, match=r"rows\.fingerprint is"):
        reshard({**content, "shardlist": content["shardlist"][::-1], "base": str(tmp_path)}, tmp_path / "new-%d.tar")


def test_reshard_takes_only_the_given_fields(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "a-%d.tar", fields=["TXT"], max_samples=5)

    (first, *_) = read_all(tmp_path)
    assert first == [(f"{number:06d}", [(".txt", f"text of {number}".encode())]) for number in range(5)]


def test_a_sample_without_any_of_the_given_fields_is_an_error(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", [("0.txt", b""), ("1.jpg", b""), ("2.txt", b"")])

    with pytest.raises(ValueError, match="1 sample has none of the fields, the first at index 1"):
        reshard(tmp_path / "a.tar", tmp_path / "b-%d.tar", fields=["txt"])


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_compressed_new_shards_hold_the_same_samples(tmp_path: Path, old: Path, suffix: str) -> None:
    reshard(old, tmp_path / f"a-%d{suffix}", max_samples=7, md5=True)

    assert keys(str(tmp_path / "a.json")) == keys(str(old))
    with wids.ShardListDataset(str(tmp_path / "a.json"), checksum="md5") as dataset:
        assert dataset[24]["txt"] == "text of 24"


def test_long_names_and_hard_links_are_kept_by_reshard(tmp_path: Path) -> None:
    members = [("./a/1.txt", b"a"), ("d" * 120 + "/2.txt", b"b"), ("n" * 150 + ".txt", b"c"), ("Grüße.txt", b"")]
    write_tar(tmp_path / "old.tar", members, tar_format=tarfile.PAX_FORMAT)
    with tarfile.open(tmp_path / "old.tar", "a") as tar:
        link = tarfile.TarInfo("linked.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "./a/1.txt"
        tar.addfile(link)

    reshard(tmp_path / "old.tar", tmp_path / "new-%d.tar")

    with tarfile.open(tmp_path / "new-0.tar") as tar:
        assert [(info.name, tar.extractfile(info).read()) for info in tar] == [*members, ("linked.txt", b"a")]  # type: ignore[union-attr]


def test_processes_write_the_same_shards_as_one_process(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "one" / "a-%d.tar", max_samples=4, shuffle=True)
    with ProcessPoolExecutor(2) as executor:
        reshard(old, tmp_path / "two" / "a-%d.tar", max_samples=4, shuffle=True, executor=executor)

    one, two = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one == two
    assert len(one) == 9


def test_resumed_reshard_writes_only_the_missing_shards(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=4)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    for name in ("a-1.tar", "a-5.tar", "a.json"):
        (tmp_path / "new" / name).unlink()

    made = reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=4, resume=True)

    assert made.num_resumed == 5
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == whole


def test_an_existing_shard_with_other_samples_is_not_taken_over(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=4)
    for number in (6, 4, 3):
        (tmp_path / "new" / f"a-{number}.tar").unlink()

    with pytest.raises(WidsError, match=r"a-0\.tar: already exists, with other samples"):
        reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=4, shuffle=True, resume=True)
    with pytest.raises(FileExistsError, match=r"a-2\.tar: already exists"):
        reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=13, resume=True)
    with pytest.raises(FileExistsError, match=r"a\.json: already exists"):
        reshard(old, tmp_path / "new" / "a-%d.tar")

    reshard(old, tmp_path / "new" / "a-%d.tar", max_samples=20, overwrite=True)
    # Shards behind a gap are nobody's that is known here; they stay, and no descriptor names them.
    assert [len(samples) for samples in read_all(tmp_path / "new")] == [20, 5, 4]
    assert len(keys(str(tmp_path / "new" / "a.json"))) == 25


class Beaten(Storage):
    """Has another process write a shard, just when the shards are opened that it is made from."""

    def __init__(self, path: Path, data: bytes) -> None:
        super().__init__()
        self.path, self.data = path, data

    def open(self, shard: Any) -> Any:
        if list(self.path.parent.glob(".wids-*.part")):
            self.path.write_bytes(self.data)
        return super().open(shard)


def test_a_shard_published_meanwhile_is_taken_over_only_if_its_samples_are_the_same(tmp_path: Path, old: Path) -> None:
    reshard(old, tmp_path / "same" / "a-%d.tar")
    reshard(old, tmp_path / "other" / "a-%d.tar", shuffle=True)
    same, other = ((tmp_path / name / "a-0.tar").read_bytes() for name in ("same", "other"))
    new = tmp_path / "new" / "a-0.tar"

    assert reshard(old, tmp_path / "new" / "a-%d.tar", storage=Beaten(new, same)).num_resumed == 1
    new.unlink()
    with pytest.raises(WidsError, match=r"a-0\.tar: already exists, with other samples"):
        reshard(old, tmp_path / "new" / "a-%d.tar", storage=Beaten(new, other), resume=True)

    assert new.read_bytes() == other


@pytest.mark.parametrize("overwrite", [False, True])
def test_reshard_refuses_to_replace_a_shard_that_it_reads(tmp_path: Path, old: Path, overwrite: bool) -> None:
    before = {path.name: path.read_bytes() for path in old.iterdir()}

    with pytest.raises(ValueError, match=r"shard-0000\.tar: is one of the inputs, and would be replaced"):
        reshard(old, tmp_path / "old" / ".." / "old" / "shard-%04d.tar", overwrite=overwrite)

    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"samples": range(20, 30)}, LookupError, "samples 20-29 are out of range for 25 samples"),
        ({"samples": range(0, 10, 2)}, LookupError, "its step must be 1"),
        ({"keys": ["000001", "nobody"]}, LookupError, "1 of the keys is in no sample: 'nobody'"),
        ({"keys": []}, ValueError, "there are no samples to write"),
        ({"fields": ["txt", "jpg"]}, LookupError, "1 of the fields is in no sample: '.jpg'"),
        ({"max_samples": 0}, ValueError, "max_samples is 0"),
        ({"resume": True, "overwrite": True}, ValueError, "give one of the two"),
    ],
    ids=str,
)
def test_reshard_refuses_bad_arguments_before_anything_is_written(
    tmp_path: Path, old: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        reshard(old, tmp_path / "new" / "a-%d.tar", **options)

    assert not (tmp_path / "new").exists()


def test_a_damaged_source_shard_is_an_error_and_leaves_only_whole_shards(tmp_path: Path) -> None:
    write_tar(tmp_path / "old.tar", [*sample_members(3), ("000002.txt", b"twice")])

    with pytest.raises(TarFormatError, match=r"has the field '\.txt' twice"):
        reshard(tmp_path / "old.tar", tmp_path / "new" / "a-%d.tar", max_samples=1)

    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a-0.tar", "a-1.tar"]


def test_reshard_refuses_to_replace_a_shard_that_it_reads_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    real = write_tar(tmp_path / "b-7.tar", sample_members(3))
    (tmp_path / "links" / "a.tar").symlink_to(real)
    before = real.read_bytes()

    with pytest.raises(ValueError, match="is one of the inputs, and would be replaced"):
        reshard(str(tmp_path / "links"), tmp_path / "b-%d.tar", overwrite=True)

    assert real.read_bytes() == before


def test_reshard_lists_the_new_folder_only_once(tmp_path: Path) -> None:
    listed = []
    source = write_tar(tmp_path / "all.tar", sample_members(300))

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"os.listdir", "os.scandir"} and str(arguments[0]).endswith("new"):
            listed.append(arguments[0])

    sys.addaudithook(note)

    made = reshard(str(source), tmp_path / "new" / "a-%d.tar", max_samples=1)

    assert made.num_shards == 300
    assert len(listed) == 1
