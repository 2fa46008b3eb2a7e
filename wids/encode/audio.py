"""Audio to WAV, which is lossless, and FLAC, which keeps 24 bits."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np

from wids.decode.packages import require

_IEEE_FLOAT = 3
_FLOAT_BYTES = 4


def encode_wav(value: Any) -> bytes:
    """Return a WAV file of `(samples, rate)`, as `decode_audio` returns them: float32 `(channels, frames)`.

    Written here because libsndfile would put the time into the file, and equal sounds must give equal bytes. Sources of the
    format, its `fact` chunk included: RFC 2361 and http://soundfile.sapp.org/doc/WaveFormat.

    Raises:
        TypeError: The value is no such pair.
        ValueError: The samples have another shape, or are more than a WAV file can hold.
    """
    samples, rate = _check(value)
    channels, frames = samples.shape
    content = np.ascontiguousarray(samples.T, "<f4").tobytes()
    if len(content) >= 2**32 - 64:
        raise ValueError(f"its {len(content)} bytes are more than a WAV file can have")
    width = channels * _FLOAT_BYTES
    head = struct.pack(
        "<4sIHHIIHHH", b"fmt ", 18, _IEEE_FLOAT, channels, rate, rate * width, width, 8 * _FLOAT_BYTES, 0
    )
    head += struct.pack("<4sII4sI", b"fact", 4, frames, b"data", len(content))
    return struct.pack("<4sI4s", b"RIFF", 4 + len(head) + len(content), b"WAVE") + head + content


def encode_flac(value: Any) -> bytes:
    """Return a FLAC file of 24 bits of `(samples, rate)`: float32 `(channels, frames)` in [-1, 1], and Hz.

    Raises:
        TypeError: The value is no such pair.
        ValueError: The samples have another shape, are none, or are outside [-1, 1].
    """
    samples, rate = _check(value)
    if not samples.size:
        raise ValueError("it has no samples, which FLAC cannot store; write .wav")
    if not np.abs(samples).max() <= 1:
        raise ValueError("its samples are outside [-1, 1]; scale them, or write .wav")
    soundfile = require("soundfile", "wids[audio]")
    file = io.BytesIO()
    soundfile.write(file, samples.T, rate, format="FLAC", subtype="PCM_24")
    return file.getvalue()


def _check(value: Any) -> tuple[np.ndarray[Any, Any], int]:
    if not (isinstance(value, (tuple, list)) and len(value) == 2):
        raise TypeError(f"it is of type {type(value).__name__}; sound is a pair of samples and their rate")
    samples = np.asarray(value[0], np.float32)
    if samples.ndim != 2 or not samples.shape[0]:
        raise ValueError(f"its samples have the shape {samples.shape}; it must be (channels, frames)")
    rate = int(value[1])
    if rate != value[1] or not 1 <= rate < 2**31:
        raise ValueError(f"its rate is {value[1]!r}; it must be a whole number of frames per second")
    return samples, rate
