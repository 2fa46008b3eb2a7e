"""The decoding step of a dataset: each field by its last extension, `.gz` unpacked before."""

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
"""Fields are remembered up to here: keys with dots in them can make as many fields as there are samples."""

P = TypeVar("P")

_LONGEST_TEXT = 300
"""Characters of a library's message that go into ours."""


class OwnDecoderError(DecodeError):
    """A decoder that the user gave raised something; no other sample is taken in place of its sample."""


class ByField(ABC, Generic[P]):
    """What is done with a field, found out when it is met first and then remembered; pickles without that."""

    def __init__(self) -> None:
        self._known: dict[str, P] = {}

    @abstractmethod
    def _plan(self, field: str) -> P:
        """Return what is done with a field."""

    def _remember(self, field: str) -> P:
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        plan = self._known[field] = self._plan(field)
        return plan

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}


class Decoder(ByField["_Plan"]):
    """Decodes the fields of a sample in place.

    Fields are looked up by their last extension, in any case: `.seg.PNG` is decoded as `.png`, `.json.gz` is unpacked and
    decoded under its own name. A field that no decoder is known for stays as it is, but for being unpacked; a field `.gz`
    stays packed, for nothing says what is in it.

    Args:
        spec: What images become, a name in `wids.decode.images.SPECS`; None leaves them alone.
        lazy: Leave loading of Pillow images to the user.
        size: Pixels that the shorter side of an image becomes, or its `(height, width)`; None leaves sizes alone.
        jpeg: What decodes JPEGs for specs in RGB: `"pillow"` or `"simplejpeg"`.
        allow_pickle: Allow what can run code: `.pkl`, object arrays, full `.pt` files.
        decoders: The user's own, `{".ext": function of bytes}`, before all others. `".seg.png"` takes fields that end so,
            the longest name first; one that names `.gz` itself (`".json.gz"`) gets the packed bytes.

    Raises:
        ValueError: `spec` or `jpeg` is unknown, `size` is none, `lazy` does not go with them, or two of `decoders` are for
            the same extension.
        TypeError: One of `decoders` is no function.
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
            raise ValueError("lazy, size and jpeg go with a format for images; none was given")
        self._image = None if spec is None else images.ImageDecoder(spec, lazy=lazy, size=size, jpeg=jpeg)
        self._allow_pickle = allow_pickle
        self._own = by_extension(decoders or {}, "decoders")
        super().__init__()

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Decode a sample's fields in place, and return it.

        Raises:
            DecodeError: A field's bytes are not what its extension says, or a decoder of the user's own raised; names
                key and field.
            ModuleNotFoundError: A decoder's package is missing; names the field and says how to install it.
        """
        for field, value in sample.items():
            if field.startswith("."):
                plan = self._known.get(field) or self._remember(field)
                if plan.function is not None:
                    sample[field] = self._decode(plan, plan.function, value, field, sample)
        return sample

    def _decode(self, plan: _Plan, function: FieldDecoder, value: Any, field: str, sample: dict[str, Any]) -> Any:
        data = read_field(value)
        if data is None:  # it is decoded already
            return value
        try:
            return function(gunzip(data) if plan.is_packed else data)
        except MemoryError:
            raise
        except Exception as error:  # codecs raise what they like; whatever it is, these bytes are not right
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
            function = io.BytesIO  # what an undecoded field is
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
    """None when the field stays as it is."""
    is_own: bool = False
    """Whether `function` is the user's."""
    is_packed: bool = False
    """Whether the field is unpacked before."""


def by_extension(functions: Mapping[str, Callable[[Any], Any]], argument: str) -> dict[str, Callable[[Any], Any]]:
    """Return the user's functions by extension, in lower case and without its dot.

    Args:
        functions: By extension.
        argument: What the user calls them, for messages.

    Raises:
        TypeError: One is no function.
        ValueError: Two are for the same extension, or one for none.
    """
    found: dict[str, Callable[[Any], Any]] = {}
    for name, function in functions.items():
        extension = name.lower().lstrip(".")
        if not callable(function):
            raise TypeError(f"{argument}[{name!r}] is {function!r}; it must be a function of one argument")
        if not extension or extension in found:
            raise ValueError(
                f"{argument}[{name!r}] " + ("is a second one for it" if extension else "names no extension")
            )
        found[extension] = function
    return found


def find_own(functions: Mapping[str, Callable[[Any], Any]], name: str) -> Callable[[Any], Any] | None:
    """Return the function for the longest end of a field's name that there is one for.

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
    """Return a field's bytes, None when it is decoded already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    read = getattr(value, "getvalue", None) or getattr(value, "read", None)
    data = read() if callable(read) else None
    return data if isinstance(data, bytes) else None


def shorten(error: Exception) -> str:
    """Return a library's message for one line of ours; it may hold whole headers and stack traces, and is chained."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _locate(error: Exception, plan: _Plan, field: str, sample: dict[str, Any]) -> Exception:
    """Return what is raised for an error, with its place."""
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

    0.1.11's way is understood too: `default_decoder(sample, "PIL")` gives the sample decoded. There `format` may be in any
    case, so that `"pil"` means `"PIL"`; `default_decoder("pil")` is webdataset's `pil`, which converts to RGB.

    Args:
        sample: The format, or a sample.
        format: `"PIL"`, `"numpy"`, or an image spec of webdataset; None or False leaves images alone.
        gz_update_key: With a sample: give unpacked fields the name without `.gz`.
        lazy: Leave loading of Pillow images to the user.
        size: Pixels that the shorter side of each image becomes, or `(height, width)`, scaled by Pillow's bicubic filter; a
            large JPEG is decoded at a fraction of its size then, in a fraction of the time. Masks of labels, which must not
            be mixed, want a decoder of their own.
        jpeg: What decodes JPEGs for specs in RGB: `"pillow"`, or `"simplejpeg"`, which gives the same pixels in two thirds
            of the time.
        allow_pickle: Allow what can run code.
        decoders: The user's own, `{".ext": function of bytes}`. A function that raises `DecodeError` says that the bytes
            are damaged; anything else that it raises is an error of its own, which no `on_error` passes over.

    Raises:
        ValueError: The format is unknown, lists those that are; or another argument does not go with it.

    Examples:
        >>> decode = default_decoder("PIL", decoders={".upper": lambda data: data.decode().upper()})
        >>> decode({".cls": b"3", ".upper": b"abc"})
        {'.cls': 3, '.upper': 'ABC'}
    """
    if not isinstance(sample, Mapping):
        if gz_update_key:
            raise ValueError("gz_update_key goes with a sample only")
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
    """Return the same decoder for every sample that is decoded in 0.1.11's way."""
    return Decoder(spec, lazy=lazy, size=size, jpeg=jpeg, allow_pickle=allow_pickle)


def rename_unpacked(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the sample with `.gz` taken off its fields' names; a field `.gz` keeps it.

    Raises:
        DecodeError: The sample has a field of that name already.
    """
    renamed: dict[str, Any] = {}
    for field, value in sample.items():
        name = field[:-3] if is_packed(field) else field
        if name in renamed or (name != field and name in sample):
            raise DecodeError(f"key {sample.get('__key__')!r}: unpacked, two fields are called {name!r}")
        renamed[name] = value
    return renamed


def is_packed(field: str) -> bool:
    """Tell whether a field is something with `.gz` behind it.

    Examples:
        >>> is_packed(".json.GZ"), is_packed(".gz"), is_packed("__key__.json.gz")
        (True, False, False)
    """
    return field.startswith(".") and len(field) > 4 and field.lower().endswith(".gz")
