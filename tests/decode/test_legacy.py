"""0.1.11's decoding functions have the same arguments and results as there; expected values come from 0.1.11."""

from __future__ import annotations

import gzip
import inspect
import io
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest

import wids
from tests.decode.files import DEEP, IMAGES, RGB, image, npy, same
from tests.support import write_tar
from wids import wids_decode
from wids.wids_decode import (
    check_keys,
    decode_all_gz,
    decode_basic,
    decode_images_to_numpy,
    decode_images_to_pil,
    default_decoder,
)

if TYPE_CHECKING:
    from pathlib import Path

ARRAY = np.arange(3)


def sample_of_files() -> dict[str, Any]:
    files = {
        ".txt": b"ab",
        ".cls": b" 3\n",
        ".json": b'{"a": [1, NaN, 100000000000000000000]}',
        ".meta.json.gz": gzip.compress(b"[1]"),
        ".x.TXT.gz": gzip.compress(b"hi"),
        ".gz": b"raw",
        ".nii.gz": gzip.compress(b"volume"),
        ".png": IMAGES["png"],
        ".npy": npy(ARRAY),
        ".xyz": b"unknown",
    }
    return {"__key__": "k", **{name: io.BytesIO(data) for name, data in files.items()}}


def shown(sample: dict[str, Any]) -> dict[str, Any]:
    def show(value: Any) -> Any:
        if isinstance(value, io.BytesIO):
            return "file", value.getvalue()
        if isinstance(value, PIL.Image.Image):
            return value.mode, value.size
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {name: show(value) for name, value in sample.items()}


DECODED = {
    "__key__": "k", ".txt": "ab", ".cls": 3, ".meta.json.gz": [1], ".x.TXT.gz": "hi", ".gz": ("file", b"raw"),
    ".nii.gz": ("file", b"volume"), ".png": ("RGB", (11, 9)), ".npy": [0, 1, 2], ".xyz": ("file", b"unknown"),
}  # fmt: skip
RENAMED = {name.removesuffix(".gz") or name: value for name, value in DECODED.items()}


def without_json(sample: dict[str, Any]) -> dict[str, Any]:
    shown_sample = shown(sample)
    assert repr(shown_sample.pop(".json")) == "{'a': [1, nan, 100000000000000000000]}"
    return shown_sample


@pytest.mark.parametrize(
    "call",
    [
        lambda sample: default_decoder(sample, "PIL"),
        lambda sample: default_decoder(sample=sample, format="PIL"),
        lambda sample: default_decoder(sample, format="pil"),
        lambda sample: default_decoder(sample, "PIL", False),
        partial(default_decoder, format="PIL"),
    ],
    ids=["positional", "by name", "any case", "three", "partial"],
)
def test_the_default_decoder_takes_a_sample_and_a_format(call: Any) -> None:
    sample = sample_of_files()
    before = dict(sample)

    decoded = call(sample)

    assert without_json(decoded) == DECODED
    assert sample == before


def test_the_numpy_format_gives_arrays_and_unknown_formats_are_refused() -> None:
    for decoded in (default_decoder(sample_of_files(), "numpy"), default_decoder(sample_of_files(), format="NUMPY")):
        assert same(decoded[".png"], np.asarray(RGB))
    with pytest.raises(ValueError, match="rgbx"):
        default_decoder(sample_of_files(), "rgbx")


def test_gz_update_key_removes_gz_from_field_names() -> None:
    assert without_json(default_decoder(sample_of_files(), "PIL", True)) == RENAMED
    assert without_json(default_decoder(sample_of_files(), "PIL", gz_update_key=True)) == RENAMED
    with pytest.raises(ValueError, match="gz_update_key"):
        default_decoder(format="PIL", gz_update_key=True)


def test_decode_all_gz_unpacks_and_renames_fields_in_place() -> None:
    sample = sample_of_files()

    assert decode_all_gz(sample) is sample
    assert sample.keys() == {*RENAMED, ".json"}
    assert sample[".nii"].read() == b"volume"
    assert sample[".meta.json"].read() == b"[1]"
    assert sample[".gz"].read() == b"raw"
    kept = decode_all_gz(sample_of_files(), update_key=False)
    assert kept[".x.TXT.gz"].read() == b"hi"
    assert decode_all_gz(sample_of_files(), True, False).keys() == kept.keys()


def test_a_renamed_field_never_replaces_another_field() -> None:
    sample = {"__key__": "k", ".json": io.BytesIO(b"1"), ".json.gz": io.BytesIO(gzip.compress(b"2"))}

    with pytest.raises(wids.DecodeError, match=r"key 'k'.*'\.json'"):
        decode_all_gz(sample)
    assert default_decoder({**sample, ".json.gz": gzip.compress(b"2")}, "PIL") == {
        "__key__": "k",
        ".json": 1,
        ".json.gz": 2,
    }


def test_the_error_for_a_damaged_gz_field_names_key_and_field() -> None:
    with pytest.raises(wids.DecodeError, match=r"key 'k', field '\.txt\.gz'"):
        decode_all_gz({"__key__": "k", ".txt.gz": io.BytesIO(b"x")})


@pytest.mark.parametrize("update_key", [True, False], ids=["renamed", "own name"])
def test_decoding_functions_can_be_chained(update_key: bool) -> None:
    sample = sample_of_files()

    for step in (partial(decode_all_gz, update_key=update_key), decode_basic, decode_images_to_pil):
        assert step(sample, format=True) is sample

    assert without_json(sample) == (RENAMED if update_key else DECODED)


def test_decode_basic_leaves_images_and_decode_images_leaves_other_fields() -> None:
    basic = decode_basic(sample_of_files())
    pictures = decode_images_to_pil(sample_of_files())
    arrays = decode_images_to_numpy(sample_of_files())

    assert basic[".png"].read() == IMAGES["png"]
    assert basic[".cls"] == 3
    assert same(pictures[".png"], RGB)
    assert pictures[".cls"].read() == b" 3\n"
    assert same(arrays[".png"], np.asarray(RGB))


@pytest.mark.parametrize(
    "picture", [RGB, RGB.convert("L"), RGB.convert("RGBA"), RGB.convert("1"), PIL.Image.fromarray(DEEP)],
    ids=["RGB", "L", "RGBA", "1", "I;16"],
)  # fmt: skip
def test_decode_images_to_numpy_gives_the_arrays_that_numpy_gives(picture: PIL.Image.Image) -> None:
    assert same(decode_images_to_numpy({".png": image(picture, "PNG")})[".png"], np.asarray(picture))


def test_keys_without_a_dot_are_refused() -> None:
    check_keys({".a": 1, "__b__": 2})
    for function in (check_keys, decode_all_gz, decode_basic, decode_images_to_pil, decode_images_to_numpy):
        with pytest.raises(ValueError, match="'image'"):
            function({".a": 1, "image": b""})


def test_functions_have_the_argument_names_and_order_of_0_1_11() -> None:
    expected = {
        "default_decoder": ["sample", "format", "gz_update_key"],
        "decode_all_gz": ["sample", "format", "update_key"],
        "decode_basic": ["sample", "format"],
        "decode_images_to_pil": ["sample", "format"],
        "decode_images_to_numpy": ["sample", "format"],
        "check_keys": ["sample"],
    }

    for name, arguments in expected.items():
        parameters = inspect.signature(getattr(wids_decode, name)).parameters
        assert list(parameters)[: len(arguments)] == arguments


def test_a_partial_of_the_old_default_decoder_works_as_a_transformation(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.png", IMAGES["png"]), ("a.meta.json.gz", gzip.compress(b"[1]"))])

    dataset = wids.ShardListDataset([(str(path), 1)], transformations=[partial(default_decoder, format="PIL")])

    assert dataset[0][".meta.json.gz"] == [1]
    assert same(dataset[0][".png"], RGB)
