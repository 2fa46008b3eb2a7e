"""Images are decoded to the requested size, and JPEGs by other decoders than Pillow."""

from __future__ import annotations

import io
import pickle
import sys
from functools import cache
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.decode.files import IMAGES, RGB, image, same
from tests.decode.test_images import EVERY_MODE
from wids.decode import default_decoder
from wids.decode.images import SPECS
from wids.errors import DecodeError

IN_RGB = [spec for spec in SPECS if SPECS[spec].mode == "RGB" and SPECS[spec].kind != "pil"]


def decode(data: bytes, spec: str, **options: Any) -> Any:
    return default_decoder(spec, **options)({".img.jpg": data})[".img.jpg"]


@cache
def photographs() -> dict[str, bytes]:
    """The photographs that scikit-learn ships, of 640 by 427 pixels, and the same enlarged three times."""
    from sklearn.datasets import load_sample_images

    found = {}
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        picture = PIL.Image.fromarray(pixels)
        found[name] = image(picture, "JPEG", quality=90)
        found[f"large {name}"] = image(picture.resize((1920, 1281), PIL.Image.Resampling.LANCZOS), "JPEG", quality=90)
    return found


def shape_of(value: Any) -> tuple[int, int]:
    """Return the height and width of an image in any form."""
    if isinstance(value, PIL.Image.Image):
        return value.height, value.width
    height, width = [side for side in value.shape if side not in {1, 3, 4}][:2]
    return height, width


@pytest.mark.parametrize("spec", SPECS)
def test_the_shorter_side_or_both_sides_get_the_requested_size(spec: str) -> None:
    data = image(RGB.resize((60, 40)), "JPEG")

    assert shape_of(decode(data, spec, size=20)) == (20, 30)
    assert shape_of(decode(data, spec, size=80)) == (80, 120)
    assert shape_of(decode(data, spec, size=(17, 50))) == (17, 50)
    assert same(decode(data, spec, size=(40, 60)), decode(data, spec))


@given(st.tuples(*[st.integers(1, 60)] * 2), st.integers(1, 60))
def test_a_scaled_image_keeps_its_proportions_to_the_pixel(sides: tuple[int, int], size: int) -> None:
    data = image(RGB.resize(sides), "PNG")

    scaled = decode(data, "PIL", size=size)

    assert min(scaled.size) == size
    assert max(scaled.size) == max(1, round(max(sides) * size / min(sides)))
    assert (scaled.width >= scaled.height) or sides[0] < sides[1]


# Left out: modes with 16 bits, which turn white in 8 at any size, and JPEGs, which are decoded at a fraction of the
# size.
@pytest.mark.parametrize("mode", [mode for mode in EVERY_MODE if "16" not in mode and "jpeg" not in mode])
def test_images_other_than_jpegs_are_scaled_as_pillow_scales_the_whole_image(mode: str) -> None:
    whole = decode(EVERY_MODE[mode], "pilrgba")

    assert same(decode(EVERY_MODE[mode], "rgba8", size=(5, 7)), np.array(whole.resize((7, 5))))


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size_and_looks_the_same() -> None:
    fractions = set()
    for data in photographs().values():
        with PIL.Image.open(io.BytesIO(data)) as whole:
            for size in (64, 160, 256):
                width = round(whole.width * size / whole.height)
                found = decode(data, "rgb8", size=size)
                fraction = PIL.Image.open(io.BytesIO(data))
                _, box = fraction.draft("RGB", (2 * width, 2 * size)) or ("", None)
                fractions.add(round(whole.width / fraction.width))

                assert same(found, np.array(fraction.resize((width, size), box=box)))
                expected = np.array(whole.resize((width, size)))
                assert np.abs(found.astype(int) - expected).mean() < 1

    assert fractions == {1, 2, 4, 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": (3, -1)}, r"size is \(3, -1\)"),
        ({"size": (3, 4, 5)}, "size is"),
        ({"size": 2.5}, "size is 2.5"),
        ({"jpeg": "turbo"}, "jpeg is 'turbo'; it must be 'pillow' or 'simplejpeg'"),
        ({"lazy": True, "size": 3}, "lazy needs"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_invalid_option_is_refused_when_the_decoder_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        default_decoder("PIL", **options)
    with pytest.raises(ValueError, match="need an image format"):
        default_decoder(None, **options)


def test_a_damaged_jpeg_that_is_scaled_is_a_decode_error() -> None:
    data = photographs()["china"]
    for broken in (data[: len(data) // 2], b"\xff\xd8 no image"):
        with pytest.raises(DecodeError, match=r"field '\.img\.jpg': cannot decode"):
            decode(broken, "rgb8", size=64)


@pytest.mark.parametrize("spec", IN_RGB)
def test_simplejpeg_gives_the_pixels_of_pillow(spec: str) -> None:
    for name, data in {**EVERY_MODE, **IMAGES, **photographs()}.items():
        found = decode(data, spec, jpeg="simplejpeg")
        expected = decode(data, spec)

        assert (type(found), found.dtype) == (type(expected), expected.dtype)
        difference = np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64)).max()
        # Different releases of libjpeg-turbo may round differently.
        assert difference <= (1 / 255 if SPECS[spec].scaled else 1), name
    small = decode(photographs()["china"], spec, jpeg="simplejpeg", size=64)
    assert shape_of(small) == (64, 96)


def test_arrays_of_simplejpeg_can_be_written_to() -> None:
    decode(IMAGES["jpg"], "rgb8", jpeg="simplejpeg")[0, 0] = 7
    decode(IMAGES["jpg"], "torchrgb8", jpeg="simplejpeg")[0, 0] = 7


def test_simplejpeg_and_pillow_give_the_same_result_for_cut_jpegs() -> None:
    data = IMAGES["jpg"]
    for length in range(2, len(data), 7):
        outcomes = []
        for jpeg in ("simplejpeg", "pillow"):
            try:
                outcomes.append(decode(data[:length], "rgb8", jpeg=jpeg))
            except DecodeError as error:
                outcomes.append(str(error))
        assert same(*outcomes)


def test_a_missing_simplejpeg_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simplejpeg", None)

    with pytest.raises(ModuleNotFoundError, match=r"field '\.img\.jpg'.*pip install 'wids\[simplejpeg\]'"):
        decode(IMAGES["jpg"], "rgb8", jpeg="simplejpeg")


def test_a_decoder_with_a_size_pickles() -> None:
    copy = pickle.loads(pickle.dumps(default_decoder("rgb8", size=(5, 6))))

    assert copy({".jpg": IMAGES["jpg"]})[".jpg"].shape == (5, 6, 3)
