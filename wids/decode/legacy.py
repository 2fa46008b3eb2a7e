"""0.1.11's decoding functions, each a sample to a sample."""

from __future__ import annotations

import gzip
import io
from typing import Any

from wids.decode.decoder import Decoder
from wids.decode.images import EXTENSIONS


def check_keys(sample: dict[str, Any]) -> None:
    """Raise when a field does not begin with a dot or two underscores.

    Raises:
        ValueError: One does not.
    """
    for name in sample:
        if not name.startswith((".", "__")):
            raise ValueError(f"field {name!r} must begin with '.' or '__'")


def decode_all_gz(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with its `.gz` fields unpacked, under their own names."""
    return {
        name: io.BytesIO(gzip.decompress(value.read())) if name.endswith(".gz") and hasattr(value, "read") else value
        for name, value in sample.items()
    }


def decode_basic(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with everything but images decoded."""
    return Decoder(None)(dict(sample))


def decode_images_to_pil(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with its images as Pillow images."""
    return _decode_images(sample, "PIL")


def decode_images_to_numpy(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with its images as arrays."""
    return _decode_images(sample, "numpy")


def _decode_images(sample: dict[str, Any], spec: str) -> dict[str, Any]:
    names = [name for name in sample if name.removesuffix(".gz").rpartition(".")[2].lower() in EXTENSIONS]
    key = {"__key__": sample["__key__"]} if "__key__" in sample else {}
    return {**sample, **Decoder(spec)({**key, **{name: sample[name] for name in names}})}
