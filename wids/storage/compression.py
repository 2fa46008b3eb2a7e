"""Compressed shards to plain tars, while they stream into the disk cache.

The first bytes of a shard decide, not its name: a `.tar` that is really gzip is unpacked, and a `.tar.gz` that a server
has unpacked in transit is stored as it is. Several gzip members, bzip2 or xz streams or zstd frames in a row, as `cat`
makes them, are one file. Unpacked bytes are passed on in pieces of bounded size, so that a decompression bomb fills the
disk up to its limit, and not the memory.
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
"""Bytes from the start of a shard that tell how it is compressed: the size of a tar header."""

_PIECE_BYTES = 1 << 20
"""Most bytes that are unpacked at once."""

_ZSTD_INPUT_BYTES = 2048
"""Bytes fed to zstd at once. Its output cannot be bounded: 4 bytes give up to 128 KiB, so these give up to 64 MiB."""


class Sink(Protocol):
    """Receives the bytes of one object in order."""

    def write(self, data: bytes) -> None:
        """Receive the next bytes."""
        ...

    def reset(self) -> None:
        """Discard what was received: the object is sent again from its start."""
        ...

    def finish(self) -> None:
        """Complete the object: all bytes have been received."""
        ...


class Decoder(Protocol):
    """Unpacks one stream; the interface of `bz2.BZ2Decompressor`."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed to produce output."""
        ...

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the stream."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Feed `data`, which is empty unless `needs_input`; return at most about `max_length` unpacked bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Compression:
    """A compression format."""

    name: str
    """Name of the format, for messages, and of the extra that installs its package, if it needs one."""
    suffixes: tuple[str, ...]
    """Suffixes of such tars, in lower case."""
    is_start: Callable[[bytes], bool]
    """Returns whether a stream of this format begins with these bytes."""
    make_decoder: Callable[[], Decoder]
    """Makes the decoder of one stream; raises ImportError when its package is not installed."""


class UnpackingSink:
    """A sink that passes what is written to it on to `target`, unpacked if it is compressed.

    Args:
        target: Receives the plain tar.
        path: Path of the shard, whose suffix says whether it is expected to be compressed.
        name: Name of the shard, for messages.
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
        """Receive the next stored bytes.

        Raises:
            TarFormatError: The compressed stream is damaged.
            FetchError: The package that unpacks it is not installed.
        """
        if self._head is None:
            self._pass_on(data)
            return
        self._head += data
        if len(self._head) >= HEAD_BYTES:
            self._begin(self._head)

    def reset(self) -> None:
        """Discard what was received."""
        self._target.reset()
        self._start()

    def finish(self) -> None:
        """Check that the stream is complete, and finish the target.

        Raises:
            TarFormatError: The stream ends early.
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
                data = data.lstrip(b"\0")  # streams may be padded with zeros, to a tape's block or xz's multiple of 4
                if not data:
                    return
                self._decoder = self._new_decoder(self._compression)
            data = self._feed(self._compression, self._decoder, data)

    def _feed(self, compression: Compression, decoder: Decoder, data: bytes) -> bytes:
        """Unpack up to the end of the stream; return the input after it."""
        while True:
            try:
                piece = decoder.decompress(data, _PIECE_BYTES)
            except Exception as error:  # each decoder has an error type of its own, zstd's is in an optional package
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
            "start; fetch or write the shard again"
        )


class _FileSink:
    """A sink that writes to an open file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        """Append the next bytes."""
        self._file.write(data)

    def reset(self) -> None:
        """Empty the file."""
        self._file.seek(0)
        self._file.truncate()

    def finish(self) -> None:
        """Flush the file."""
        self._file.flush()


def unpack(source: IO[bytes], target: IO[bytes], name: str) -> None:
    """Copy a stream, unpacked if it is compressed.

    Args:
        source: File to read, to its end.
        target: File that receives the plain tar.
        name: Name of the shard, for messages.

    Raises:
        TarFormatError: The compressed stream is damaged.
        FetchError: The package that unpacks it is not installed.
    """
    sink = UnpackingSink(_FileSink(target), "", name)
    while data := source.read(_PIECE_BYTES):
        sink.write(data)
    sink.finish()


def sniff(head: bytes) -> Compression | None:
    r"""Return the compression of a file that begins with `head`; None when it is not compressed.

    Args:
        head: The first `HEAD_BYTES` bytes, or all bytes of a shorter file.

    Examples:
        >>> sniff(b"\x1f\x8b\x08\x00").name
        'gzip'
        >>> sniff(b"BZh9-may-name-a-file-in-a-tar.txt") is None
        True
    """
    if _looks_like_tar(head):
        return None  # a tar begins with the name of its first member, which may look like any signature
    return next((compression for compression in _COMPRESSIONS if compression.is_start(head)), None)


def compression_of_name(path: str) -> Compression | None:
    """Return the compression that the suffix of a name stands for; None when it stands for none.

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
        # When the piece is full, more output may be pending although all input is consumed.
        self.needs_input = not self._stream.unconsumed_tail and len(piece) < max_length
        return piece

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data


class _ZstdDecoder:
    """`zstandard`'s decompressobj, fed in small pieces, with the interface of `bz2.BZ2Decompressor`."""

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
    # The signature is three letters only, with which the name of a tar's first member may begin. After the block size
    # follows the magic of a block (digits of pi) or, in an empty file, of the end (digits of the square root of pi).
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
