"""Values of fields to bytes, by the last extension; those of `.gz` fields are then compressed. The mirror of `wids.decode.decoder`."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from wids.decode.decoder import ByField, by_extension, find_own, is_packed, shorten
from wids.encode import basic, images
from wids.errors import EncodeError

FieldEncoder = Callable[[Any], Any]

_GZIP = b"\x1f\x8b"


class Encoder(ByField["_Plan"]):
    """Encodes one field at a time; a value that is bytes stays as it is.

    `wids.decode.Decoder` gives the same value back wherever the format allows it: JPEG is lossy, and JSON has no tuples. Equal
    values give equal bytes.

    Args:
        encoders: The user's own, `{".ext": function from a value to bytes}`, which come before all others and are looked up as
            decoders are.
        allow_pickle: Allow values that only pickle can hold: `.pkl`, arrays of objects, arbitrary objects in `.pt`.

    Raises:
        ValueError: Two of `encoders` are for the same extension.
        TypeError: One of `encoders` is no function.

    Examples:
        >>> encode = Encoder({".upper": lambda text: text.upper().encode()})
        >>> encode("000", ".cls", 3), encode("000", ".upper", "abc"), encode("000", ".json", {"a": [1, None]})
        (b'3', b'ABC', b'{"a":[1,null]}')
    """

    def __init__(self, encoders: Mapping[str, FieldEncoder] | None = None, *, allow_pickle: bool = False) -> None:
        self._own = by_extension(encoders or {}, "encoders")
        self._allow_pickle = allow_pickle
        super().__init__()

    def __call__(self, key: str, field: str, value: Any) -> bytes | bytearray | memoryview:
        """Return a field's bytes.

        Args:
            key: Of the sample, for messages.
            field: With its dot.
            value: What to encode. `bytes`, `bytearray`, `memoryview` and `io.BytesIO` are taken as they are; for a `.gz` field
                they are compressed unless they begin as gzip does.

        Raises:
            EncodeError: The extension cannot hold the value; names key and field.
            ModuleNotFoundError: An encoder's package is missing; names the field and says how to install it.
        """
        if value.__class__ is bytes and not field.endswith(("z", "Z")):
            return value
        plan = self._known.get(field) or self._remember(field)
        data = _read_bytes(value)
        if data is not None:
            return _pack(data) if plan.is_packed and data[:2] != _GZIP else data
        if plan.function is None:
            raise EncodeError(
                f"key {key!r}, field {field!r}: there is no encoder for a value of type "
                f"{type(value).__name__}; give bytes, or encoders={{{'.' + field.rpartition('.')[2]!r}: function}}"
            )
        try:
            given = plan.function(value)
        except MemoryError:
            raise
        except Exception as error:  # encoders may raise anything; whatever it is, the value does not fit
            raise _locate(error, key, field) from error
        # An array's memory is a memoryview too, whose length is not its bytes.
        data = _read_bytes(given)
        if data is None:
            raise EncodeError(
                f"key {key!r}, field {field!r}: the encoder that you gave returned {type(given).__name__}; it must return bytes"
            )
        return _pack(data) if plan.is_packed else data

    def _plan(self, field: str) -> _Plan:
        name = field.lower().lstrip(".")
        own = find_own(self._own, name)
        if own is not None:
            return _Plan(own)
        packed = is_packed(field)
        name = name.removesuffix(".gz") if packed else name
        own = find_own(self._own, name) if packed else None
        return _Plan(own or self._find_built_in(name.rpartition(".")[2]), is_packed=packed)

    def _find_built_in(self, extension: str) -> FieldEncoder | None:
        if extension in images.FORMATS:
            return partial(images.encode_image, extension=extension)
        if extension in basic.WITH_PICKLE:
            return partial(basic.WITH_PICKLE[extension], allow_pickle=self._allow_pickle)
        return basic.PLAIN.get(extension)


class _Plan(NamedTuple):
    """How one field is encoded."""

    function: FieldEncoder | None
    """None if only bytes are accepted."""
    is_packed: bool = False
    """Whether the bytes are then compressed."""


def _read_bytes(value: Any) -> bytes | bytearray | memoryview | None:
    """Return the bytes of a value that is bytes, or holds them as `io.BytesIO` does; None for any other."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        # What has no bytes cannot be cast in all shapes.
        return value.cast("B") if value.c_contiguous and value.nbytes else value.tobytes()
    read = getattr(value, "getvalue", None)
    data = read() if callable(read) else None
    return data if isinstance(data, bytes) else None


def _pack(data: bytes | bytearray | memoryview) -> bytes:
    # The header of gzip.compress depends on the version of Python; zlib's has no time in it.
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def _locate(error: Exception, key: str, field: str) -> Exception:
    where = f"key {key!r}, field {field!r}"
    text = shorten(error)
    if isinstance(error, ImportError):
        return ModuleNotFoundError(f"{where}: {text}", name=error.name)
    return EncodeError(f"{where}: cannot encode: {text or type(error).__name__}")
