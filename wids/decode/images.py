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

Where a size is asked for, a JPEG is decoded at 1/2, 1/4 or 1/8 of its own as long as twice the size asked for remains, from
fewer terms of its cosine transform (ITU-T T.81, annex A; `scale_denom` in libjpeg), and Pillow's bicubic filter does the rest.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.decode.jpeg import read_rgb
from wids.decode.packages import require

if TYPE_CHECKING:
    from numpy.typing import NDArray
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


Size = int | tuple[int, int]
"""Pixels of an image's shorter side, or its `(height, width)`."""

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge of a part of an image, in its pixels."""

_SPARE = 2
"""A JPEG is decoded at no less than so many times the size asked for: of photographs the mean difference to the whole image
scaled is then below 1 of 256 levels."""


@dataclass(frozen=True, slots=True)
class ImageDecoder:
    """Bytes of an image file to an image in the form that a spec names.

    Raises:
        ValueError: An argument is none of those that it may be, or two do not go together.
    """

    spec: str
    """A name in `SPECS`."""
    lazy: bool = False
    """Leave loading to the user, for `PIL`."""
    size: Size | None = None
    """What the shorter side becomes, or `(height, width)`, in pixels; None leaves the size alone."""
    jpeg: str = "pillow"
    """What decodes JPEGs for specs in RGB: `"pillow"` or `"simplejpeg"`."""

    def __post_init__(self) -> None:
        if self.spec not in SPECS:
            raise ValueError(f"format is {self.spec!r}; it must be one of {', '.join(SPECS)}")
        if self.lazy and (self.spec != "PIL" or self.size is not None):
            raise ValueError(f"lazy goes with format 'PIL' and no size, not with {self.spec!r} and {self.size}")
        if self.jpeg not in {"pillow", "simplejpeg"}:
            raise ValueError(f"jpeg is {self.jpeg!r}; it must be 'pillow' or 'simplejpeg'")
        sides = self.size if isinstance(self.size, tuple) else (1 if self.size is None else self.size,) * 2
        if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
            raise ValueError(f"size is {self.size!r}; it must be the shorter side, or (height, width), in pixels")

    def __call__(self, data: bytes) -> Any:
        """Return the image.

        Args:
            data: An image file.

        Raises:
            Exception: The data is damaged, cut, or no image; which one is Pillow's choice, mostly `OSError`.
            ModuleNotFoundError: A package is missing, or Pillow was built without what this format needs.
        """
        require("PIL", "pillow")
        try:
            return self._decode(data)
        except Exception:
            _check_codec(data)
            raise

    def _decode(self, data: bytes) -> Any:
        meaning = SPECS[self.spec]
        image = _open(data)
        target = None if self.size is None else _scale_sides(image.size, self.size)
        if self.jpeg == "simplejpeg" and meaning.mode == "RGB" and image.format == "JPEG":
            pixels = read_rgb(data, image.mode)
            if pixels is not None:
                return _give_pixels(pixels, target, meaning)
        box = None if self.lazy else _load(image, target, data)
        if meaning.kind == "pil" or meaning.mode not in {"", image.mode}:  # convert() copies what needs no change
            image = _convert(image, meaning.mode)
        return _give(_resize(image, target, box), meaning)


def _open(data: bytes) -> Image:
    import PIL.Image

    try:
        return PIL.Image.open(io.BytesIO(data))
    except PIL.UnidentifiedImageError as error:
        raise OSError(f"no image that Pillow can read; its {len(data)} bytes begin with {data[:16]!r}") from error


def _load(image: Image, target: tuple[int, int] | None, data: bytes) -> Box | None:
    """Load an image, at a fraction of its size where that will do; return what of it is the picture then."""
    draft = None
    if target is not None:
        draft = image.draft(None, (_SPARE * target[0], _SPARE * target[1]))  # None keeps the mode
    image.load()
    if image.format == "JPEG2000" and b"\xff\xd9" not in data:
        # OpenJPEG takes a cut between two packets for the end; the mark of the end occurs nowhere else.
        raise OSError("the JPEG 2000 codestream is cut")
    # The last column and row are cut through where the size is no multiple of the fraction's.
    return None if draft is None else draft[1]


def _resize(image: Image, target: tuple[int, int] | None, box: Box | None = None) -> Image:
    return image if target in {None, image.size} else image.resize(target, box=box)


def _scale_sides(sides: tuple[int, int], size: Size) -> tuple[int, int]:
    """Return width and height of an image whose shorter side, or whose `(height, width)`, is `size`.

    Examples:
        >>> _scale_sides((640, 480), 240), _scale_sides((640, 480), (100, 50))
        ((320, 240), (50, 100))
    """
    if isinstance(size, tuple):
        return size[1], size[0]
    width, height = sides
    shorter = min(width, height)
    return max(1, round(width * size / shorter)), max(1, round(height * size / shorter))


def _give_pixels(pixels: NDArray[np.uint8], target: tuple[int, int] | None, meaning: ImageSpec) -> Any:
    """Return an image that is an `(height, width, 3)` array already in the form that a spec means."""
    if meaning.kind == "array" and not meaning.scaled and target is None:
        return pixels
    if meaning.kind == "tensor" and target is None:
        return _to_tensor(pixels, meaning)
    import PIL.Image

    image = PIL.Image.fromarray(pixels)
    return _give(_resize(image, target), meaning)


def _give(image: Image, meaning: ImageSpec) -> Any:
    """Return an image, in the mode of the spec, in the form that the spec means."""
    if meaning.kind in {"PIL", "pil"}:
        return image
    if meaning.kind == "numpy":
        return _to_numpy(image)
    if meaning.kind == "tensor":
        return _to_tensor(np.asarray(image), meaning)
    return np.divide(np.asarray(image), 255, dtype=np.float32) if meaning.scaled else np.array(image)


def _to_tensor(pixels: NDArray[np.uint8], meaning: ImageSpec) -> Any:
    torch = require("torch", "torch")
    channels_first = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels
    # Division and new order in one go over the pixels.
    if meaning.scaled:
        return torch.from_numpy(np.divide(channels_first, 255, dtype=np.float32, order="C"))
    return torch.from_numpy(np.array(channels_first, order="C"))


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
