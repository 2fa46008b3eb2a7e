"""Small files of every kind that is decoded, written with the libraries that users write them with."""

from __future__ import annotations

import gzip
import io
import pickle
from typing import Any

import msgpack
import numpy as np
import PIL.Image
import safetensors.torch
import soundfile
import torch
from webdataset import tenbin

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (9, 11, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 65536, (9, 11), dtype=np.uint16)
RGB = PIL.Image.fromarray(PIXELS)
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
TONE = np.sin(np.arange(3000) / 9).astype(np.float32) / 2
RATE = 48000


def image(picture: PIL.Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, file_format, **options)
    return file.getvalue()


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version=version)
    return file.getvalue()


def npz(*, packed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    return file.getvalue()


def pt(value: Any, *, as_zip: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=as_zip)
    return file.getvalue()


def audio(samples: Any, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=file_format, **options)
    return file.getvalue()


def ten(*arrays: Any) -> bytes:
    return bytes(tenbin.encode_buffer([np.asarray(array) for array in arrays]))


IMAGES = {
    "jpeg": image(RGB, "JPEG"),
    "jpg": image(RGB, "JPEG", progressive=True),
    "png": image(RGB, "PNG"),
    "webp": image(RGB, "WEBP"),
    "bmp": image(RGB, "BMP"),
    "gif": image(RGB.convert("P"), "GIF"),
    "tif": image(RGB, "TIFF"),
    "tiff": image(RGB, "TIFF", compression="tiff_lzw"),
    "ppm": image(RGB, "PPM"),
    "pgm": image(RGB.convert("L"), "PPM"),
    "pbm": image(RGB.convert("1"), "PPM"),
    "pnm": image(RGB, "PPM"),
    "avif": image(RGB, "AVIF"),
    "jp2": image(RGB, "JPEG2000"),
}
"""Extension to an image of 11 by 9 pixels."""

VALUES: dict[str, tuple[bytes, Any]] = {
    "txt": ("Grüße\n".encode(), "Grüße\n"),
    "text": (b"", ""),
    "transcript": (b"a b", "a b"),
    "cls": (b"3", 3),
    "cls2": (b" 3\n", 3),
    "index": (b"-7", -7),
    "inx": (b"0", 0),
    "id": (b"123456789012345678901234567890", 123456789012345678901234567890),
    "json": (b'{"a": [1, 2.5, null, "x"]}', {"a": [1, 2.5, None, "x"]}),
    "jsn": (b"true", True),
    "jsonl": (b'{"a": 1}\r\n\n[2]\n', [{"a": 1}, [2]]),
    "npy": (npy(ARRAY), ARRAY),
    "npz": (npz(a=ARRAY, b=np.int64(3)), {"a": ARRAY, "b": np.array(3)}),
    "pt": (pt({"a": torch.arange(6)}), {"a": torch.arange(6)}),
    "pth": (pt([torch.ones(2), 3], as_zip=False), [torch.ones(2), 3]),
    "safetensors": (safetensors.torch.save({"a": torch.arange(6)}), {"a": torch.arange(6)}),
    "mp": (msgpack.packb({"a": [1, b"x"], 2: None}), {"a": [1, b"x"], 2: None}),
    "msgpack": (msgpack.packb("x"), "x"),
    "ten": (ten(ARRAY, np.arange(4)), [ARRAY, np.arange(4)]),
    "tb": (ten(ARRAY), [ARRAY]),
}
"""Extension to bytes, and the value that they hold."""

AUDIO = {
    "wav": audio(TONE, "WAV", subtype="FLOAT"),
    "flac": audio(TONE, "FLAC", subtype="PCM_24"),
    "mp3": audio(TONE, "MP3"),
    "opus": audio(TONE, "OGG", subtype="OPUS"),
    "ogg": audio(TONE, "OGG", subtype="VORBIS"),
}
"""Extension to a mono tone of 3,000 frames at 48 kHz."""

PICKLES = {"pkl": pickle.dumps([1, 2]), "pickle": pickle.dumps([1, 2], 0), "pyd": pickle.dumps([1, 2])}


def same(first: Any, second: Any) -> bool:
    """Tell whether two decoded values are equal in type, shape and content."""
    if isinstance(first, PIL.Image.Image):
        return (first.mode, first.size, first.tobytes()) == (second.mode, second.size, second.tobytes())
    if isinstance(first, torch.Tensor):
        return first.dtype == second.dtype and first.shape == second.shape and bool((first == second).all())
    if isinstance(first, np.ndarray):
        return (
            isinstance(second, np.ndarray)
            and (first.dtype, first.shape) == (second.dtype, second.shape)
            and (first.tobytes() == second.tobytes() or bool((first == second).all()))
        )
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and bool(first == second)


def bomb(num_bytes: int) -> bytes:
    return gzip.compress(bytes(num_bytes))


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (self.path, "w")
