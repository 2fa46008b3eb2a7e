"""Audio decoding by libsndfile, with a check that the file is complete.

For a truncated file, libsndfile returns what is left without an error. Therefore the length that a file states is compared
with what was decoded. It is stated by a WAV's data chunk (http://soundfile.sapp.org/doc/WaveFormat), by a FLAC's stream
information and an MP3's Xing header (both read by libsndfile), and by an Ogg stream's last page (RFC 3533). An MP3 without
a Xing header does not state it.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np

from wids.decode.packages import require
from wids.decode.unpack import MAX_UNPACKED_BYTES, check_size

_BLOCK_FRAMES = 65536
"""Number of frames that are read at a time; memory must not depend on the number that a header states."""

_UNKNOWN_BYTES = 0x7FFF0000
"""Sizes from here on mean "unknown": WAV writers that cannot seek back write them."""

_UNKNOWN_FRAMES = 2**62
"""Numbers of frames above this mean "unknown" to libsndfile."""


def decode_audio(data: bytes, *, limit: int = MAX_UNPACKED_BYTES) -> tuple[Any, int]:
    """Return the sound as `(samples, rate)`: a float32 tensor `(channels, frames)`, and the number of frames per second.

    Args:
        data: A WAV, FLAC, MP3, Ogg Vorbis or Opus file.
        limit: The most bytes that the decoded samples may take.

    Returns:
        `samples`, nominally in [-1, 1], and `rate`.

    Raises:
        ValueError: The file is cut, damaged or not audio, or holds more than `limit` bytes.
    """
    torch = require("torch", "torch")
    soundfile = require("soundfile", "wids[audio]")
    _check_whole(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            samples = _read_blocks(file, limit)
            states_frames = file.frames < _UNKNOWN_FRAMES and (file.format != "MP3" or _has_xing_header(data))
            if states_frames and len(samples) < file.frames:
                raise ValueError(f"it is truncated: {len(samples)} frames of {file.frames}")
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        # str(error) begins with the address of the file object, so only the library's own text is used.
        raise ValueError(error.error_string) from error
    return torch.from_numpy(np.ascontiguousarray(samples.T)), rate


def _read_blocks(file: Any, limit: int) -> np.ndarray[Any, Any]:
    """Return all frames, `(frames, channels)` float32; memory grows with the data, not with what the header states."""
    blocks = []
    num_bytes = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        num_bytes += block.nbytes
        check_size(num_bytes, limit)
        blocks.append(block)
    return np.concatenate(blocks) if blocks else np.zeros((0, file.channels), np.float32)


def _check_whole(data: bytes) -> None:
    """Check that a file is as long as its container states.

    Raises:
        ValueError: The file is cut.
    """
    if data.startswith(b"RIFF"):
        _check_wav(data)
    elif data.startswith(b"OggS"):
        _check_ogg(data)


def _check_wav(data: bytes) -> None:
    offset = 12
    while offset + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, offset)
        offset += 8
        if name == b"data":
            if len(data) - offset < size < _UNKNOWN_BYTES:
                raise ValueError(f"it is truncated: {len(data) - offset} bytes of {size} in the data chunk")
            return
        offset += size + size % 2


def _check_ogg(data: bytes) -> None:
    start = data.rfind(b"OggS")
    flags, num_segments = (data[start + 5], data[start + 26]) if start + 27 <= len(data) else (0, 0)
    body = start + 27 + num_segments
    if not flags & 4 or body + sum(data[start + 27 : body]) > len(data):
        raise ValueError("it is truncated: the last Ogg page is not the end of its stream, or is not all there")


def _has_xing_header(data: bytes) -> bool:
    """Return whether an MP3's first frame, after any ID3 tag, states the number of frames."""
    start = 0
    if data.startswith(b"ID3") and len(data) >= 10:
        a, b, c, d = data[6:10]
        start = 10 + (a << 21 | b << 14 | c << 7 | d)
    head = data[start : start + 64]
    return b"Xing" in head or b"Info" in head
