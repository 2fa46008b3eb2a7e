"""Hugging Face `datasets` can be made from samples, in one process or several, as a table or as a stream."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import datasets
import pytest
from PIL import Image

import wids
from tests.interop.conftest import NUM_SAMPLES
from tests.support import write_tar
from wids.tools.importing import import_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = [f"text of {number}" for number in range(NUM_SAMPLES)]


def read(dataset: wids.ShardListDataset, indices: list[int]) -> Iterator[Any]:
    for index in indices:
        yield dataset[index]


@pytest.mark.parametrize("num_proc", [None, 2])
def test_samples_become_a_table_of_datasets(
    dataset: wids.ShardListDataset, tmp_path: Path, num_proc: int | None
) -> None:
    table = datasets.Dataset.from_generator(
        read,
        gen_kwargs={"dataset": dataset, "indices": list(range(NUM_SAMPLES))},
        num_proc=num_proc,
        cache_dir=str(tmp_path / "hf"),
    )

    assert table[".txt"][:] == TEXTS
    assert table["__key__"][0] == "000000"
    assert table.features[".cls"] == datasets.Value("int64")


def test_samples_become_a_stream_of_datasets(dataset: wids.ShardListDataset) -> None:
    stream = datasets.IterableDataset.from_generator(
        read, gen_kwargs={"dataset": dataset, "indices": list(range(NUM_SAMPLES))}
    )

    assert sorted(sample[".txt"] for sample in stream.shuffle(seed=1, buffer_size=8)) == sorted(TEXTS)


def test_a_list_of_samples_becomes_a_table_of_datasets(dataset: wids.ShardListDataset) -> None:
    assert datasets.Dataset.from_list(list(dataset))[3][".txt"] == TEXTS[3]


def test_png_fields_become_image_features(tmp_path: Path) -> None:
    png = io.BytesIO()
    Image.new("RGB", (5, 4), (1, 2, 3)).save(png, "png")
    write_tar(tmp_path / "a.tar", [("0.png", png.getvalue())])

    table = datasets.Dataset.from_list(list(wids.ShardListDataset(tmp_path)))

    assert isinstance(table.features[".png"], datasets.Image)
    assert table[0][".png"].getpixel((0, 0)) == (1, 2, 3)


def test_shards_of_a_repository_are_read_as_datasets_reads_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for split, count in (("train", 3), ("test", 2)):
        members = [(f"{number}.txt", f"{split} {number}".encode()) for number in range(count)]
        write_tar(tmp_path / "data" / f"{split}-00000-of-00001.tar", members)

    for split in ("train", "test"):
        theirs = datasets.load_dataset(str(tmp_path), split=split, cache_dir=str(tmp_path / "hf"))
        ours = wids.ShardListDataset(tmp_path, split=split)
        assert [row["__key__"] for row in theirs] == [ours.key(index) for index in range(len(ours))]
        assert [row["txt"] for row in theirs] == [sample["txt"] for sample in ours]


def test_a_folder_of_images_has_the_labels_that_datasets_gives(tmp_path: Path) -> None:
    for number, name in enumerate(("b/2.png", "b/10.PNG", "b/1.v2.png", "a/z.png", "B/0.png", "ä/0.png", "a.b/0.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(path, "png")

    import_folder(tmp_path / "images", tmp_path / "train.json")

    theirs = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "images"), split="train", cache_dir=str(tmp_path / "hf")
    )
    ours = wids.ShardListDataset(tmp_path / "train.json")
    assert ours.spec["classes"] == theirs.features["label"].names
    assert sorted((sample["png"].getpixel((0, 0)), sample["cls"]) for sample in ours) == sorted(
        (row["image"].getpixel((0, 0)), row["label"]) for row in theirs
    )
