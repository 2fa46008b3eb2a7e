"""The decoding step of a dataset: each field is decoded by its last extension, after `.gz` is unpacked."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from wids.decode import basic, images
from wids.decode.unpack import gunzip
from wids.errors import DecodeError

FieldDecoder = Callable[[bytes], Any]

_ABSENT = object()

_MOST_REMEMBERED = 1000
"""The most fields to remember: where keys contain dots, every sample can have field names of its own."""

P = TypeVar("P")

_LONGEST_TEXT = 300
"""The most characters of a library's message that are quoted in ours."""


class OwnDecoderError(DecodeError):
    """A decoder that the user gave raised an error other than `DecodeError`.

    That is a bug rather than damaged data, so `on_error` does not replace the sample.
    """


class ByField(ABC, Generic[P]):
    """Base class that remembers what to do with each field, so that it is decided only once; pickles without it."""

    def __init__(self) -> None:
        self._known: dict[str, P] = {}

    @abstractmethod
    def _plan(self, field: str) -> P:
        """Decide what to do with a field."""

    def _remember(self, field: str) -> P:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        plan = self._known[field] = self._plan(field)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}


class Decoder(ByField["_Plan"]):
    """Decodes the fields of a sample in place.

    A field is decoded by its last extension, in any case: `.seg.PNG` as a `.png`. `.json.gz` is unpacked and decoded as
    `.json`, and keeps its name. A field without a known decoder is only unpacked, if it is packed. A field named just `.gz`
    stays packed, because nothing says what is in it.

    Args:
        spec: The form that images are decoded to, a name in `wids.decode.images.SPECS`; None leaves images undecoded.
        lazy: Leave loading of Pillow images to the user.
        size: The size that images are scaled to: the length of the shorter side in pixels, or `(height, width)`; None
            leaves their size as it is.
        jpeg: The library that decodes JPEGs for RGB specs: `"pillow"` or `"simplejpeg"`.
        allow_pickle: Allow formats that can run code: `.pkl`, object arrays, full `.pt` files.
        decoders: The user's own decoders, `{".ext": function of bytes}`, which come before all others. `".seg.png"` applies
            to fields that end in it; of several that apply, the longest name wins. One whose name includes `.gz`, as
            `".json.gz"`, gets the packed bytes.

    Raises:
        ValueError: `spec`, `size` or `jpeg` is invalid, `lazy` cannot be used with them, or two of `decoders` are for the
            same extension.
        TypeError: One of `decoders` is not a function.
    """

    def __init__(
        self,
        spec: str | None = "PIL",
        *,
        lazy: bool = False,
        size: images.Size | None = None,
        jpeg: str = "pillow",
        allow_pickle: bool = False,
        decoders: Mapping[str, FieldDecoder] | None = None,
    ) -> None:
        if spec is None and (lazy or size is not None or jpeg != "pillow"):
            raise ValueError("lazy, size and jpeg need an image format, and none was given")
        self._image = None if spec is None else images.ImageDecoder(spec, lazy=lazy, size=size, jpeg=jpeg)
        self._allow_pickle = allow_pickle
        self._own = by_extension(decoders or {}, "decoders")
        super().__init__()

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Decode a sample's fields in place, and return the sample.

        Raises:
            DecodeError: A field's bytes are not what its extension says, or a decoder of the user's own raised an error;
                the message names key and field.
            ModuleNotFoundError: A package that a decoder needs is missing; the message says how to install it.
        """
        for field, value in sample.items():
            if field.startswith("."):
                plan = self._known.get(field) or self._remember(field)
                if plan.function is not None:
                    sample[field] = self._decode(plan, plan.function, value, field, sample)
        return sample

    def _decode(self, plan: _Plan, function: FieldDecoder, value: Any, field: str, sample: dict[str, Any]) -> Any:
        data = read_field(value)
        if data is None:  # the field is decoded already
            return value
        try:
            return function(gunzip(data) if plan.is_packed else data)
        except MemoryError:
            raise
        except Exception as error:  # codecs raise errors of any type for damaged bytes
            raise _locate(error, plan, field, sample) from error

    def _plan(self, field: str) -> _Plan:
        name = field.lower().lstrip(".")
        own = find_own(self._own, name)
        if own is not None:
            return _Plan(own, is_own=True)
        if not is_packed(field):
            return _Plan(self._find_built_in(name.rpartition(".")[2]))
        name = name.removesuffix(".gz")
        own = find_own(self._own, name)
        if own is not None:
            return _Plan(own, is_own=True, is_packed=True)
        last = name.rpartition(".")[2]
        function = self._find_built_in(last)
        if function is None and last not in images.EXTENSIONS:
            function = io.BytesIO  # the form of all undecoded fields
        return _Plan(function, is_packed=True)

    def _find_built_in(self, extension: str) -> FieldDecoder | None:
        if extension in images.EXTENSIONS:
            return self._image
        if extension in basic.WITH_PICKLE:
            return partial(basic.WITH_PICKLE[extension], allow_pickle=self._allow_pickle)
        return basic.PLAIN.get(extension)


class _Plan(NamedTuple):
    """How one field is decoded."""

    function: FieldDecoder | None
    """The decoder; None if the field stays as it is."""
    is_own: bool = False
    """Whether `function` was given by the user."""
    is_packed: bool = False
    """Whether the field is unpacked before it is decoded."""


def by_extension(functions: Mapping[str, Callable[[Any], Any]], argument: str) -> dict[str, Callable[[Any], Any]]:
    """Return the user's functions by extension, in lower case and without the leading dot.

    Args:
        functions: Functions by extension.
        argument: Name of the argument that they were given as, for messages.

    Raises:
        TypeError: One is not a function.
        ValueError: An extension is empty, or occurs twice.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    for name, function in functions.items():
        extension = name.lower().lstrip(".")
        if not callable(function):
            raise TypeError(f"{argument}[{name!r}] is {function!r}; it must be a function of one argument")
        if not extension:
            raise ValueError(f"{argument}[{name!r}] has no extension in it; give one, as in '.png'")
        if extension in found:
            raise ValueError(
                f"{argument}[{name!r}] is the second one for the extension '.{extension}'; leave one of them out"
            )
        found[extension] = function
    return found


def find_own(functions: Mapping[str, Callable[[Any], Any]], name: str) -> Callable[[Any], Any] | None:
    """Return the function for a field, the one with the longest extension that the name ends in; None if there is none.

    Examples:
        >>> find_own({"png": len, "seg.png": abs}, "left.seg.png") is abs
        True
    """
    while name:
        if name in functions:
            return functions[name]
        name = name.partition(".")[2]
    return None


def read_field(value: Any) -> bytes | None:
    """Return a field's bytes, or None if it is decoded already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    read = getattr(value, "getvalue", None) or getattr(value, "read", None)
    data = read() if callable(read) else None
    return data if isinstance(data, bytes) else None


def shorten(error: Exception) -> str:
    """Return a library's message, on one line and shortened; it may contain whole headers or stack traces."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _locate(error: Exception, plan: _Plan, field: str, sample: dict[str, Any]) -> Exception:
    """Return the exception to raise for a decoder's error; its message names key and field."""
    key = f"key {sample['__key__']!r}, " if "__key__" in sample else ""
    where = f"{key}field {field!r}"
    text = shorten(error)
    if isinstance(error, ImportError):
        return ModuleNotFoundError(f"{where}: {text}", name=error.name)
    if plan.is_own and not isinstance(error, DecodeError):
        return OwnDecoderError(f"{where}: the decoder that you gave raised {type(error).__name__}: {text}")
    return DecodeError(f"{where}: cannot decode: {text or type(error).__name__}")


def default_decoder(
    sample: Any = _ABSENT,
    format: Any = "PIL",  # noqa: A002  # 0.1.11's name
    gz_update_key: bool = False,
    *,
    lazy: bool = False,
    size: images.Size | None = None,
    jpeg: str = "pillow",
    allow_pickle: bool = False,
    decoders: Mapping[str, FieldDecoder] | None = None,
) -> Any:
    """Return the decoding step for an image format.

    The form of 0.1.11 works as well: `default_decoder(sample, "PIL")` returns the sample, decoded. There `format` may be in
    any case, so that `"pil"` means `"PIL"`, whereas `default_decoder("pil")` is webdataset's `pil`, which converts to RGB.

    Args:
        sample: The image format; or a sample, as in 0.1.11.
        format: `"PIL"`, `"numpy"`, or an image spec of webdataset; None or False leaves images undecoded.
        gz_update_key: Remove `.gz` from the names of fields that were unpacked; only with a sample.
        lazy: Leave loading of Pillow images to the user.
        size: The size that images are scaled to, by Pillow's bicubic filter: the length of the shorter side in pixels, or
            `(height, width)`. A large JPEG is then decoded at a fraction of its size, which is much faster. Label masks,
            whose values must not be interpolated, need a decoder of their own.
        jpeg: The library that decodes JPEGs for RGB specs: `"pillow"`, or `"simplejpeg"`, which gives the same pixels in
            two thirds of the time.
        allow_pickle: Allow formats that can run code.
        decoders: The user's own decoders, `{".ext": function of bytes}`. If a function raises `DecodeError`, the bytes count
            as damaged. Any other exception is a bug in the function, which `on_error` does not hide.

    Raises:
        ValueError: The format is unknown, and the message lists those that exist; or another argument cannot be used with it.

    Examples:
        >>> decode = default_decoder("PIL", decoders={".upper": lambda data: data.decode().upper()})
        >>> decode({".cls": b"3", ".upper": b"abc"})
        {'.cls': 3, '.upper': 'ABC'}
    """
    if not isinstance(sample, Mapping):
        if gz_update_key:
            raise ValueError("gz_update_key works only on a sample")
        spec = format if sample is _ABSENT else sample
        return Decoder(_to_spec(spec), lazy=lazy, size=size, jpeg=jpeg, allow_pickle=allow_pickle, decoders=decoders)
    spec = {"pil": "PIL", "numpy": "numpy"}.get(format.lower(), format) if isinstance(format, str) else format
    if decoders is None:
        decode = _remembered_decoder(_to_spec(spec), lazy, size, jpeg, allow_pickle)
    else:
        decode = Decoder(_to_spec(spec), lazy=lazy, size=size, jpeg=jpeg, allow_pickle=allow_pickle, decoders=decoders)
    decoded = decode(dict(sample))
    return rename_unpacked(decoded) if gz_update_key else decoded


def _to_spec(format: Any) -> str | None:  # noqa: A002  # 0.1.11's name
    return "PIL" if format is True else format or None


@lru_cache(maxsize=16)
def _remembered_decoder(
    spec: str | None, lazy: bool, size: images.Size | None, jpeg: str, allow_pickle: bool
) -> Decoder:
    """Return one decoder for all samples that are decoded in the form of 0.1.11."""
    return Decoder(spec, lazy=lazy, size=size, jpeg=jpeg, allow_pickle=allow_pickle)


def rename_unpacked(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with `.gz` removed from the names of its fields; a field named just `.gz` keeps its name.

    Raises:
        DecodeError: The sample has a field with the new name already.
    """
    renamed: dict[str, Any] = {}
    for field, value in sample.items():
        name = field[:-3] if is_packed(field) else field
        if name in renamed or (name != field and name in sample):
            raise DecodeError(
                f"key {sample.get('__key__')!r}: two fields are called {name!r} once they are unpacked; rename one"
            )
        renamed[name] = value
    return renamed


def is_packed(field: str) -> bool:
    """Return whether a field has an extension before `.gz`.

    Examples:
        >>> is_packed(".json.GZ"), is_packed(".gz"), is_packed("__key__.json.gz")
        (True, False, False)
    """
    return field.startswith(".") and len(field) > 4 and field.lower().endswith(".gz")
