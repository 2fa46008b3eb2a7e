"""Damage of any kind is a `DecodeError`: never another exception, a crash, or partial data taken for the whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import tracemalloc
import zlib
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decode.files import AUDIO, IMAGES, PICKLES, RGB, TONE, VALUES, audio, bomb, image, same
from wids.decode import default_decoder
from wids.decode.audio import decode_audio
from wids.decode.unpack import MAX_UNPACKED_BYTES, gunzip
from wids.errors import DecodeError

pytestmark = pytest.mark.filterwarnings("ignore:Corrupt EXIF data", "ignore:Truncated File Read")

FILES = {**{extension: data for extension, (data, _) in VALUES.items()}, **IMAGES, **AUDIO, **PICKLES}
NO_PICKLES = [extension for extension in FILES if extension not in PICKLES]  # a damaged pickle could run anything
STATES_ITS_LENGTH = [
    "json", "npy", "npz", "pt", "pth", "safetensors", "mp", "tb", "wav", "flac", "opus", "ogg", "pkl", "pickle", "pyd",
]  # fmt: skip
decode_sample = default_decoder("PIL", allow_pickle=True)


def decode(extension: str, data: bytes) -> Any:
    return decode_sample({f".{extension}": data})[f".{extension}"]


@pytest.mark.parametrize("extension", STATES_ITS_LENGTH)
def test_a_file_cut_at_any_byte_is_an_error(extension: str) -> None:
    data = FILES[extension]
    step = max(1, len(data) // 700)

    first = 1 if extension == "tb" else 0  # an empty file is valid, and holds no arrays
    for length in [*range(first, len(data), step), *range(max(first, len(data) - 40), len(data))]:
        with pytest.raises(DecodeError, match=rf"field '\.{extension}'"):
            decode(extension, data[:length])


MORE_IMAGES = {
    "progressive jpeg": image(RGB, "JPEG", progressive=True),
    "lossless webp": image(RGB, "WEBP", lossless=True),
    "animated webp": image(RGB, "WEBP", save_all=True, append_images=[RGB.rotate(180)]),
    "animated png": image(RGB, "PNG", save_all=True, append_images=[RGB.rotate(180)]),
    "animated gif": image(RGB.convert("P"), "GIF", save_all=True, append_images=[RGB.convert("P").rotate(180)]),
    "jpeg in tiff": image(RGB, "TIFF", compression="jpeg"),
    "packed tga": image(RGB, "TGA", compression="tga_rle"),
}


@pytest.mark.parametrize("name", [*IMAGES, *MORE_IMAGES])
def test_a_cut_image_is_an_error_or_whole(name: str) -> None:
    data = {**IMAGES, **MORE_IMAGES}[name]
    whole = decode("png", data)

    for length in range(len(data)):
        try:
            found = decode("png", data[:length])
        except DecodeError:
            continue
        # What follows the last pixel (checksums, padding, other frames) may be missing.
        assert same(found, whole)
        assert length > len(data) // 3


@pytest.mark.parametrize("extension", FILES)
def test_an_empty_file_is_an_error_unless_its_format_allows_it(extension: str) -> None:
    nothing: Any = {"txt": "", "text": "", "transcript": "", "jsonl": [], "ten": [], "tb": []}
    if extension in nothing:
        assert decode(extension, b"") == nothing[extension]
    else:
        with pytest.raises(DecodeError, match=rf"field '\.{extension}'"):
            decode(extension, b"")
    with pytest.raises(DecodeError, match="the field is empty"):
        decode(f"{extension}.gz", b"")


@pytest.mark.parametrize("extension", NO_PICKLES)
def test_changed_bytes_give_a_value_or_a_decode_error(extension: str) -> None:
    random = np.random.default_rng(1)
    data = np.frombuffer(FILES[extension], np.uint8)
    safe = default_decoder("PIL")
    if not len(data):
        return

    for _ in range(150):
        changed = data.copy()
        places = random.integers(0, len(data), random.integers(1, 5))
        changed[places] = random.integers(0, 256, len(places))
        try:
            safe({f".{extension}": changed.tobytes()})
        except DecodeError as error:
            assert f"field '.{extension}'" in str(error)


@pytest.mark.parametrize("extension", NO_PICKLES)
@settings(max_examples=25)
@given(st.binary(max_size=300), st.integers(0, 24))
def test_random_bytes_give_a_value_or_a_decode_error(extension: str, data: bytes, kept: int) -> None:
    with contextlib.suppress(DecodeError):
        default_decoder("PIL")({f".{extension}": FILES[extension][:kept] + data})


def test_gzip_data_cut_at_any_byte_is_an_error() -> None:
    packed = gzip.compress(b"abc" * 50)

    for length in range(len(packed)):
        with pytest.raises(DecodeError, match=r"'\.txt\.gz'"):
            decode("txt.gz", packed[:length])


def test_consecutive_gzip_members_are_joined_and_trailing_zeros_ignored() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two")

    assert decode("txt.gz", packed) == "one two"
    assert decode("txt.gz", packed + bytes(512)) == "one two"


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"text") + b"garbage",
        gzip.compress(b"text") + gzip.compress(b"more")[:-1],
        gzip.compress(b"text")[:-5] + b"\0\1\2\3\4",
        zlib.compress(b"text"),
        b"text",
        b"\x1f\x8b\x08\xff" + bytes(20),
        bytes(20),
    ],
    ids=["garbage behind", "second member cut", "checksum", "zlib", "plain", "flags", "zeros"],
)
def test_invalid_gzip_data_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"'\.txt\.gz'"):
        decode("txt.gz", data)


def test_gzip_data_larger_than_the_limit_is_an_error_that_says_what_to_do() -> None:
    assert gunzip(bomb(1000), limit=1000) == bytes(1000)
    with pytest.raises(DecodeError, match=r"more than the 999 bytes.*decoders="):
        gunzip(bomb(1000), limit=999)
    with pytest.raises(DecodeError, match="more than the 999 bytes"):
        gunzip(bomb(500) * 2, limit=999)
    large = bytes(3_000_000) + b"end"
    assert gunzip(gzip.compress(large)) == large
    with pytest.raises(DecodeError, match="more than the 3000002 bytes"):
        gunzip(gzip.compress(large), limit=3_000_002)
    assert MAX_UNPACKED_BYTES == 2 * 1024**3


@pytest.mark.parametrize(
    "packed", [bomb(100_000_000), bomb(1_000_000) * 100], ids=["one gzip member", "a hundred gzip members"]
)
def test_a_gzip_bomb_takes_no_more_memory_than_the_limit(packed: bytes) -> None:
    limit = 10_000_000

    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than the 10000000 bytes"):
            gunzip(packed, limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < limit + 4_000_000


def test_a_truncated_plain_text_ppm_is_an_error() -> None:
    with pytest.raises(DecodeError, match=r"'\.ppm'"):
        decode("ppm", b"P3 2 2 255\n1 2 3 4 5 6 7 8 9 10 11")


def test_a_streamed_wav_without_a_length_is_read_to_its_end() -> None:
    streamed = bytearray(audio(TONE, "WAV", subtype="PCM_16"))
    data_size = streamed.index(b"data") + 4
    streamed[4:8] = streamed[data_size : data_size + 4] = b"\xff\xff\xff\xff"

    samples, rate = decode("wav", bytes(streamed))

    assert (tuple(samples.shape), rate) == ((1, 3000), 48000)


def test_long_ogg_streams_cut_between_pages_are_an_error() -> None:
    for subtype in ("OPUS", "VORBIS"):
        data = audio(np.random.default_rng(0).random(150_000).astype(np.float32) - 0.5, "OGG", subtype=subtype)
        pages = [place for place in range(len(data)) if data.startswith(b"OggS", place)]
        assert len(pages) > 4
        for page in pages[3:]:
            with pytest.raises(DecodeError, match="it is truncated"):
                decode("opus", data[:page])


def test_a_truncated_mp3_with_a_frame_count_is_an_error() -> None:
    data = audio(np.random.default_rng(0).random(100_000).astype(np.float32) - 0.5, "MP3")

    for length in (len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(DecodeError, match=r"it is truncated: \d+ frames of 100000"):
            decode("mp3", data[:length])
        with pytest.raises(DecodeError, match=r"it is truncated"):
            decode("mp3", b"ID3\3\0\0\0\0\1\0" + bytes(128) + data[:length])


def test_a_flac_that_states_more_frames_than_memory_is_an_error() -> None:
    data = bytearray(AUDIO["flac"])
    data[21] |= 0x0F
    data[22:26] = b"\xff\xff\xff\xff"

    with pytest.raises(DecodeError, match=r"'\.flac'"):
        decode("flac", bytes(data))


@pytest.mark.parametrize("extension", ["jpg", "wav"])
def test_the_error_for_a_web_page_in_place_of_a_file_has_no_memory_addresses(extension: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(extension, b"<html>404</html>")

    assert str(caught.value) == f"field '.{extension}': cannot decode: " + (
        "not an image that Pillow can read; its 16 bytes begin with b'<html>404</html>'"
        if extension == "jpg"
        else "Format not recognised."
    )


def test_audio_that_takes_more_than_the_limit_is_an_error() -> None:
    with pytest.raises(ValueError, match="more than the 11999 bytes"):
        decode_audio(AUDIO["flac"], limit=11_999)
    assert decode_audio(AUDIO["flac"], limit=12_000)[0].shape == (1, 3000)


def test_a_path_in_a_field_is_not_opened() -> None:
    with pytest.raises(DecodeError):
        decode("png", b"/etc/hostname")
    assert not isinstance(decode("txt", b"/etc/hostname"), (PIL.Image.Image, io.IOBase))
