"""Fields are decoded by extension, in any case and after any prefix, compressed or not; bad content is an error."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decode.files import AUDIO, IMAGES, PICKLES, VALUES, same
from wids.decode import default_decoder
from wids.decode.basic import PLAIN, WITH_PICKLE
from wids.decode.images import EXTENSIONS
from wids.errors import DecodeError

decode_sample = default_decoder("PIL")


def decode(field: str, data: Any) -> Any:
    return decode_sample({field: data})[field]


@pytest.mark.parametrize("extension", VALUES)
def test_a_field_is_decoded_by_its_last_extension_in_any_case(extension: str) -> None:
    data, expected = VALUES[extension]

    for field in (f".{extension}", f".{extension.upper()}", f".{extension.title()}", f".seg.left.{extension}"):
        assert same(decode(field, data), expected)


@pytest.mark.parametrize("extension", [*VALUES, *IMAGES, *AUDIO])
def test_a_gzipped_field_is_decoded_and_keeps_its_name(extension: str) -> None:
    data = {**IMAGES, **AUDIO}.get(extension) or VALUES[extension][0]
    fields = (f".{extension}.gz", f".{extension.upper()}.GZ", f".seg.{extension}.gz")

    sample = decode_sample(dict.fromkeys(fields, gzip.compress(data)))

    assert tuple(sample) == fields
    for value in sample.values():
        assert same(value, decode(f".{extension}", data))


def test_every_extension_that_has_a_decoder_has_a_test_file() -> None:
    assert {*VALUES, *AUDIO, *PICKLES} == {*PLAIN, *WITH_PICKLE} - {"msg"}
    assert set(IMAGES) == EXTENSIONS - {"jpe", "jfif", "j2k", "ico", "tga"}


@pytest.mark.parametrize(
    "make",
    [bytes, io.BytesIO, memoryview, bytearray, lambda data: io.BufferedReader(io.BytesIO(data))],
    ids=["bytes", "BytesIO", "memoryview", "bytearray", "file"],
)
def test_a_field_may_be_bytes_a_buffer_or_a_file(make: Any) -> None:
    assert decode(".json", make(b"[1]")) == [1]


def test_decoded_values_and_unknown_fields_stay_unchanged() -> None:
    image = decode(".png", IMAGES["png"])
    unknown = io.BytesIO(b"x")
    sample = {"__key__": "k", ".png": image, ".txt": "text", ".cls": 3, ".npy": np.ones(2), ".json": None, ".xyz": unknown,
              "image.png": b"no field", ".jpg": io.StringIO("text")}  # fmt: skip

    decoded = decode_sample(dict(sample))

    assert all(decoded[name] is sample[name] for name in sample)


def test_a_gzipped_field_of_unknown_type_is_unpacked_unless_named_just_gz() -> None:
    packed = gzip.compress(b"volume")
    bare = io.BytesIO(packed)

    sample = decode_sample({".nii.gz": io.BytesIO(packed), ".gz": bare, ".t1.nii.GZ": packed})

    assert sample[".nii.gz"].read() == b"volume"
    assert sample[".t1.nii.GZ"].read() == b"volume"
    assert sample[".gz"] is bare


def test_without_a_spec_images_stay_undecoded_gzipped_or_not() -> None:
    packed = gzip.compress(IMAGES["png"])

    sample = default_decoder(None)({".png": IMAGES["png"], ".png.gz": packed, ".cls": b"3"})

    assert sample == {".png": IMAGES["png"], ".png.gz": packed, ".cls": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", 3), (" 3\n", 3), ("3.0", 3), ("-3.000", -3), ("3.", 3), ("3.000000000000000000e+00", 3), ("+3", 3), ("1_000", 1000),
     ("٣", 3), ("0003", 3), (str(10**400), 10**400), ("9007199254740991.0", 2**53 - 1)],
)  # fmt: skip
def test_a_class_is_an_int_however_it_is_written(text: str, expected: int) -> None:
    found = decode(".cls", text.encode())

    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize(
    "data",
    [b"3.5", b"nan", b"inf", b"-inf", b"1e400", b"9" * 5000, b"9007199254740993.0", b"1e30", b"", b" ", b"cat", b"3 4", b"0x3",
     b"\xff", b"3\x00", b"\xef\xbb\xbf3", b"True", b"1__0"],
)  # fmt: skip
@pytest.mark.parametrize("extension", ["cls", "cls2", "index", "inx", "id"])
def test_a_class_that_is_not_a_whole_number_is_an_error(extension: str, data: bytes) -> None:
    with pytest.raises(DecodeError, match=rf"'\.{extension}'"):
        decode(f".{extension}", data)


@pytest.mark.parametrize("extension", ["txt", "text", "transcript"])
def test_text_is_decoded_as_utf8_unchanged_and_invalid_utf8_is_an_error(extension: str) -> None:
    assert decode(f".{extension}", "\ufeffä\r\n\0".encode()) == "\ufeffä\r\n\0"
    for wrong in (b"caf\xe9", b"\xff\xfea\0", b"\xed\xa0\x80", b"ab\xc3"):
        with pytest.raises(DecodeError, match="utf-8"):
            decode(f".{extension}", wrong)


@pytest.mark.parametrize(
    "text",
    [b"NaN", b"[Infinity, -Infinity]", b'{"a": 1, "a": 2}', b"100000000000000000000", b'{"id": -9223372036854775809}', b"1e400",
     b"0.1234567890123456789", b'"\\ud800"', b"\xef\xbb\xbf{}", '{"ä": 1}'.encode("utf-16"), b"-0", b"-0.0", b"1E5", b" [ ] ",
     b"18446744073709551616", b"12345678901234567890123.5e-3"],
)  # fmt: skip
def test_json_gives_exactly_what_pythons_reader_gives(text: bytes) -> None:
    assert repr(decode(".json", text)) == repr(json.loads(text))


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200)
@given(json_values, st.booleans())
def test_any_json_is_read_as_python_reads_it(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")

    assert repr(decode(".json", text)) == repr(json.loads(text))


@settings(max_examples=300)
@given(
    st.binary(max_size=40) | st.text(st.sampled_from('[]{}",:0123456789.eE+-tfnNaI\\u \n'), max_size=30).map(str.encode)
)
def test_invalid_json_is_an_error_exactly_where_python_refuses_it(data: bytes) -> None:
    try:
        expected = json.loads(data)
    except ValueError:
        with pytest.raises(DecodeError):
            decode(".json", data)
        return

    assert repr(decode(".json", data)) == repr(expected)


def test_malformed_or_deeply_nested_json_is_an_error() -> None:
    for text in (b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"{bad", b"[1,]", b""):
        with pytest.raises(DecodeError, match=r"'\.json'"):
            decode(".json", text)


def test_the_error_for_bad_json_lines_names_the_line() -> None:
    assert decode(".jsonl", b"") == []
    assert decode(".jsonl", b'1\r\n\n 2 \n{"a":\r3}') == [1, 2, {"a": 3}]
    with pytest.raises(DecodeError, match="line 3 cannot be decoded: "):
        decode(".jsonl", b"1\n2\n{bad\n")


@pytest.mark.parametrize(
    "data", [b"\xc1", b"\x92\x01", b"\x01\x02", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xa1\xff", b"", b"\x91" * 5000],
    ids=["no type", "cut", "rest", "huge list", "huge bytes", "no utf-8", "empty", "deep"],
)  # fmt: skip
def test_a_damaged_msgpack_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"'\.mp'"):
        decode(".mp", data)


def test_a_decoder_remembers_a_bounded_number_of_fields() -> None:
    decoder = default_decoder()

    for number in range(5000):
        decoder({f".{number}.txt": b""})

    assert len(decoder._known) <= 1000
