"""The decoding step of a dataset: each field by its last extension, `.gz` unpacked before."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from wids.decode import basic, images
from wids.errors import DecodeError

FieldDecoder = Callable[[bytes], Any]

_ABSENT = object()


class Decoder:
    """Decodes the fields of a sample in place.

    Fields are looked up by their last extension, in any case: `.seg.PNG` is decoded as `.png`, `.json.gz` is unpacked and
    decoded under its own name. A field that no decoder is known for stays as it is.

    Args:
        spec: What images become, a name in `wids.decode.images.SPECS`; None leaves them alone.
        lazy: Leave loading of Pillow images to the user.
        allow_pickle: Allow what can run code: `.pkl`, object arrays, full `.pt` files.
        decoders: The user's own, `{".ext": function of bytes}`, before all others. What they raise passes unchanged.

    Raises:
        ValueError: `spec` is unknown, or `lazy` does not go with it.
    """

    def __init__(
        self,
        spec: str | None = "PIL",
        *,
        lazy: bool = False,
        allow_pickle: bool = False,
        decoders: Mapping[str, FieldDecoder] | None = None,
    ) -> None:
        if spec is not None and spec not in images.SPECS:
            raise ValueError(f"format is {spec!r}; it must be one of {', '.join(images.SPECS)}")
        if lazy and spec != "PIL":
            raise ValueError(f"lazy goes with format 'PIL' only, not with {spec!r}")
        self._spec = spec
        self._lazy = lazy
        self._allow_pickle = allow_pickle
        self._own = {name.lower().lstrip("."): function for name, function in (decoders or {}).items()}
        self._known: dict[str, _Found] = {}

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Decode a sample's fields in place, and return it.

        Raises:
            DecodeError: A field's bytes are not what its extension says; names key and field.
            ModuleNotFoundError: A decoder's package is missing; says how to install it.
        """
        for field, value in sample.items():
            if field.startswith("."):
                data = _read(value)
                if data is not None:
                    found = self._known.get(field) or self._find(field)
                    if found.function is not None:
                        sample[field] = self._decode(found, data, field, sample)
        return sample

    def _decode(self, found: _Found, data: bytes, field: str, sample: dict[str, Any]) -> Any:
        assert found.function is not None, "the caller checks"
        try:
            if found.is_packed:
                data = gzip.decompress(data)
            if not found.is_own:
                return found.function(data)
        except (ImportError, MemoryError):
            raise
        except Exception as error:  # codecs raise what they like; whatever it is, these bytes are not right
            key = f"key {sample['__key__']!r}, " if "__key__" in sample else ""
            raise DecodeError(f"{key}field {field!r}: cannot decode: {error or type(error).__name__}") from error
        return found.function(data)

    def _find(self, field: str) -> _Found:
        """Return how a field is decoded, and remember it."""
        extensions = field.lower().lstrip(".").split(".")
        # The user's own decoder may name the whole field, as in ".seg.png" or ".json.gz".
        own = self._own.get(".".join(extensions))
        packed = own is None and extensions[-1] == "gz"
        last = (extensions[-2] if len(extensions) > 1 else "") if packed else extensions[-1]
        own = own or self._own.get(last)
        found = _Found(own or self._built_in(last), packed, own is not None)
        self._known[field] = found
        return found

    def _built_in(self, extension: str) -> FieldDecoder | None:
        if extension in images.EXTENSIONS:
            return partial(images.decode_image, spec=self._spec, lazy=self._lazy) if self._spec else None
        if extension in basic.WITH_PICKLE:
            return partial(basic.WITH_PICKLE[extension], allow_pickle=self._allow_pickle)
        return basic.PLAIN.get(extension)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}


class _Found:
    """How one field is decoded."""

    __slots__ = ("function", "is_own", "is_packed")

    def __init__(self, function: FieldDecoder | None, is_packed: bool, is_own: bool) -> None:
        self.function = function
        self.is_packed = is_packed
        self.is_own = is_own


def default_decoder(
    first: Any = _ABSENT,
    /,
    format: Any = "PIL",  # noqa: A002  # 0.1.11's name
    *,
    lazy: bool = False,
    allow_pickle: bool = False,
    decoders: Mapping[str, FieldDecoder] | None = None,
) -> Any:
    """Return the decoding step for an image format.

    0.1.11's way is understood too: `default_decoder(sample, "PIL")` decodes a sample and returns it.

    Args:
        first: The format, or a sample.
        format: `"PIL"`, `"numpy"`, or an image spec of webdataset; None or False leaves images alone.
        lazy: Leave loading of Pillow images to the user.
        allow_pickle: Allow what can run code.
        decoders: The user's own, `{".ext": function of bytes}`.

    Raises:
        ValueError: The format is unknown; lists those that are.

    Examples:
        >>> decode = default_decoder("PIL", decoders={".upper": lambda data: data.decode().upper()})
        >>> decode({".cls": b"3", ".upper": b"abc"})
        {'.cls': 3, '.upper': 'ABC'}
    """
    is_sample = isinstance(first, Mapping)
    spec = format if is_sample or first is _ABSENT else first
    decoder = Decoder("PIL" if spec is True else spec or None, lazy=lazy, allow_pickle=allow_pickle, decoders=decoders)
    return decoder(dict(first)) if is_sample else decoder


def _read(value: Any) -> bytes | None:
    """Return a field's bytes, None when it is decoded already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    if hasattr(value, "getvalue"):
        data = value.getvalue()
        return data if isinstance(data, bytes) else None
    if hasattr(value, "read"):
        data = value.read()
        return data if isinstance(data, bytes) else None
    return None
