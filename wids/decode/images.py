"""Images by Pillow, in the forms that webdataset names.

| spec | result |
|---|---|
| `PIL` | a loaded Pillow image, mode and orientation untouched |
| `numpy` | `(height, width)` grey or `(height, width, channels)`; bool for one bit, uint8, or deeper where the image is |
| `l8 rgb8 rgba8` | uint8, `(height, width)` or `(height, width, channels)` |
| `l rgb rgba` | the same as float32 in [0, 1] |
| `torchl8 torchrgb8 torchrgba8` | uint8 tensors, `(height, width)` or `(channels, height, width)` |
| `torchl torchrgb torchrgba torch` | the same as float32 in [0, 1]; `torch` is `torchrgb` |
| `pill pilrgb pilrgba pil` | Pillow images converted to that mode; `pil` is `pilrgb` |

Of an animation all give the first frame (`PIL` keeps the others within reach). A header cannot ask for more than
Pillow's `MAX_IMAGE_PIXELS` allows.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.decode.packages import require

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

_CODECS = (
    (b"\xff\xd8", 0, "jpg", "JPEG"),
    (b"\x89PNG", 0, "zlib", "PNG"),
    (b"WEBP", 8, "webp", "WebP"),
    (b"ftypavi", 4, "avif", "AVIF"),
    (b"jP  ", 4, "jpg_2000", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", 0, "jpg_2000", "JPEG 2000"),
)
"""What a file begins with, from which byte, Pillow's name of what it needs for it, and ours."""


def decode_image(data: bytes, *, spec: str, lazy: bool) -> Any:
    """Return an image in the form that `spec` names.

    Args:
        data: An image file.
        spec: A name in `SPECS`.
        lazy: Leave loading to the user, for `PIL`.

    Raises:
        Exception: The data is damaged, cut, or no image; which one is Pillow's choice, mostly `OSError`.
        ModuleNotFoundError: Pillow is missing, or was built without what this format needs.
    """
    meaning = SPECS[spec]
    image = _open(data, lazy=lazy)
    if meaning.kind == "PIL":
        return image
    if meaning.kind == "numpy":
        return _to_numpy(image)
    image = _convert(image, meaning.mode)
    if meaning.kind == "pil":
        return image
    array = np.asarray(image)
    if meaning.kind == "array":
        return array.astype(np.float32) / 255 if meaning.scaled else np.array(array)
    torch = require("torch", "torch")
    channels_first = array.transpose(2, 0, 1) if array.ndim == 3 else array
    tensor = torch.from_numpy(np.array(channels_first, order="C"))
    return tensor.to(torch.float32) / 255 if meaning.scaled else tensor


def _open(data: bytes, *, lazy: bool) -> Image:
    require("PIL", "pillow")
    import PIL.Image

    try:
        image: Image = PIL.Image.open(io.BytesIO(data))
        if not lazy:
            image.load()
    except Exception as error:
        _check_codec(data)
        if isinstance(error, PIL.UnidentifiedImageError):
            raise OSError(f"no image that Pillow can read; its {len(data)} bytes begin with {data[:16]!r}") from error
        raise
    if image.format == "JPEG2000" and b"\xff\xd9" not in data:
        # OpenJPEG takes a cut between two packets for the end; the mark of the end occurs nowhere else.
        raise OSError("the JPEG 2000 codestream is cut")
    return image


def _check_codec(data: bytes) -> None:
    """Tell a Pillow that cannot read a format from a file that is damaged.

    Raises:
        ModuleNotFoundError: It cannot.
    """
    from PIL import features

    for magic, offset, feature, name in _CODECS:
        # An old Pillow does not know the names of newer formats, and warns when it is asked for them.
        known = feature in features.modules or feature in features.codecs
        if data.startswith(magic, offset) and not (known and features.check(feature)):
            raise ModuleNotFoundError(f"this Pillow was built without {name}; pip install --upgrade pillow", name="PIL")


def _convert(image: Image, mode: str) -> Image:
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        # The same colours without Pillow's warning that this is how it should be done.
        image = image.convert("RGBA")
    return image.convert(mode)


def _to_numpy(image: Image) -> np.ndarray[Any, Any]:
    if _is_transparent(image):
        image = image.convert("RGBA")
    elif image.mode in {"P", "CMYK", "YCbCr", "LAB", "HSV"}:
        image = image.convert("RGB")
    array = np.array(image)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _is_transparent(image: Image) -> bool:
    """Tell whether an image has transparency in a mode where the array would not show it as RGBA."""
    if image.mode in {"LA", "PA", "La", "RGBa"}:
        return True
    if image.mode == "P" and image.palette is not None and image.palette.mode == "RGBA":
        return True
    return "transparency" in image.info and image.mode in {"P", "RGB", "L", "1"}
