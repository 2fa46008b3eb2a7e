"""JPEG decoding by simplejpeg, an optional package that users choose with `jpeg="simplejpeg"`.

simplejpeg is built on libjpeg-turbo, as Pillow is, and gives the same pixels. It is faster because it writes them into an
array, where Pillow copies them from its own image. Files that it refuses are left to Pillow, which decides whether they are
damaged. torchvision's decoder was slower in the same measurement, and is deprecated (torchvision 0.29).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.decode.packages import require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def read_rgb(data: bytes, mode: str) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG, `(height, width, 3)` uint8, or None if Pillow has to decode it.

    Args:
        data: The JPEG file.
        mode: The image's mode as Pillow reads it from the header; all but `"RGB"` and `"L"` are left to Pillow.

    Raises:
        ModuleNotFoundError: simplejpeg is not installed; the message says how to install it.
    """
    package = require("simplejpeg", "wids[simplejpeg]")
    if mode not in {"RGB", "L"}:
        return None
    try:
        pixels: NDArray[np.uint8] = package.decode_jpeg(data)
    except ValueError:  # raised for all data that simplejpeg refuses
        return None
    return pixels
