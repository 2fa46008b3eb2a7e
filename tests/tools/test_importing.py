"""Folders of other tools become descriptors; folders of images become shards."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry
from PIL import Image

import wids
from tests.support import as_nobody, sample_members, write_shards, write_tar
from wids.errors import DescriptorError, FetchError, ShardMismatchError, WidsError
from wids.storage import Storage, StorageOptions
from wids.tools.export import export_dali
from wids.tools.image_folder import list_images
from wids.tools.importing import import_folder


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = orjson.loads(path.read_bytes())
    return content


def texts(dataset: wids.ShardListDataset) -> list[str]:
    return [sample["txt"] for sample in dataset]


@pytest.fixture
def img2dataset(tmp_path: Path) -> Path:
    """A folder as img2dataset leaves it, with 3 and 2 samples."""
    folder = tmp_path / "laion"
    folder.mkdir()
    for number, count in enumerate((3, 2)):
        write_tar(folder / f"{number:05d}.tar", sample_members(count, first=3 * number))
        (folder / f"{number:05d}_stats.json").write_bytes(orjson.dumps({"count": 5, "successes": count}))
        (folder / f"{number:05d}.parquet").write_bytes(b"")
    return folder


def test_a_folder_with_counts_opens_without_reading_its_shards(img2dataset: Path) -> None:
    dataset = wids.ShardListDataset(img2dataset)

    assert len(dataset) == 5
    assert dataset.stats()["index_builds"] == 0
    assert texts(dataset) == [f"text of {number}" for number in range(5)]


def test_a_count_that_is_too_high_is_an_error_when_the_shard_is_read(img2dataset: Path) -> None:
    (img2dataset / "00001_stats.json").write_bytes(orjson.dumps({"successes": 4}))

    dataset = wids.ShardListDataset(img2dataset)

    assert len(dataset) == 7
    assert dataset[2]["txt"] == "text of 2"
    with pytest.raises(ShardMismatchError, match=r"00001.tar: has 2 samples, but 00001_stats.json says 4"):
        dataset[3]


def test_import_takes_over_known_counts_and_counts_other_shards(img2dataset: Path, tmp_path: Path) -> None:
    (img2dataset / "00001_stats.json").unlink()

    with ThreadPoolExecutor(2) as executor:
        found = import_folder(img2dataset, tmp_path / "train.json", executor=executor)

    assert (found.kind, found.num_counted) == ("tars", 1)
    assert read(tmp_path / "train.json") == found.content
    assert found.content["shardlist"] == [
        {"url": "laion/00000.tar", "nsamples": 3},
        {"url": "laion/00001.tar", "nsamples": 2, "filesize": (img2dataset / "00001.tar").stat().st_size},
    ]
    assert found.content["name"] == "laion"
    assert len(texts(wids.ShardListDataset(tmp_path / "train.json"))) == 5


def test_import_writes_the_descriptor_of_one_split(tmp_path: Path) -> None:
    for split, counts in (("train", [2, 3]), ("val", [1])):
        (tmp_path / "all" / split).mkdir(parents=True)
        write_shards(tmp_path / "all" / split, counts)

    found = import_folder(tmp_path / "all", tmp_path / "val.json", split="validation")

    assert [shard["url"] for shard in found.content["shardlist"]] == ["all/val/shard-0000.tar"]
    assert found.content["name"] == "validation"
    assert len(wids.ShardListDataset(tmp_path / "all", split="train")) == 5
    with pytest.raises(DescriptorError, match="name one with split="):
        wids.ShardListDataset(tmp_path / "all")


def test_a_given_kind_overrides_the_detected_one(tmp_path: Path) -> None:
    write_shards(tmp_path, [2, 3])
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta" / ".info.json").write_bytes(orjson.dumps({"shard_counts": {"shard-0000.tar": 2}}))

    assert import_folder(tmp_path, tmp_path / "a.json").kind == "energon"
    assert len(import_folder(tmp_path, tmp_path / "b.json", kind="tars").content["shardlist"]) == 2


@pytest.mark.parametrize("source", ["missing", "train.json", "shard-0000.tar", "empty"])
def test_import_of_anything_but_a_folder_of_shards_is_refused(tmp_path: Path, source: str) -> None:
    write_shards(tmp_path, [1])
    (tmp_path / "train.json").write_text("{}")
    (tmp_path / "empty").mkdir()

    with pytest.raises(DescriptorError, match=r"is not a folder|holds no .tar shards"):
        import_folder(tmp_path / source, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


# Stores


class Hub(DirFileSystem):  # type: ignore[misc]
    """What `hf://` is in these tests: a folder of this machine."""

    protocol = "hf"
    root = ""

    def __init__(self, **options: Any) -> None:
        super().__init__(path=self.root, fs=LocalFileSystem(), **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("hf://").rstrip("/")


@pytest.fixture(name="hub")
def make_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository `hf://datasets/org/name` with two splits."""
    monkeypatch.setattr(Hub, "root", str(tmp_path / "hub"))
    monkeypatch.setitem(_registry, "hf", Hub)
    folder = tmp_path / "hub" / "datasets" / "org" / "name"
    (folder / "data").mkdir(parents=True)
    for name, count in (("train-00000-of-00002", 2), ("train-00001-of-00002", 3), ("test-00000-of-00001", 1)):
        write_tar(folder / "data" / f"{name}.tar", sample_members(count))
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Name\n")
    return folder


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_hugging_face_repository_opens_by_url_and_split(slash: str) -> None:
    dataset = wids.ShardListDataset(f"hf://datasets/org/name{slash}", split="train")

    assert [shard["url"] for shard in dataset.shards] == [
        "hf://datasets/org/name/data/train-00000-of-00002.tar",
        "hf://datasets/org/name/data/train-00001-of-00002.tar",
    ]
    assert len(texts(dataset)) == 5
    with pytest.raises(DescriptorError, match=r"has the splits train \(2 shards\), test \(1 shard\)"):
        wids.ShardListDataset("hf://datasets/org/name")


@pytest.mark.usefixtures("hub")
def test_a_hugging_face_repository_is_imported(tmp_path: Path) -> None:
    found = import_folder("hf://datasets/org/name", tmp_path / "test.json", split="test")

    assert found.kind == "huggingface"
    assert texts(wids.ShardListDataset(tmp_path / "test.json")) == ["text of 0"]


def test_a_descriptor_in_a_store_needs_no_suffix(hub: Path) -> None:
    (hub / "index").write_bytes(orjson.dumps({"shardlist": [{"url": "data/test-00000-of-00001.tar", "nsamples": 1}]}))

    assert len(wids.ShardListDataset("hf://datasets/org/name/index")) == 1
    with pytest.raises(FetchError):
        wids.ShardListDataset("hf://datasets/org/missing")


def test_counts_of_img2dataset_in_a_store_are_used(hub: Path) -> None:
    for path in (hub / "data").glob("*.tar"):
        path.with_name(f"{path.stem}_stats.json").write_bytes(orjson.dumps({"successes": 1}))

    assert len(wids.ShardListDataset("hf://datasets/org/name", split="train")) == 2


@pytest.mark.usefixtures("hub")
def test_list_folder_distinguishes_folders_files_and_missing_paths() -> None:
    storage = Storage(StorageOptions())

    assert storage.list_folder("hf://datasets/org/name") == ["README.md", "data/"]
    assert storage.list_folder("hf://datasets/org/name/README.md") is None
    assert storage.list_folder("hf://datasets/org/none") is None
    assert storage.list_folder("https://host/folder") is None


def test_a_remote_shard_is_read_by_its_dali_table_without_indexing(hub: Path) -> None:
    shards = [{"url": str(path), "nsamples": None} for path in sorted((hub / "data").glob("*.tar"))]
    export_dali(shards, hub / "data", storage=Storage())

    dataset = wids.ShardListDataset("hf://datasets/org/name", split="train", access="range")

    assert [dataset[index]["txt"] for index in (1, 4)] == ["text of 1", "text of 2"]
    assert dataset.stats()["index_builds"] == 0


def test_a_remote_shard_with_an_incomplete_dali_table_is_indexed(hub: Path, caplog: pytest.LogCaptureFixture) -> None:
    (hub / "data" / "test-00000-of-00001.idx").write_text("v1.2 1\ntxt 512 4 000000.txt\n")

    dataset = wids.ShardListDataset("hf://datasets/org/name", split="test", access="range")

    assert (dataset[0]["txt"], dataset[0]["cls"]) == ("text of 0", 0)
    assert dataset.stats()["index_builds"] == 1
    assert (
        "test-00000-of-00001.idx cannot be used, so the shard is indexed again: the shard continues after"
        in caplog.text
    )


def test_a_dali_table_of_another_shard_is_noticed_when_a_sample_is_read(
    hub: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shard = hub / "data" / "test-00000-of-00001.tar"
    export_dali([{"url": str(shard), "nsamples": None}], hub / "data", storage=Storage())
    write_tar(shard, [("000001.txt", b"TEXT OF 1"), ("000001.cls", b"1")])  # where the others were, and as large

    dataset = wids.ShardListDataset("hf://datasets/org/name", split="test", access="range")

    assert dataset[0]["txt"] == "TEXT OF 1"
    assert dataset.key(0) == "000001"
    assert "its index does not match the shard" in caplog.text


def test_an_imported_descriptor_names_the_dali_tables(hub: Path, tmp_path: Path) -> None:
    shard = hub / "data" / "test-00000-of-00001.tar"
    export_dali([{"url": str(shard), "nsamples": None}], hub / "data", storage=Storage())

    import_folder("hf://datasets/org/name", tmp_path / "test.json", split="test")
    import_folder(hub, hub / "local.json", split="test")

    (entry,) = read(hub / "local.json")["shardlist"]
    assert entry["offsets"] == "data/test-00000-of-00001.idx"
    dataset = wids.ShardListDataset(tmp_path / "test.json", access="range")
    assert (dataset[0]["txt"], dataset.stats()["index_builds"]) == ("text of 0", 0)


# Images


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Images of three classes, one of which has none, with names that are no keys."""
    folder = tmp_path / "images"
    for name in (
        "dog/b.JPG",
        "dog/a.v2.png",
        "dog/a.v2.jpg",
        "dog/deep/c.webp",
        "cat/1.jpeg",
        "cat/notes.txt",
        "cat/._1.jpg",
        "nothing/x.txt",
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def test_images_become_shards_with_the_labels_of_their_folders(images: Path, tmp_path: Path) -> None:
    found = import_folder(images, tmp_path / "train.json")

    dataset = wids.ShardListDataset(tmp_path / "train.json", transformations=[])
    assert found.kind == "imagefolder"
    assert read(tmp_path / "train.json")["classes"] == ["cat", "dog"]
    assert [(dataset.key(i), {k: bytes(v) for k, v in dataset.read(i).items()}) for i in range(len(dataset))] == [
        ("cat/1", {".jpeg": b"cat/1.jpeg", ".cls": b"0"}),
        ("dog/a_v2", {".jpg": b"dog/a.v2.jpg", ".cls": b"1"}),
        ("dog/a_v2_2", {".png": b"dog/a.v2.png", ".cls": b"1"}),
        ("dog/b", {".jpg": b"dog/b.JPG", ".cls": b"1"}),
        ("dog/deep/c", {".webp": b"dog/deep/c.webp", ".cls": b"1"}),
    ]


def test_the_seed_decides_the_order_of_images_and_max_bytes_their_shards(images: Path, tmp_path: Path) -> None:
    contents = [
        import_folder(images, tmp_path / f"{i}.json", seed=seed, max_bytes=4096) for i, seed in enumerate((1, 1, 2))
    ]
    keys = [[wids.ShardListDataset(tmp_path / f"{i}.json").key(k) for k in range(5)] for i in range(3)]

    assert keys[0] == keys[1] != keys[2]
    assert sorted(keys[0]) == sorted(keys[2])
    assert len(contents[0].content["shardlist"]) > 1


def test_images_of_a_split_are_in_its_folder(images: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    shutil.move(images, tmp_path / "all" / "train")
    shutil.copytree(tmp_path / "all" / "train", tmp_path / "all" / "val")

    with pytest.raises(DescriptorError, match="folders of folders of images, train, val; name one"):
        import_folder(tmp_path / "all", tmp_path / "a.json")
    with pytest.raises(DescriptorError, match="has no folder 'test'"):
        import_folder(tmp_path / "all", tmp_path / "a.json", split="test")
    found = import_folder(tmp_path / "all", tmp_path / "a.json", split="val", name="mine")
    assert found.content["name"] == read(tmp_path / "a.json")["name"] == "mine"
    assert sum(shard["nsamples"] for shard in found.content["shardlist"]) == 5


def test_classes_of_a_named_split_may_be_divided_into_folders(tmp_path: Path) -> None:
    for name in ("n01/images/1.png", "n02/images/2.png", "n02/images/3.png"):
        path = tmp_path / "tiny" / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(path)

    with pytest.raises(DescriptorError, match=r"if they are the classes, import .*tiny with --split train$"):
        import_folder(tmp_path / "tiny" / "train", tmp_path / "a.json")
    import_folder(tmp_path / "tiny", tmp_path / "a.json", split="train")

    dataset = wids.ShardListDataset(tmp_path / "a.json")
    assert dataset.spec["classes"] == ["n01", "n02"]
    assert [(dataset.key(index), dataset[index][".cls"]) for index in range(3)] == [
        ("n01/images/1", 0),
        ("n02/images/2", 1),
        ("n02/images/3", 1),
    ]


def test_resumed_packing_of_images_writes_the_missing_shards_only(images: Path, tmp_path: Path) -> None:
    whole = import_folder(images, tmp_path / "train.json", seed=3, max_bytes=4096)
    names = [shard["url"] for shard in whole.content["shardlist"]]
    before = [(tmp_path / name).read_bytes() for name in names]
    for name in [*names[1:], "train.json"]:
        (tmp_path / name).unlink()

    again = import_folder(images, tmp_path / "train.json", seed=3, max_bytes=4096, resume=True)

    assert again.content["shardlist"] == whole.content["shardlist"]
    assert [(tmp_path / name).read_bytes() for name in names] == before
    (tmp_path / names[-1]).unlink()
    with pytest.raises(WidsError, match="the existing shards hold other images"):
        import_folder(images, tmp_path / "train.json", seed=4, max_bytes=4096, resume=True)


def test_the_descriptor_of_images_is_written_once_with_all_its_facts(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    replace = Path.replace

    def record(before: Path, after: Path) -> Path:
        if Path(after) == tmp_path / "train.json":
            written.append(read(before))
        return replace(before, after)

    monkeypatch.setattr(Path, "replace", record)
    monkeypatch.setattr(Path, "rename", record)
    import_folder(images, tmp_path / "train.json", name="mine")

    assert [(content["name"], content["classes"]) for content in written] == [("mine", ["cat", "dog"])]


def test_a_folder_with_both_shards_and_images_needs_a_format(images: Path) -> None:
    import_folder(images, images / "train.json")

    with pytest.raises(DescriptorError, match="holds shards and folders of images; say which are meant with --format"):
        import_folder(images, images / "other.json")
    assert import_folder(images, images / "other.json", kind="tars").kind == "tars"


def test_an_image_that_cannot_be_read_ends_the_packing(images: Path, tmp_path: Path) -> None:
    (images / "dog" / "z.png").symlink_to(tmp_path / "gone.png")

    with pytest.raises(FileNotFoundError, match=r"z.png"):
        import_folder(images, tmp_path / "train.json")
    assert not (tmp_path / "train.json").exists()


@pytest.mark.parametrize("place", ["dog", "dog/deep"])
def test_a_folder_of_images_that_cannot_be_listed_is_an_error(
    images: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(images)
    Path(place).chmod(0)

    try:
        with as_nobody(), pytest.raises(PermissionError, match=place):
            list_images(Path())
    finally:
        Path(place).chmod(0o755)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("train", "name it train.json"),
        ("train-.json", "name it train.json"),
        ("a.tar", "is a name for a shard"),
        (".hidden.json", "is not a name for shards"),
    ],
)
def test_a_descriptor_that_shards_cannot_be_named_after_is_refused_before_packing(
    images: Path, tmp_path: Path, output: str, message: str
) -> None:
    (tmp_path / "out").mkdir()

    with pytest.raises(ValueError, match=message):
        import_folder(images, tmp_path / "out" / output)

    assert list((tmp_path / "out").iterdir()) == []


def test_shards_of_images_may_have_a_percent_sign_in_their_names(images: Path, tmp_path: Path) -> None:
    found = import_folder(images, tmp_path / "best-10%.json")

    assert read(tmp_path / "best-10%.json") == found.content
    assert [shard["url"] for shard in found.content["shardlist"]] == ["best-10%-000000.tar"]


def test_import_refuses_to_write_the_descriptor_over_a_shard(img2dataset: Path, tmp_path: Path) -> None:
    shard = img2dataset / "00000.tar"
    before = shard.read_bytes()
    (tmp_path / "link.json").symlink_to(shard)

    for output in (shard, tmp_path / "link.json"):
        with pytest.raises(DescriptorError, match=r"is a name for a shard|which would be replaced"):
            import_folder(img2dataset, output)

    assert shard.read_bytes() == before
