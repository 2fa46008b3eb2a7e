"""Images to files, by Pillow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.decode.packages import require

if TYPE_CHECKING:
    import PIL.Image

FORMATS: dict[str, str] = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "JPEG"),
    "png": "PNG",
    "webp": "WEBP",
    "bmp": "BMP",
    "gif": "GIF",
    **dict.fromkeys(("tif", "tiff"), "TIFF"),
    **dict.fromkeys(("ppm", "pgm", "pbm", "pnm"), "PPM"),
    **dict.fromkeys(("jp2", "j2k"), "JPEG2000"),
    "ico": "ICO",
    "tga": "TGA",
    "avif": "AVIF",
}
"""Extension to Pillow's name of the format."""

_OPTIONS: dict[str, dict[str, Any]] = {
    # The quality of webdataset; for smaller files users give bytes or an encoder of their own.
    "JPEG": {"quality": 100},
    "WEBP": {"lossless": True, "exact": True},
    "TIFF": {"compression": None},
}
"""Options of Pillow's `save`, by format: as lossless as the format can be."""


_DEEP = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N", "F"})
_CUT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("WEBP", "GIF", "AVIF"), _DEEP),
    **dict.fromkeys(("PPM", "BMP"), frozenset({"RGBA"})),
}
"""Modes whose depth or transparency Pillow cuts off without a word, by format."""


def encode_image(value: Any, *, extension: str) -> bytes:
    """Return an image file.

    Args:
        value: A Pillow image; or an array or tensor of `(height, width)` or `(height, width, channels)`, uint8 or floats in
            [0, 1]. A tensor may also be `(channels, height, width)`, as `torchrgb` decodes it.
        extension: A name in `FORMATS`.

    Raises:
        TypeError: The value is no image, or an array of a shape or type that Pillow does not take.
        ValueError: Floats are outside [0, 1], or the format cannot hold the image's depth or transparency.
        OSError: The format does not support such an image; Pillow says why.
    """
    require("PIL", "pillow")
    import PIL.Image

    image = value if isinstance(value, PIL.Image.Image) else PIL.Image.fromarray(_to_array(value))
    file = io.BytesIO()
    name = FORMATS[extension]
    if image.mode in _CUT.get(name, ()) or (name in {"PNG", "PPM"} and not _fits_16_bits(image)):
        raise ValueError(
            f"an image of mode {image.mode} would lose depth or transparency as {name}; convert it, or write .tif"
        )
    image.save(file, name, **({"no_jp2": True} if extension == "j2k" else {}), **_OPTIONS.get(name, {}))
    return file.getvalue()


def _fits_16_bits(image: PIL.Image.Image) -> bool:
    if image.mode != "I":
        return True
    lowest, highest = image.getextrema()
    return lowest >= 0 and highest < 2**16  # type: ignore[operator]


def _to_array(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, np.ndarray):
        if not (hasattr(value, "numpy") and hasattr(value, "detach")):
            raise TypeError(f"it is of type {type(value).__name__}; an image is one of Pillow's, an array or a tensor")
        value = value.detach().cpu().numpy()
        if value.ndim == 3 and value.shape[0] in {1, 3, 4} and value.shape[2] not in {1, 3, 4}:
            value = value.transpose(1, 2, 0)
    if value.dtype.kind == "f":
        if not (value.size and value.min() >= -0.001 and value.max() <= 1.001):
            raise ValueError("its values are floats outside [0, 1]; scale them, or give uint8")
        value = np.round(np.clip(value, 0, 1) * 255).astype(np.uint8)
    if value.ndim == 3 and value.shape[2] == 1:
        value = value[:, :, 0]
    return np.ascontiguousarray(value, value.dtype.newbyteorder("="))
