"""Compressed shards become plain tars while they stream into the disk cache.

What a shard is, its first bytes say, not its name: a `.tar` that is really gzip is unpacked, and a `.tar.gz` that a
server has unpacked on the way is taken as it comes. Several gzip members, bzip2 or xz streams or zstd frames in a row
are one file, as `cat` makes them. Unpacked bytes pass on in pieces of bounded size, so that a bomb meets the limit of
the disk and not that of the memory.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from wids.errors import FetchError, TarFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_BYTES = 512
"""Bytes from the start of a shard that tell how it is compressed: a tar header."""

_PIECE_BYTES = 1 << 20
"""Unpacked at once."""

_ZSTD_INPUT_BYTES = 2048
"""Fed to zstd at once, whose output cannot be bounded: 4 bytes make up to 128 KiB, so these make at most 64 MiB."""


class Sink(Protocol):
    """Takes the bytes of one object in order."""

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        ...

    def reset(self) -> None:
        """Forget what came: the object begins anew."""
        ...

    def finish(self) -> None:
        """Everything has come."""
        ...


class Decoder(Protocol):
    """Unpacks one stream; the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes out of what was fed."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What was fed beyond the end of the stream."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Feed `data`, which is empty unless `needs_input`, and return about `max_length` bytes at most."""
        ...


@dataclass(frozen=True, slots=True)
class Compression:
    """One way to compress a file."""

    name: str
    """For messages."""
    suffixes: tuple[str, ...]
    """How the names of such tars end."""
    is_start: Callable[[bytes], bool]
    """Whether these bytes begin such a stream."""
    make_decoder: Callable[[], Decoder]
    """Makes what unpacks one stream; raises ImportError where a package is missing."""


class UnpackingSink:
    """Passes on to `target` what is written to it, unpacked where it is compressed.

    Args:
        target: Takes the plain tar.
        path: Whose ending promises a compression, or not.
        name: Of the shard, for messages.
    """

    def __init__(self, target: Sink, path: str, name: str) -> None:
        self._target = target
        self._promised = compression_of_name(path)
        self._name = name
        self._start()

    def _start(self) -> None:
        self._head: bytes | None = b""
        self._compression: Compression | None = None
        self._decoder: Decoder | None = None
        self._unpacked_bytes = 0

    def write(self, data: bytes) -> None:
        """Take the next stored bytes.

        Raises:
            TarFormatError: The compressed stream is damaged.
            FetchError: What unpacks it is not installed.
        """
        if self._head is None:
            self._pass_on(data)
            return
        self._head += data
        if len(self._head) >= HEAD_BYTES:
            self._begin(self._head)

    def reset(self) -> None:
        """Begin anew."""
        self._target.reset()
        self._start()

    def finish(self) -> None:
        """Check that the stream is whole, and finish the target.

        Raises:
            TarFormatError: It ends early.
        """
        if self._head is not None:
            self._begin(self._head)
        if self._compression is not None and self._decoder is not None and not self._decoder.eof:
            raise self._damaged(self._compression, "ends early")
        self._target.finish()

    def _begin(self, head: bytes) -> None:
        self._head = None
        self._compression = sniff(head)
        if self._compression is None and self._promised is not None and not _looks_like_tar(head):
            raise self._damaged(self._promised, f"begins with the bytes {head[:6].hex(' ') or '(none)'}")
        self._pass_on(head)

    def _pass_on(self, data: bytes) -> None:
        if self._compression is None:
            self._target.write(data)
            return
        while data:
            if self._decoder is None:
                self._decoder = self._new_decoder(self._compression)
            elif self._decoder.eof:
                data = data.lstrip(b"\0")  # zeros between streams fill up a tape's block, or xz to a multiple of 4
                if not data:
                    return
                self._decoder = self._new_decoder(self._compression)
            data = self._feed(self._compression, self._decoder, data)

    def _feed(self, compression: Compression, decoder: Decoder, data: bytes) -> bytes:
        """Unpack as far as the stream goes; return what is left behind its end."""
        while True:
            try:
                piece = decoder.decompress(data, _PIECE_BYTES)
            except (
                Exception
            ) as error:  # each decoder has an exception of its own, zstd's comes from an optional package
                raise self._damaged(compression, f"is damaged ({error})") from error
            self._unpacked_bytes += len(piece)
            if piece:
                self._target.write(piece)
            if decoder.eof:
                return decoder.unused_data
            if decoder.needs_input:
                return b""
            data = b""

    def _new_decoder(self, compression: Compression) -> Decoder:
        try:
            return compression.make_decoder()
        except ImportError as error:
            raise FetchError(
                f"{self._name}: is compressed with {compression.name}, which needs a package that is not installed; "
                f"run: pip install 'wids[{compression.name}]'"
            ) from error

    def _damaged(self, compression: Compression, how: str) -> TarFormatError:
        return TarFormatError(
            f"{self._name}: its {compression.name} stream {how}, {self._unpacked_bytes} unpacked bytes after its "
            "start; fetch the shard again, or make it anew"
        )


class _FileSink:
    """A sink that is a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        """Append."""
        self._file.write(data)

    def reset(self) -> None:
        """Begin anew."""
        self._file.seek(0)
        self._file.truncate()

    def finish(self) -> None:
        """Have it where others find it."""
        self._file.flush()


def unpack(source: IO[bytes], target: IO[bytes], name: str) -> None:
    """Copy a stream, unpacked where it is compressed.

    Args:
        source: Read to its end.
        target: Takes the plain tar.
        name: Of the shard, for messages.

    Raises:
        TarFormatError: The compressed stream is damaged.
        FetchError: What unpacks it is not installed.
    """
    sink = UnpackingSink(_FileSink(target), "", name)
    while data := source.read(_PIECE_BYTES):
        sink.write(data)
    sink.finish()


def sniff(head: bytes) -> Compression | None:
    r"""Return how a file is compressed that begins with `head`; None for not at all.

    Args:
        head: `HEAD_BYTES`, or all there is of a shorter file.

    Examples:
        >>> sniff(b"\x1f\x8b\x08\x00").name
        'gzip'
        >>> sniff(b"BZh9-may-name-a-file-in-a-tar.txt") is None
        True
    """
    if _looks_like_tar(head):
        return None  # the name of its first member may begin with any bytes
    return next((compression for compression in _COMPRESSIONS if compression.is_start(head)), None)


def compression_of_name(path: str) -> Compression | None:
    """Return what the ending of a name promises; None where it promises nothing.

    Examples:
        >>> compression_of_name("train-0000.tar.ZST").name
        'zstd'
        >>> compression_of_name("train-0000.tar") is None
        True
    """
    lower = path.lower()
    return next((compression for compression in _COMPRESSIONS if lower.endswith(compression.suffixes)), None)


def _looks_like_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"  # the magic of POSIX and of GNU tar


class _GzipDecoder:
    """`zlib.decompressobj` with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)  # 16: with a gzip header and its checksum
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._stream.decompress(data or self._stream.unconsumed_tail, max_length)
        # A full piece may have more behind it, although all input is used.
        self.needs_input = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


class _ZstdDecoder:
    """`zstandard`'s decompressobj, fed in pieces, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        import zstandard

        self._stream: Any = zstandard.ZstdDecompressor().decompressobj()
        self._input = memoryview(b"")

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if data:
            self._input = memoryview(data)
        piece: bytes = self._stream.decompress(self._input[:_ZSTD_INPUT_BYTES])
        self._input = self._input[_ZSTD_INPUT_BYTES:]
        return piece

    @property
    def eof(self) -> bool:
        return bool(self._stream.eof)

    @property
    def needs_input(self) -> bool:
        return not self._input

    @property
    def unused_data(self) -> bytes:
        return bytes(self._stream.unused_data) + bytes(self._input)


def _starts_bzip2(head: bytes) -> bool:
    # The signature alone is three letters, which the name of a tar's first member may begin with; a block's (pi), or,
    # in an empty file, the end's (the square root of pi), follows the block size.
    return head[:3] == b"BZh" and head[4:10] in {b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"}


def _starts_zstd(head: bytes) -> bool:
    # RFC 8878, sections 3.1.1 and 3.1.2: a frame, or a skippable one before it.
    return head[:4] == b"\x28\xb5\x2f\xfd" or (head[1:4] == b"\x2a\x4d\x18" and head[0] >> 4 == 5)


_COMPRESSIONS = (
    Compression("gzip", (".tar.gz", ".tgz"), lambda head: head.startswith(b"\x1f\x8b\x08"), _GzipDecoder),
    Compression("bzip2", (".tar.bz2", ".tbz2", ".tbz"), _starts_bzip2, bz2.BZ2Decompressor),
    Compression(
        "xz",
        (".tar.xz", ".txz"),
        lambda head: head.startswith(b"\xfd7zXZ\x00"),
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    ),
    Compression("zstd", (".tar.zst", ".tzst"), _starts_zstd, _ZstdDecoder),
)
