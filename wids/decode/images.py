"""Images by Pillow, in the forms that webdataset names.

| spec | result |
|---|---|
| `PIL` | a loaded Pillow image, mode and orientation untouched |
| `numpy` | `(height, width)` grey or `(height, width, channels)`, uint8 unless the image is deeper |
| `l8 rgb8 rgba8` | uint8, `(height, width)` or `(height, width, channels)` |
| `l rgb rgba` | the same as float32 in [0, 1] |
| `torchl8 torchrgb8 torchrgba8` | uint8 tensors, `(height, width)` or `(channels, height, width)` |
| `torchl torchrgb torchrgba torch` | the same as float32 in [0, 1]; `torch` is `torchrgb` |
| `pill pilrgb pilrgba pil` | Pillow images converted to that mode; `pil` is `pilrgb` |
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

EXTENSIONS = frozenset(
    "jpg jpeg jpe jfif png webp bmp gif tif tiff ppm pgm pbm pnm jp2 j2k ico tga avif".split()  # noqa: SIM905
)
"""Those that Pillow reads; whether it can depends on how it was built."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """What an image becomes."""

    kind: str
    """`"PIL"`, `"numpy"`, or `"array"`, `"tensor"`, `"pil"` in a given mode."""
    mode: str = ""
    """Pillow's mode to convert to."""
    scaled: bool = False
    """Whether values are float32 in [0, 1]."""


SPECS: dict[str, ImageSpec] = {
    "PIL": ImageSpec("PIL"),
    "numpy": ImageSpec("numpy"),
    "pil": ImageSpec("pil", "RGB"),
    "torch": ImageSpec("tensor", "RGB", scaled=True),
    **{f"pil{mode}": ImageSpec("pil", mode.upper()) for mode in ("l", "rgb", "rgba")},
    **{f"{mode}8": ImageSpec("array", mode.upper()) for mode in ("l", "rgb", "rgba")},
    **{mode: ImageSpec("array", mode.upper(), scaled=True) for mode in ("l", "rgb", "rgba")},
    **{f"torch{mode}8": ImageSpec("tensor", mode.upper()) for mode in ("l", "rgb", "rgba")},
    **{f"torch{mode}": ImageSpec("tensor", mode.upper(), scaled=True) for mode in ("l", "rgb", "rgba")},
}
"""Name to what it means."""


def decode_image(data: bytes, *, spec: str, lazy: bool) -> Any:
    """Return an image in the form that `spec` names.

    Args:
        data: An image file.
        spec: A name in `SPECS`.
        lazy: Leave loading to the user, for `PIL`.

    Raises:
        OSError: The data is damaged, cut, or no image.
    """
    import PIL.Image

    meaning = SPECS[spec]
    try:
        image: Image = PIL.Image.open(io.BytesIO(data))
        if not lazy:
            image.load()
    except (PIL.Image.DecompressionBombError, SyntaxError) as error:
        raise OSError(str(error)) from error
    if meaning.kind == "PIL":
        return image
    if meaning.kind == "numpy":
        return _to_numpy(image)
    image = image.convert(meaning.mode)
    if meaning.kind == "pil":
        return image
    array = np.asarray(image)
    if meaning.kind == "array":
        return array.astype(np.float32) / 255 if meaning.scaled else np.array(array)
    import torch

    channels_first = array.transpose(2, 0, 1) if array.ndim == 3 else array
    tensor = torch.from_numpy(np.array(channels_first, order="C"))
    return tensor.to(torch.float32) / 255 if meaning.scaled else tensor


def _to_numpy(image: Image) -> np.ndarray[Any, Any]:
    if ("transparency" in image.info and image.mode in {"P", "RGB", "L", "1"}) or image.mode in {
        "LA",
        "PA",
        "La",
        "RGBa",
    }:
        image = image.convert("RGBA")
    elif image.mode in {"P", "CMYK", "YCbCr", "LAB", "HSV"}:
        image = image.convert("RGB")
    elif image.mode == "1":
        image = image.convert("L")
    return np.array(image)
