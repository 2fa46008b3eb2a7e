"""How long does it take to decode a JPEG, by decoder, form and size?

    make bench-decode

The images are the photographs that scikit-learn ships, of 640 by 427 pixels, and the same enlarged to 1,920 by 1,281.
`load` is Pillow's own decoding, which is part of every form; the forms add the time for their copies. Where a decoder
scales, the mean difference from the whole image decoded and then scaled is reported as well.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import time
from typing import Any

import corpus
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from wids import default_decoder

ROUNDS = int(os.environ.get("ROUNDS", "7"))
SPECS = ("PIL", "rgb8", "torchrgb8", "torchrgb")
SIZES = (64, 128, 256)


def main() -> None:
    """Print microseconds per image."""
    torch.set_num_threads(1)
    results = {name: measure(images) for name, images in photographs().items()}
    for name, rows in results.items():
        print(f"\n{name}; us for an image, x Pillow's load")
        for what, figures in rows.items():
            difference = f"   mean difference {figures['difference']:.2f} of 256" if "difference" in figures else ""
            print(f"  {what:34}{figures['us']:8,.0f} {figures['us'] / rows['load']['us']:6.2f}x{difference}")
    corpus.OUT.mkdir(exist_ok=True)
    (corpus.OUT / "decode_images.json").write_text(json.dumps(results, indent=1))


def photographs() -> dict[str, list[bytes]]:
    """Return JPEGs of two sizes."""
    pictures = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    large = [picture.resize((1920, 1281), Image.Resampling.LANCZOS) for picture in pictures]
    return {"640 x 427": [encode(picture) for picture in pictures], "1,920 x 1,281": [encode(one) for one in large]}


def encode(picture: Image.Image) -> bytes:
    """Return a JPEG."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


def load(data: bytes) -> Image.Image:
    """Return an image, loaded by Pillow."""
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return picture


def scale(data: bytes, size: int) -> Image.Image:
    """Return the whole image, decoded and then scaled."""
    picture = load(data)
    return picture.resize((round(picture.width * size / picture.height), size))


def measure(images: list[bytes]) -> dict[str, dict[str, float]]:
    """Return microseconds per image for each way to decode; the ways take turns."""
    ways: dict[str, Any] = {"load": load}
    for spec in SPECS:
        for jpeg in ("pillow", "simplejpeg") if "rgb" in spec else ("pillow",):
            decoder = default_decoder(spec, jpeg=jpeg)
            ways[f"{spec}, {jpeg}"] = lambda data, decoder=decoder: decoder({".jpg": data})[".jpg"]
    for size in SIZES:
        ways[f"whole, then scaled to {size}"] = lambda data, size=size: scale(data, size)
        decoder = default_decoder("pil", size=size)
        ways[f"pil, size={size}"] = lambda data, decoder=decoder: decoder({".jpg": data})[".jpg"]
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way, function in ways.items():
            started = time.perf_counter()
            for data in images * 4:
                function(data)
            times[way].append(1e6 * (time.perf_counter() - started) / (4 * len(images)))
    found = {way: {"us": statistics.median(each)} for way, each in times.items()}
    for size in SIZES:
        pairs = [
            (np.asarray(ways[f"pil, size={size}"](data), int), np.asarray(scale(data, size), int)) for data in images
        ]
        found[f"pil, size={size}"]["difference"] = max(float(np.abs(one - other).mean()) for one, other in pairs)
    return found


if __name__ == "__main__":
    main()
