"""JPEGs to RGB by simplejpeg, for those who have it installed and ask for it.

It builds upon libjpeg-turbo as Pillow does, with the same pixels, and saves Pillow's copies from its own image to an array.
What it does not take is left to Pillow, which has the last word on damage. torchvision's decoder, measured beside it, took
longer, and its makers have deprecated it (torchvision 0.29).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.decode.packages import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def read_rgb(data: bytes, mode: str) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG, `(height, width, 3)` uint8, None where Pillow is to do it.

    Args:
        data: The file.
        mode: Pillow's of the image, as its header says; others than `"RGB"` and `"L"` are Pillow's to convert.

    Raises:
        ModuleNotFoundError: simplejpeg is missing; says what to type.
    """
    package = require("simplejpeg", "wids[simplejpeg]")
    if mode not in {"RGB", "L"}:
        return None
    try:
        pixels: NDArray[np.uint8] = package.decode_jpeg(data)
    except ValueError:  # of any data that it does not take
        return None
    return pixels
