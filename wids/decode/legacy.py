"""The decoding functions of 0.1.11, each of which changes a sample in place and returns it.

They can be chained: if `decode_all_gz` has unpacked a field and kept its name, the others decode it all the same.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from wids.decode.decoder import Decoder, is_packed, read_field, rename_unpacked
from wids.decode.images import EXTENSIONS
from wids.decode.unpack import gunzip
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

_BASIC = Decoder(None)
_PIL = Decoder("PIL")
_NUMPY = Decoder("numpy")


def check_keys(sample: dict[str, Any]) -> None:
    """Check that the name of each field begins with a dot or two underscores.

    Raises:
        ValueError: A name does not.
    """
    for name in sample:
        if not name.startswith((".", "__")):
            raise ValueError(f"field {name!r} must begin with '.' or '__'")


def decode_all_gz(sample: dict[str, Any], format: Any = True, update_key: bool = True) -> dict[str, Any]:  # noqa: A002, ARG001
    """Unpack the `.gz` fields of a sample, each to an `io.BytesIO`; a field named just `.gz` stays as it is.

    Args:
        sample: The sample, which is changed in place and returned.
        format: Ignored; 0.1.11 had this argument.
        update_key: Remove `.gz` from the fields' names.

    Raises:
        ValueError: A field does not begin with a dot or two underscores.
        DecodeError: A field is not gzip, or its new name is taken.
    """
    check_keys(sample)
    for field, value in sample.items():
        data = read_field(value) if is_packed(field) else None
        if data is not None:
            try:
                sample[field] = io.BytesIO(gunzip(data))
            except DecodeError as error:
                raise DecodeError(f"key {sample.get('__key__')!r}, field {field!r}: cannot decode: {error}") from error
    if update_key:
        renamed = rename_unpacked(sample)
        sample.clear()
        sample.update(renamed)
    return sample


def decode_basic(sample: dict[str, Any], format: Any = True) -> dict[str, Any]:  # noqa: A002, ARG001
    """Decode all fields but images, in place; `format` is ignored.

    Raises:
        ValueError: A field does not begin with a dot or two underscores.
        DecodeError: A field cannot be decoded.
    """
    check_keys(sample)
    return _decode(sample, _BASIC, [field for field in sample if not _is_image(field)])


def decode_images_to_pil(sample: dict[str, Any], format: Any = True) -> dict[str, Any]:  # noqa: A002, ARG001
    """Decode a sample's images to Pillow images, in place; `format` is ignored.

    Raises:
        ValueError: A field does not begin with a dot or two underscores.
        DecodeError: A field cannot be decoded.
    """
    check_keys(sample)
    return _decode(sample, _PIL, [field for field in sample if _is_image(field)])


def decode_images_to_numpy(sample: dict[str, Any], format: Any = True) -> dict[str, Any]:  # noqa: A002, ARG001
    """Decode a sample's images to numpy arrays, in place; `format` is ignored.

    Raises:
        ValueError: A field does not begin with a dot or two underscores.
        DecodeError: A field cannot be decoded.
    """
    check_keys(sample)
    return _decode(sample, _NUMPY, [field for field in sample if _is_image(field)])


def _is_image(field: str) -> bool:
    name = field[:-3] if is_packed(field) else field
    return field.startswith(".") and name.rpartition(".")[2].lower() in EXTENSIONS


def _decode(sample: dict[str, Any], decoder: Decoder, fields: Iterable[str]) -> dict[str, Any]:
    key = {"__key__": sample["__key__"]} if "__key__" in sample else {}
    for field in fields:
        data = read_field(sample[field])
        if field.startswith(".") and data is not None:
            # decode_all_gz may have unpacked the field and kept its name.
            name = field[:-3] if is_packed(field) and not data.startswith(b"\x1f\x8b") else field
            value = decoder({**key, name: data})[name]
            if value is not data:
                sample[field] = value
    return sample
