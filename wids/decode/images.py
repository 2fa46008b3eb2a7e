"""Image decoding by Pillow, to the forms that webdataset has names for.

| spec | result |
|---|---|
| `PIL` | a loaded Pillow image, mode and orientation untouched |
| `numpy` | `(height, width)` grey or `(height, width, channels)`; bool for one bit, uint8, or deeper where the image is |
| `l8 rgb8 rgba8` | uint8, `(height, width)` or `(height, width, channels)` |
| `l rgb rgba` | the same as float32 in [0, 1] |
| `torchl8 torchrgb8 torchrgba8` | uint8 tensors, `(height, width)` or `(channels, height, width)` |
| `torchl torchrgb torchrgba torch` | the same as float32 in [0, 1]; `torch` is `torchrgb` |
| `pill pilrgb pilrgba pil` | Pillow images converted to that mode; `pil` is `pilrgb` |

Of an animation, all return the first frame (with `PIL`, the others can be reached from it). Images larger than Pillow's
`MAX_IMAGE_PIXELS` allows are refused.

If a size is asked for, a JPEG is decoded at 1/2, 1/4 or 1/8 of its own size, as long as that is at least twice the size
asked for. This uses fewer terms of its cosine transform (ITU-T T.81, annex A; `scale_denom` in libjpeg). Pillow's bicubic
filter does the rest of the scaling.
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
"""Extensions of images. Whether Pillow can read all of them depends on how it was built."""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The form that an image is decoded to."""

    kind: str
    """`"PIL"` or `"numpy"`; or `"array"`, `"tensor"` or `"pil"`, converted to `mode`."""
    mode: str = ""
    """Pillow's name of the mode to convert to; empty for none."""
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
"""The specs by name."""

_CODECS = (
    (b"\xff\xd8", 0, "jpg", "JPEG"),
    (b"\x89PNG", 0, "zlib", "PNG"),
    (b"WEBP", 8, "webp", "WebP"),
    (b"ftypavi", 4, "avif", "AVIF"),
    (b"jP  ", 4, "jpg_2000", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", 0, "jpg_2000", "JPEG 2000"),
)
"""`(magic, offset, feature, name)`: the bytes at `offset` that mark a format, Pillow's feature for it, and its name."""


Size = int | tuple[int, int]
"""The length of an image's shorter side, or its `(height, width)`, in pixels."""

Box = tuple[float, float, float, float]
"""Left, upper, right and lower edge of a part of an image, in pixels of the image."""

_SPARE = 2
"""A JPEG is decoded at no less than this many times the size asked for.

The mean difference from scaling the whole image is then below 1 of 256 levels, measured on photographs.
"""


@dataclass(frozen=True, slots=True)
class ImageDecoder:
    """Decodes the bytes of an image file to the form of a spec.

    Raises:
        ValueError: An argument is invalid, or cannot be used with another.
    """

    spec: str
    """A name in `SPECS`."""
    lazy: bool = False
    """Leave loading to the user; only with `PIL`."""
    size: Size | None = None
    """The size that images are scaled to; None leaves it as it is."""
    jpeg: str = "pillow"
    """The library that decodes JPEGs for RGB specs: `"pillow"` or `"simplejpeg"`."""

    def __post_init__(self) -> None:
        if self.spec not in SPECS:
            raise ValueError(f"format is {self.spec!r}; it must be one of {', '.join(SPECS)}")
        if self.lazy and (self.spec != "PIL" or self.size is not None):
            raise ValueError(
                f"lazy needs format 'PIL' and no size, but format is {self.spec!r} and size is {self.size}"
            )
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
            Exception: The data is damaged, cut, or not an image. The type is Pillow's choice, mostly `OSError`.
            ModuleNotFoundError: A package is missing, or Pillow was built without support for this format.
        """
        require("PIL", "pillow")
        try:
            return self._decode(data)
        except Exception:
            _check_codec(data)
            raise

    def _decode(self, data: bytes) -> Any:
        form = SPECS[self.spec]
        image = _open(data)
        target = None if self.size is None else _scale_sides(image.size, self.size)
        if self.jpeg == "simplejpeg" and form.mode == "RGB" and image.format == "JPEG":
            pixels = read_rgb(data, image.mode)
            if pixels is not None:
                return _pixels_to_form(pixels, target, form)
        box = None if self.lazy else _load(image, target, data)
        # convert() copies an image that has the mode already, so it is not called where that would be in vain.
        if form.kind == "pil" or form.mode not in {"", image.mode}:
            image = _convert(image, form.mode)
        return _image_to_form(_resize(image, target, box), form)


def _open(data: bytes) -> Image:
    import PIL.Image

    try:
        return PIL.Image.open(io.BytesIO(data))
    except PIL.UnidentifiedImageError as error:
        raise OSError(f"not an image that Pillow can read; its {len(data)} bytes begin with {data[:16]!r}") from error


def _load(image: Image, target: tuple[int, int] | None, data: bytes) -> Box | None:
    """Load an image, a JPEG at a fraction of its size where that suffices for `target`.

    Returns:
        The part of the loaded image that shows the picture, if it was loaded at a fraction of its size; else None.
    """
    draft = None
    if target is not None:
        draft = image.draft(None, (_SPARE * target[0], _SPARE * target[1]))  # None keeps the mode
    image.load()
    if image.format == "JPEG2000" and b"\xff\xd9" not in data:
        # OpenJPEG takes a cut between two packets for the end; the end marker occurs nowhere else in the data.
        raise OSError("the JPEG 2000 codestream is truncated")
    # If the fraction does not divide the size, the picture covers only a part of the last column and row of pixels.
    return None if draft is None else draft[1]


def _resize(image: Image, target: tuple[int, int] | None, box: Box | None = None) -> Image:
    return image if target in {None, image.size} else image.resize(target, box=box)


def _scale_sides(sides: tuple[int, int], size: Size) -> tuple[int, int]:
    """Return the `(width, height)` to scale an image to.

    Args:
        sides: Width and height of the image.
        size: The new length of its shorter side, or its new `(height, width)`.

    Examples:
        >>> _scale_sides((640, 480), 240), _scale_sides((640, 480), (100, 50))
        ((320, 240), (50, 100))
    """
    if isinstance(size, tuple):
        return size[1], size[0]
    width, height = sides
    shorter = min(width, height)
    return max(1, round(width * size / shorter)), max(1, round(height * size / shorter))


def _pixels_to_form(pixels: NDArray[np.uint8], target: tuple[int, int] | None, form: ImageSpec) -> Any:
    """Return an image, given as a `(height, width, 3)` array, scaled to `target` and in the form of a spec."""
    if form.kind == "array" and not form.scaled and target is None:
        return pixels
    if form.kind == "tensor" and target is None:
        return _to_tensor(pixels, form)
    import PIL.Image

    image = PIL.Image.fromarray(pixels)
    return _image_to_form(_resize(image, target), form)


def _image_to_form(image: Image, form: ImageSpec) -> Any:
    """Return an image in the form of a spec; it must have the spec's mode already."""
    if form.kind in {"PIL", "pil"}:
        return image
    if form.kind == "numpy":
        return _to_numpy(image)
    if form.kind == "tensor":
        return _to_tensor(np.asarray(image), form)
    return np.divide(np.asarray(image), 255, dtype=np.float32) if form.scaled else np.array(image)


def _to_tensor(pixels: NDArray[np.uint8], form: ImageSpec) -> Any:
    torch = require("torch", "torch")
    channels_first = pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels
    # Division and the new memory order take one pass over the pixels.
    if form.scaled:
        return torch.from_numpy(np.divide(channels_first, 255, dtype=np.float32, order="C"))
    return torch.from_numpy(np.array(channels_first, order="C"))


def _check_codec(data: bytes) -> None:
    """Check that Pillow can read the format of a file that it failed to read; if so, the file is damaged.

    Raises:
        ModuleNotFoundError: Pillow was built without support for the format.
    """
    from PIL import features

    for magic, offset, feature, name in _CODECS:
        # features.check() warns about names that it does not know, as an old Pillow does for newer formats.
        known = feature in features.modules or feature in features.codecs
        if data.startswith(magic, offset) and not (known and features.check(feature)):
            raise ModuleNotFoundError(f"this Pillow was built without {name}; pip install --upgrade pillow", name="PIL")


def _convert(image: Image, mode: str) -> Image:
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        # Converting in two steps gives the same colours, without the warning in which Pillow advises to do so.
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
    """Return whether an image has transparency that is not in an RGBA mode, and so would be lost in an array."""
    if image.mode in {"LA", "PA", "La", "RGBa"}:
        return True
    if image.mode == "P" and image.palette is not None and image.palette.mode == "RGBA":
        return True
    return "transparency" in image.info and image.mode in {"P", "RGB", "L", "1"}
