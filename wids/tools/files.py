"""Descriptors and other small files on disk: written whole or not at all."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from wids.descriptor.urls import is_tar, local_path
from wids.errors import DescriptorError, WidsError, redact, remedy_for
from wids.index_files import SUFFIX
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def check_place(path: Path) -> None:
    """Check that a descriptor could be written here, before the work for it is done.

    Raises:
        DescriptorError: The folder is missing, or the path is one, or the name is one of a shard or an index pack; or it is
            a URL.
    """
    refuse_url(path)
    if not path.parent.is_dir():
        raise DescriptorError(f"{path}: there is no folder {path.parent}; make it, or name another file")
    if path.is_dir():
        raise DescriptorError(f"{path}: is a folder; name the file to write")
    if is_tar(path.name):
        raise DescriptorError(f"{path}: is a name for a shard; name the descriptor {path.name.partition('.')[0]}.json")
    if path.suffix == SUFFIX:
        raise DescriptorError(f"{path}: {SUFFIX} is the extension of index packs; name the descriptor {path.stem}.json")


def refuse_url(path: Path) -> None:
    """Check that a path to write to is not the URL of a store.

    Raises:
        DescriptorError: It is one.
    """
    # Path has taken one of the two slashes away.
    if path.parts and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+:", path.parts[0]) and not path.parent.is_dir():
        url = f"{path.parts[0]}//{'/' * (path.parts[0] == 'file:')}{'/'.join(path.parts[1:])}"
        raise DescriptorError(
            f"{redact(url)}: is a URL, and only local files are written here; name one, and upload it"
        )


def refuse_shards(path: Path, urls: Iterable[str]) -> None:
    """Check that a descriptor would not be written over one of its shards, which may have another name or be linked to.

    Raises:
        DescriptorError: It would.
    """
    if not path.exists():
        return
    for url in urls:
        shard = local_path(url)
        if shard is not None and os.path.exists(shard) and path.samefile(shard):  # noqa: PTH110 - of any text
            raise DescriptorError(f"{path}: is the shard {url}, which would be replaced; name another file")


def make_folder(path: Path) -> None:
    """Make a folder, with those around it, where it is not there.

    Raises:
        DescriptorError: It is the URL of one in a store.
        OSError: It cannot be made; names it, and what to do.
    """
    refuse_url(path)
    with explaining(str(path)):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise NotADirectoryError(
                f"{path}: cannot be created because a file is in the way; name another folder"
            ) from error


@contextmanager
def explaining(url: str) -> Iterator[None]:
    """Add to an error of the operating system which file it is about.

    Raises:
        OSError: The file cannot be written; names it, and what to do.
    """
    try:
        yield
    except WidsError:
        raise
    except OSError as error:
        if error.errno is None:  # it has been explained already, for a file of an inner block
            raise
        raise OSError(
            f"{redact(url)}: cannot be written: {error.strerror}; {remedy_for(error, 'write elsewhere')}"
        ) from error


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name only when the block ends; two writers do not mix.

    A link stays, and what it points to is replaced; permissions stay what they were.

    Raises:
        OSError: It cannot be written; what was there before is untouched.
    """
    target = Path(os.path.realpath(path))
    with explaining(str(path)), whole_file(target) as file:
        yield file
        if target.exists():
            os.fchmod(file.fileno(), target.stat().st_mode & 0o777)


def write_file(path: Path, data: bytes) -> None:
    """Write a file as `writing` does.

    Raises:
        OSError: It cannot be written; what was there before is untouched.
    """
    with writing(path) as file:
        file.write(data)


def encode_json(content: Mapping[str, Any], name: str) -> bytes:
    """Return the bytes of a descriptor's file.

    Raises:
        DescriptorError: It holds what JSON cannot hold.
    """
    try:
        return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise DescriptorError(
            f"{name}: cannot be written, because JSON cannot hold one of its values: {error}; give another one"
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a descriptor; another process never sees half of it.

    Raises:
        DescriptorError: It holds text that JSON cannot hold.
        OSError: It cannot be written; what was there before is untouched.
    """
    write_file(path, encode_json(content, str(path)))
