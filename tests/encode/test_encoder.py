"""Encoded values decode to the same values; those that would not are refused, naming field and sample."""

from __future__ import annotations

import gzip
import io
import math
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decode.files import ARRAY, PICKLES, PIXELS, RATE, RGB, TONE, VALUES, same
from wids.decode import default_decoder
from wids.decode.basic import PLAIN, WITH_PICKLE
from wids.decode.images import EXTENSIONS
from wids.encode import Encoder
from wids.encode import basic as encoders
from wids.encode.images import FORMATS
from wids.errors import EncodeError

encode = Encoder()
LOSSLESS = {
    "png": RGB,
    "webp": RGB,
    "bmp": RGB,
    "tif": RGB,
    "tiff": RGB,
    "ppm": RGB,
    "pgm": RGB.convert("L"),
    "tga": RGB,
}
LOSSLESS |= {"pbm": RGB.convert("1"), "pnm": RGB, "jp2": RGB, "j2k": RGB}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def decode_encoded(field: str, value: Any, spec: str | None = "PIL", **options: Any) -> Any:
    data = bytes(Encoder(**options)("000", field, value))
    assert data == bytes(Encoder(**options)("000", field, value))  # equal values give equal bytes
    return default_decoder(spec, allow_pickle=options.get("allow_pickle", False))({field: data})[field]


@pytest.mark.parametrize("extension", VALUES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_encoded_value_decodes_to_an_equal_value(extension: str, suffix: str) -> None:
    value = VALUES[extension][1]

    for field in (f".{extension}{suffix}", f".seg.{extension.upper()}{suffix}"):
        assert same(decode_encoded(field, value), value)


@pytest.mark.parametrize("extension", LOSSLESS)
def test_an_image_in_a_lossless_format_decodes_to_an_equal_image(extension: str) -> None:
    image = LOSSLESS[extension]

    assert same(decode_encoded(f".{extension}", image), image)
    assert np.array_equal(np.asarray(decode_encoded(f".{extension}", np.asarray(image))), np.asarray(image))


@pytest.mark.parametrize("extension", sorted(EXTENSIONS - {"ico"}))
def test_an_image_of_any_format_is_decoded_with_little_loss(extension: str) -> None:
    smooth = np.tile(np.arange(0, 255, 2, dtype=np.uint8)[:, None], (1, 96))
    modes = {"pbm": "1", "pgm": "L"}
    image = PIL.Image.fromarray(smooth).convert(modes.get(extension, "RGB"))

    found = decode_encoded(f".{extension}", image)

    assert np.abs(np.asarray(found.convert("L"), int) - np.asarray(image.convert("L"), int)).mean() < 3


def test_arrays_and_tensors_are_encoded_as_images() -> None:
    floats = PIXELS.astype(np.float32) / 255
    for spec, value in (("rgb8", PIXELS), ("rgb", floats), ("torchrgb8", torch.from_numpy(PIXELS).permute(2, 0, 1))):
        assert same(decode_encoded(".png", value, spec), value)
    assert same(decode_encoded(".png", PIXELS[:, :, :1], "l8"), PIXELS[:, :, 0])


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<i4", ">i4"])
@pytest.mark.parametrize("extension", sorted(EXTENSIONS))
def test_an_array_of_16_or_32_bit_pixels_is_encoded_exactly_or_refused(extension: str, dtype: str) -> None:
    value = np.array([[0, 1, 300, 65535], [65534, 256, 255, 1]]).astype(dtype)

    try:
        found = np.asarray(decode_encoded(f".{extension}", value))
    except EncodeError:
        assert extension not in {"tif", "tiff"}
    else:
        assert np.array_equal(found, value)


def test_wav_and_flac_decode_to_the_encoded_sound() -> None:
    stereo = torch.from_numpy(np.stack([TONE, -TONE]))

    samples, rate = decode_encoded(".wav", (stereo, RATE))
    assert same(samples, stereo)
    assert rate == RATE
    samples, rate = decode_encoded(".flac", (stereo, RATE))
    assert rate == RATE
    assert torch.allclose(samples, stereo, atol=2**-23)


@pytest.mark.parametrize("extension", PICKLES)
def test_pickles_are_written_only_if_they_are_allowed(extension: str) -> None:
    assert decode_encoded(f".{extension}", {1: "a"}, allow_pickle=True) == {1: "a"}
    with pytest.raises(EncodeError, match=r"key '000', field '.*': .*allow_pickle=True"):
        encode("000", f".{extension}", {1: "a"})


@pytest.mark.parametrize("field", [".npy", ".npz", ".pt"])
def test_object_arrays_in_array_formats_are_refused(field: str) -> None:
    value = {"a": np.array([{1: 2}], object)} if field == ".npz" else np.array([object()], object)

    with pytest.raises(EncodeError, match=f"field '{field}': cannot encode"):
        encode("000", field, value)


@settings(max_examples=200)
@given(JSON)
def test_encoded_json_decodes_to_an_equal_value(value: Any) -> None:
    assert same(decode_encoded(".json", value), value)
    assert same(decode_encoded(".jsonl", [value, value]), [value, value])


def test_numpy_numbers_and_named_tuples_are_json_as_in_python() -> None:
    class Pair(NamedTuple):
        first: int
        second: list[Any]

    found = decode_encoded(".json", {"a": np.float64(0.1), "b": Pair(1, [np.float64(2)]), "c": np.float64("inf")})

    assert found == {"a": 0.1, "b": [1, [2.0]], "c": math.inf}


@pytest.mark.parametrize("beside", [2**70, "\udcff", None], ids=["a large integer", "a surrogate", "nothing"])
def test_a_json_key_that_is_not_text_is_refused(beside: Any) -> None:
    with pytest.raises(EncodeError, match="Dict key must be str"):
        encode("000", ".json", [{"a": beside}, ({"b": {1: 2}},)])


def test_json_keeps_nan_infinity_null_and_surrogates() -> None:
    found = decode_encoded(".json", {"a": [None, math.nan, -math.inf], "b": "\udcff"})

    assert (found["a"][0], math.isnan(found["a"][1]), found["a"][2], found["b"]) == (None, True, -math.inf, "\udcff")


@pytest.mark.parametrize(
    "value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXcX")[::2], io.BytesIO(b"abc")]
)
def test_bytes_and_files_are_written_unchanged(value: Any) -> None:
    assert bytes(encode("000", ".jpg", value)) == b"abc"
    assert gzip.decompress(encode("000", ".jpg.gz", value)) == b"abc"


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), ()])
def test_a_memoryview_of_an_array_is_accepted_and_its_length_is_in_bytes(shape: tuple[int, ...]) -> None:
    array = np.ones(shape, np.float32)
    own = Encoder({"f32": lambda value: value.data, "io": lambda value: io.BytesIO(value.tobytes())})

    for data in (encode("000", ".bin", array.data), own("000", ".f32", array), own("000", ".io", array)):
        assert (len(data), bytes(data)) == (array.nbytes, array.tobytes())


def test_a_tensor_view_is_saved_without_the_rest_of_its_storage() -> None:
    whole = torch.arange(10000.0).reshape(100, 100)

    for view in (whole[3], whole[:, 3], whole[3:4].requires_grad_()):
        assert bytes(encode("000", ".pt", view)) == bytes(
            encode("000", ".pt", view.detach().clone().requires_grad_(view.requires_grad))
        )
        assert len(encode("000", ".pt", {"a": [(view,)]})) < 3000
        assert torch.equal(decode_encoded(".pt", {"a": [(view,)]})["a"][0][0], view)


def test_gzipped_bytes_are_not_compressed_again() -> None:
    packed = gzip.compress(b"abc")

    assert encode("000", ".txt.gz", packed) is packed


def test_own_encoders_come_first_and_the_longest_extension_wins() -> None:
    own = Encoder({"txt": lambda text: text.upper().encode(), ".seg.png": lambda value: b"%d" % value})

    assert own("000", ".a.TXT", "abc") == b"ABC"
    assert gzip.decompress(own("000", ".txt.gz", "abc")) == b"ABC"
    assert own("000", ".left.seg.png", 3) == b"3"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (".xyz", 3, "there is no encoder for a value of type int; give bytes, or encoders={'.xyz'"),
        (".mp3", (TONE[None], RATE), "there is no encoder"),
        (".cls", 3.5, "cannot encode: 'float' object"),
        (".txt", 3, "it is of type int; text is a str"),
        (".txt", "\ud800", "surrogates not allowed"),
        (".json", {1: 2}, "Dict key must be str"),
        (".json", {1, 2}, "not JSON serializable"),
        (".jsonl", {"a": 1}, "holds a list"),
        (".jpg", "cat.jpg", "an image is one of Pillow's"),
        (".jpg", RGB.convert("RGBA"), "cannot write mode RGBA as JPEG"),
        (".png", PIXELS.astype(np.float32), "outside"),
        (".npz", [ARRAY], "holds a dictionary"),
        (".safetensors", [ARRAY], "holds a dictionary"),
        (".ten", [np.array(["a"])], "an array of dtype"),
        (".wav", TONE, "a pair of samples"),
        (".wav", (TONE, RATE), r"the shape \(3000,\)"),
        (".flac", (3 * TONE[None], RATE), "outside"),
        (".wav", (TONE[None], 44100.5), "its rate is 44100.5; it must be a whole number"),
        (".wav", (TONE[None], 0), "its rate is 0; it must"),
        (".flac", (TONE[None, :0], RATE), "it has no samples"),
        (".msgpack", {(1, 2): 3}, "unhashable"),
        (".npz", {"a\0b": ARRAY}, "would be read back as another"),
        (".npz", {"a.npy": b"abc"}, "would be read back as another"),
        (".safetensors", {"a": ARRAY}, "one of its values is of type ndarray; .safetensors holds a dictionary"),
        (".npy", np.ma.masked_array([1, 2], [True, False]), "would lose its mask"),
        (".ten", [np.ma.masked_array([1, 2], [True, False])], "would lose its mask"),
        (".webp", np.array([[300]], np.uint16), "an image of mode I;16 would lose depth or transparency as WEBP"),
        (".gif", np.array([[300]], np.int32), "an image of mode I would lose depth"),
        (".pgm", np.array([[70000]], np.int32), "an image of mode I would lose depth"),
        (".png", np.array([[-1]], np.int32), "an image of mode I would lose depth"),
        (".ppm", RGB.convert("RGBA"), "an image of mode RGBA would lose depth or transparency as PPM"),
        (".bmp", RGB.convert("RGBA"), "an image of mode RGBA would lose depth or transparency as BMP"),
        (".txt", None, "it is of type NoneType"),
    ],
    ids=lambda part: part if isinstance(part, str) else type(part).__name__,
)
def test_a_value_that_the_format_cannot_hold_is_refused(field: str, value: Any, message: str) -> None:
    with pytest.raises(EncodeError, match=f"^key 'a/b', field '{field}': .*{message}"):
        encode("a/b", field, value)


def test_an_own_encoder_that_returns_no_bytes_is_refused() -> None:
    with pytest.raises(EncodeError, match="returned str; it must return bytes"):
        Encoder({"txt": str})("000", ".txt", 3)
    with pytest.raises(TypeError, match=r"encoders\['txt'\] is 3"):
        Encoder({"txt": 3})  # type: ignore[dict-item]


def test_every_decoded_extension_except_lossy_audio_has_an_encoder() -> None:
    assert {*encoders.PLAIN, *encoders.WITH_PICKLE} - {"html", "htm"} == {*PLAIN, *WITH_PICKLE} - {"mp3", "opus", "ogg"}
    assert set(FORMATS) == EXTENSIONS
