"""Images are decoded as webdataset's decoders do, as Pillow loads them, or to arrays of colours."""

from __future__ import annotations

import io
import struct
import warnings
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from webdataset.autodecode import ImageHandler, imagespecs

from tests.decode.files import DEEP, IMAGES, PIXELS, RGB, image, same
from wids.decode import default_decoder
from wids.decode.images import SPECS
from wids.errors import DecodeError


def with_orientation() -> bytes:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    return image(RGB, "JPEG", exif=exif)


PALETTE = RGB.convert("P")
EVERY_MODE = {
    "one bit": image(RGB.convert("1"), "PNG"),
    "one bit, transparent": image(RGB.convert("1"), "PNG", transparency=0),
    "grey": image(RGB.convert("L"), "PNG"),
    "grey, transparent": image(RGB.convert("L"), "PNG", transparency=7),
    "grey and alpha": image(RGB.convert("LA"), "PNG"),
    "palette": image(PALETTE, "PNG"),
    "palette, one transparent": image(PALETTE, "PNG", transparency=3),
    "palette, alpha each": image(PALETTE, "PNG", transparency=bytes(range(256))),
    "gif": image(PALETTE, "GIF"),
    "colour": image(RGB, "PNG"),
    "colour, one transparent": image(RGB, "PNG", transparency=tuple(map(int, PIXELS[0, 0]))),
    "colour and alpha": image(PIL.Image.fromarray(np.dstack([PIXELS, PIXELS[..., :1]])), "PNG"),
    "CMYK jpeg": image(RGB.convert("CMYK"), "JPEG"),
    "CMYK tiff": image(RGB.convert("CMYK"), "TIFF"),
    "YCbCr": image(RGB.convert("YCbCr"), "TIFF"),
    "16-bit png": image(PIL.Image.fromarray(DEEP), "PNG"),
    "16-bit tiff": image(PIL.Image.fromarray(DEEP), "TIFF"),
    "16-bit pgm": b"P5 11 9 65535\n" + DEEP.astype(">u2").tobytes(),
    "32-bit": image(PIL.Image.fromarray(DEEP.astype(np.int32) * 9 - 1000), "TIFF"),
    "float": image(PIL.Image.fromarray(DEEP.astype(np.float32) / 100), "TIFF"),
    "jpeg on its side": with_orientation(),
    "animation": image(PALETTE, "GIF", save_all=True, append_images=[PALETTE.rotate(180)]),
}


def decode(data: bytes, spec: str, field: str = ".png") -> Any:
    return default_decoder(spec)({field: data})[field]


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("spec", imagespecs)
def test_an_image_spec_of_webdataset_gives_what_webdataset_gives(spec: str, mode: str) -> None:
    data = EVERY_MODE[mode]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # webdataset passes on Pillow's warning about palettes
        expected = ImageHandler(spec)(".png", data)

    found = decode(data, spec)

    assert type(found) is type(expected)
    assert same(found, expected)


def test_every_image_spec_of_webdataset_is_known() -> None:
    assert set(SPECS) == {*imagespecs, "PIL", "numpy"}


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_pil_gives_loaded_images_with_mode_and_orientation_untouched(mode: str) -> None:
    with PIL.Image.open(io.BytesIO(EVERY_MODE[mode])) as expected:
        found = decode(EVERY_MODE[mode], "PIL")

        assert same(found, expected)
        assert found.getexif().get(0x0112) == expected.getexif().get(0x0112)
        assert found.info.get("transparency") == expected.info.get("transparency")
    assert found._im is not None


def test_the_other_frames_of_an_animation_can_be_read() -> None:
    found = decode(EVERY_MODE["animation"], "PIL", ".gif")

    found.seek(1)

    assert found.n_frames == 2
    assert not same(found.convert("RGB"), PALETTE.convert("RGB"))


def by_pillow(mode: str, converted: str | None) -> np.ndarray[Any, Any]:
    with PIL.Image.open(io.BytesIO(EVERY_MODE[mode])) as picture:
        return np.array(picture.convert(converted) if converted else picture)


@pytest.mark.parametrize(
    ("mode", "converted", "dtype"),
    [
        ("one bit", None, "bool"),
        ("one bit, transparent", "RGBA", "uint8"),
        ("grey", None, "uint8"),
        ("grey, transparent", "RGBA", "uint8"),
        ("grey and alpha", "RGBA", "uint8"),
        ("palette", "RGB", "uint8"),
        ("palette, one transparent", "RGBA", "uint8"),
        ("palette, alpha each", "RGBA", "uint8"),
        ("colour", None, "uint8"),
        ("colour, one transparent", "RGBA", "uint8"),
        ("colour and alpha", None, "uint8"),
        ("CMYK jpeg", "RGB", "uint8"),
        ("CMYK tiff", "RGB", "uint8"),
        ("YCbCr", "RGB", "uint8"),
        ("16-bit png", None, "uint16"),
        ("16-bit tiff", None, "uint16"),
        ("16-bit pgm", None, "int32"),
        ("32-bit", None, "int32"),
        ("float", None, "float32"),
        ("jpeg on its side", None, "uint8"),
    ],
)
def test_numpy_gives_colours_for_palettes_and_cmyk_and_grey_in_two_dimensions(
    mode: str, converted: str | None, dtype: str
) -> None:
    found = decode(EVERY_MODE[mode], "numpy")

    assert same(found, by_pillow(mode, converted))
    assert found.dtype == np.dtype(dtype)
    assert found.flags.writeable
    assert found.shape[:2] == (9, 11)


def test_a_palette_with_alpha_keeps_its_alpha() -> None:
    header = struct.pack("<BBBHHBHHHHBB", 0, 1, 1, 0, 2, 32, 0, 0, 2, 1, 8, 0x28)
    data = header + bytes([30, 20, 10, 0, 60, 50, 40, 255]) + bytes([0, 1])

    assert decode(data, "numpy", ".tga").tolist() == [[[10, 20, 30, 0], [40, 50, 60, 255]]]


def test_arrays_of_big_endian_images_are_in_native_order_for_torch() -> None:
    data = image(PIL.Image.frombytes("I;16B", (11, 9), DEEP.astype(">u2").tobytes()), "TIFF")

    found = decode(data, "numpy", ".tif")

    assert same(found, DEEP)
    torch.from_numpy(found)


@pytest.mark.parametrize("extension", IMAGES)
def test_every_image_extension_is_decoded(extension: str) -> None:
    for field in (f".{extension}", f".{extension.upper()}", f".left.{extension.title()}"):
        assert decode(IMAGES[extension], "PIL", field).size == (11, 9)
        assert decode(IMAGES[extension], "rgb8", field).shape == (9, 11, 3)


def test_lazy_leaves_loading_to_the_user() -> None:
    cut = IMAGES["jpg"][:-100]

    picture = default_decoder("PIL", lazy=True)({".jpg": cut})[".jpg"]

    assert picture.size == (11, 9)
    with pytest.raises(OSError, match="truncated"):
        picture.load()
    with pytest.raises(DecodeError, match=r"'\.jpg'.*truncated"):
        default_decoder("PIL")({".jpg": cut})
    with pytest.raises(DecodeError, match=r"'\.jpg'"):
        default_decoder("PIL", lazy=True)({".jpg": b"no image"})
    with pytest.raises(ValueError, match="lazy needs"):
        default_decoder("rgb8", lazy=True)


def test_the_error_for_an_unknown_spec_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'rbg8'.* rgb8, .*torchrgb"):
        default_decoder("rbg8")


def test_an_image_of_more_pixels_than_pillow_allows_is_a_decode_error() -> None:
    side = 20_000
    data = b"P5 %d %d 255\n" % (side, side)

    with pytest.raises(DecodeError, match="exceeds limit"):
        decode(data, "PIL", ".pgm")


def test_pixel_values_are_exact_in_lossless_files() -> None:
    assert same(decode(IMAGES["png"], "rgb8"), PIXELS)
    assert same(decode(IMAGES["bmp"], "torchrgb8", ".bmp"), torch.from_numpy(PIXELS.transpose(2, 0, 1).copy()))
    assert same(decode(IMAGES["tif"], "rgb", ".tif"), PIXELS.astype(np.float32) / 255)
