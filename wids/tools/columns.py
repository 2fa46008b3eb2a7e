"""Values in a JSON field of the samples to columns beside the descriptor; each shard is read once, also when a run is killed.

    train.columns/width.arrow             the result, which the descriptor names
    train.columns/.parts-DIGEST/3.arrow   what was found in shard 3, kept until all shards are done; DIGEST is that of the question,
                                          so that parts of another one are not used

Of several runs that extract columns of one descriptor at the same time, each waits for the one before.

A part is an Arrow table with the columns of its shard in the types that were found there; in the end they are cast to one type.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from xxhash import xxh3_64_hexdigest

from wids.columns import write_column
from wids.columns.arrow import arrow, from_arrow
from wids.descriptor import load_descriptor
from wids.errors import DescriptorError, WidsError, redact
from wids.fields import find_field
from wids.fingerprint import basename, digest_data
from wids.shard_cache import ShardCache
from wids.storage import Storage
from wids.tools.files import check_place, write_json
from wids.tools.spread import map_in_order
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor

    from wids.columns import Column

_KINDS = ("bool", "int64", "double", "string")
"""What a column may be, in Arrow's words."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is extracted from each sample."""

    field: str
    """The field that holds a JSON object."""
    names: tuple[str, ...]
    """Names of values in it; `a.b` is `b` in the object `a`."""
    skip_damaged: bool
    """Whether samples whose field is no such object, and values of another type than a column's others, are missing values."""


def extract_columns(
    descriptor: str | Path,
    names: Sequence[str],
    *,
    field: str = "json",
    skip_damaged: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    storage: Storage | None = None,
) -> dict[str, Column]:
    """Write values of a JSON field of the samples as columns, name them in the descriptor, and return them.

    An interrupted run keeps what it found; the next one with the same arguments reads only the other shards.

    Args:
        descriptor: Path of the descriptor; it is changed when all is done. Columns go into the folder `NAME.columns` beside it.
        names: Of the values: `"width"`, or `"meta.width"` for one in an object.
        field: The samples' field that holds a JSON object; one without it has missing values.
        skip_damaged: Leave values missing where the field is no JSON object, or a value of another type than the others.
        executor: Reads the shards; None for one after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        storage: Opens shards; None for one with the defaults.

    Raises:
        DescriptorError: `descriptor` is not the path of one, or does not say how many samples its shards have.
        ValueError: There are no names, or one is given twice, or is no name of a column.
        WidsError: A shard cannot be read, a sample's field is no JSON object, or values are of different types; names
            shards and samples.
        ModuleNotFoundError: pyarrow is not installed.

    Examples:
        >>> import tempfile, wids
        >>> folder = tempfile.mkdtemp()
        >>> with wids.ShardWriter(f"{folder}/a-%d.tar") as writer:
        ...     for width in (640, 512):
        ...         writer.write({"__key__": f"{width}", "json": {"width": width}})
        >>> extract_columns(f"{folder}/a.json", ["width"])["width"].kind
        'int64'
        >>> wids.ShardListDataset(f"{folder}/a.json").matches("width > 600").tolist()
        [True, False]
    """
    path = Path(descriptor)
    question = Question(field, _checked(names), skip_damaged)
    arrow()
    _read_content(path)  # fails before a folder is made
    storage = storage or Storage()
    shards = load_descriptor(path, fetch=storage.read).shards
    if any(shard["nsamples"] is None for shard in shards):
        raise DescriptorError(f"{path}: does not say how many samples its shards have; write it with: widsindex create")
    fingerprint = digest_data(map(basename, shards), [shard["nsamples"] for shard in shards])
    folder = path.with_suffix(".columns")
    with _locked(folder):
        parts = folder / f".parts-{xxh3_64_hexdigest(orjson.dumps([fingerprint, question]))}"
        parts.mkdir(exist_ok=True)
        _extract_parts(shards, parts, question, storage, executor, progress)
        columns = {}
        content = _read_content(path)  # again: a run that this one has waited for may have added columns
        for place, name in enumerate(question.names):
            column = _assemble(parts, shards, place, name, question)
            file = folder / _file_name(name)
            write_column(file, name, column, fingerprint)
            columns[name] = column
            content.setdefault("columns", {})[name] = f"{folder.name}/{file.name}"
        write_json(path, content)
        shutil.rmtree(parts, ignore_errors=True)
    return columns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Make a folder, and wait until no other process is in such a block with it: two runs would remove each other's parts."""
    folder.mkdir(exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: two runs at once are rare
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not all(name.split(".")) or name.startswith("__"):
            raise ValueError(
                f"{name!r} is not the name of a column; give one such as 'width', or 'meta.width' for a value inside an object"
            )
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice or not names:
        raise ValueError(f"the name {twice[0]!r} is given twice" if twice else "no names of columns were given")
    return tuple(names)


def _file_name(name: str) -> str:
    """Return the name of a column's file: the column's own if that is fit for paths and URLs.

    Examples:
        >>> _file_name("meta.width"), _file_name("a/é")
        ('meta.width.arrow', 'a__-44fe8935.arrow')
    """
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{,99}", name):
        return f"{name}.arrow"
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name[:100])}-{xxh3_64_hexdigest(name.encode())[:8]}.arrow"


def _read_content(path: Path) -> dict[str, Any]:
    """Return the JSON of a descriptor, unresolved.

    Raises:
        DescriptorError: It is none, or cannot be changed.
    """
    check_place(path)
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DescriptorError(
            f"{path}: cannot be read as a descriptor ({error}); write one with: widsindex create"
        ) from error
    if not isinstance(content, dict):
        raise DescriptorError(f"{path}: is not a descriptor; write one with: widsindex create")
    return content


# Shards


def _extract_parts(
    shards: Sequence[Mapping[str, Any]],
    parts: Path,
    question: Question,
    storage: Storage,
    executor: Executor | None,
    progress: bool,
) -> None:
    left = [number for number in range(len(shards)) if not _part(parts, number).exists()]
    extract = partial(_extract_part, storage, parts, question)
    results = map_in_order(
        extract,
        [(number, shards[number]) for number in left],
        executor,
        "extracting",
        num_done=len(shards) - len(left),
        progress=progress,
    )
    errors = [error for error in results if error is not None]
    if errors:
        more = f"; … ({len(errors)} shards in all)" if len(errors) > 5 else ""
        raise WidsError(f"{'; '.join(errors[:5])}{more}; what was found in the other shards is kept for the next run")


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number}.arrow"


def _extract_part(
    storage: Storage, parts: Path, question: Question, numbered: tuple[int, Mapping[str, Any]]
) -> str | None:
    """Write what is found in a shard, given with its number; return what is wrong with it, None when nothing is."""
    number, shard = numbered
    try:
        table = extract_shard(storage, question, shard)
    except (WidsError, OSError) as error:
        return str(error)
    pa = arrow()
    # No fsync: what a power failure cuts cannot be read, and is made anew.
    with whole_file(_part(parts, number), sync=False) as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return None


def extract_shard(storage: Storage, question: Question, shard: Mapping[str, Any]) -> Any:
    """Return an Arrow table of what a question asks for, a row for each sample of a shard.

    Raises:
        WidsError: The shard or a sample cannot be read, or values are of different types; names the sample.
    """
    cache = ShardCache([shard], storage, 1)
    reader = cache.get(0)
    values: list[list[Any]] = [[] for _ in question.names]
    paths = [name.split(".") for name in question.names]
    for position in range(shard["nsamples"]):
        found = _read_object(reader, position, question)
        for column, path in zip(values, paths, strict=True):
            column.append(_look_up(found, path))
    cache.close()
    name = redact(str(shard["url"]))
    keys = partial(_key, reader)
    columns = [
        _to_column(column, title, name, keys, question) for column, title in zip(values, question.names, strict=True)
    ]
    return arrow().table(columns, names=list(question.names))


def _key(reader: Any, position: int) -> str:
    return repr(reader.key(position))


def _read_object(reader: Any, position: int, question: Question) -> Any:
    """Return the object that a sample's field holds; an empty one if the sample has no such field."""
    field = find_field(question.field, reader.fields(position))
    if field is None:
        return {}
    data = reader.read(position, bytes, {field})[field]
    try:
        found = orjson.loads(data)
    except ValueError as error:
        reason = f"is not JSON: {error}"
    else:
        if isinstance(found, dict):
            return found
        reason = f"holds a {type(found).__name__}, expected an object"
    if question.skip_damaged:
        return {}
    raise WidsError(
        f"{reader.source.name}: key {reader.key(position)!r}, field {field!r}: {reason}; leave such values missing with --skip-damaged"
    )


def _look_up(found: Any, path: Sequence[str]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _to_column(values: list[Any], title: str, shard: str, key: Any, question: Question) -> Any:
    """Return an Arrow array of the values' common type; of nulls if all are missing."""
    pa = arrow()
    kinds = [_kind(value) for value in values]
    first: dict[str, int] = {}
    for position, kind in enumerate(kinds):
        if kind is not None:
            first.setdefault(kind, position)
    chosen = _join_kinds(first)
    if chosen is None and question.skip_damaged:
        chosen = _most_frequent(Counter(kind for kind in kinds if kind in _KINDS))
        fits = {kind for kind in (*_KINDS, None) if _join_kinds([kind, chosen]) == chosen}
        values = [value if kind in fits else None for value, kind in zip(values, kinds, strict=True)]
    if chosen is None:
        told = "; ".join(f"{values[position]!r:.40} at key {key(position)}" for position in list(first.values())[:5])
        raise WidsError(
            f"{shard}: the values of {title!r} have no common type that a column can have: {told}; leave the column out, or the odd "
            "values missing with --skip-damaged"
        )
    return pa.array(values, pa.type_for_alias(chosen) if chosen != "null" else pa.null())


def _kind(value: Any) -> str | None:
    """Return the type of column that holds a value: None if any does, the value's own type if none does."""
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int() if -(1 << 63) <= value < 1 << 63:
            return "int64"
        case float():
            return "double"
        case str():
            return "string"
    return type(value).__name__


def _join_kinds(kinds: Iterable[str | None]) -> str | None:
    """Return the type that can hold values of all these types; None when there is none.

    Examples:
        >>> _join_kinds(["int64", None, "double"]), _join_kinds([]), _join_kinds(["string", "int64"])
        ('double', 'null', None)
    """
    present = {kind for kind in kinds if kind not in {None, "null"}}
    if present == {"int64", "double"}:
        return "double"
    if len(present) > 1:
        return None
    kind = next(iter(present), "null")
    return kind if kind in _KINDS or kind == "null" else None


def _most_frequent(counts: Counter[str]) -> str:
    """Return the most frequent type; integers count as floats if there are any floats.

    Examples:
        >>> _most_frequent(Counter(int64=2, double=1, string=2)), _most_frequent(Counter())
        ('double', 'null')
    """
    if counts["double"]:
        counts["double"] += counts.pop("int64", 0)
    return max(counts, key=counts.__getitem__) if counts.total() else "null"


# Columns


def _assemble(parts: Path, shards: Sequence[Mapping[str, Any]], place: int, name: str, question: Question) -> Column:
    """Return a column over all shards, brought to one type.

    Raises:
        WidsError: Shards have values of different types; names two.
    """
    pa = arrow()
    pieces = [_read_part(_part(parts, number), place) for number in range(len(shards))]
    firsts: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        firsts.setdefault(str(piece.type), number)
    chosen = _join_kinds(firsts)
    if chosen is None:
        if not question.skip_damaged:
            told = ", ".join(f"{kind} in {redact(str(shards[number]['url']))}" for kind, number in firsts.items())
            raise WidsError(
                f"the values of {name!r} are of different types: {told}; leave the column out, or the odd values missing with --skip-damaged"
            )
        chosen = _most_frequent(Counter({kind: _count(pieces, kind) for kind in firsts if kind in _KINDS}))
    kind = pa.null() if chosen == "null" else pa.type_for_alias(chosen)
    fitted = [
        piece.cast(kind) if _join_kinds([str(piece.type), chosen]) == chosen else pa.nulls(len(piece), kind)
        for piece in pieces
    ]
    return from_arrow(pa.chunked_array(fitted, kind), name)


def _count(pieces: Sequence[Any], kind: str) -> int:
    return sum(len(piece) - piece.null_count for piece in pieces if str(piece.type) == kind)


def _read_part(path: Path, place: int) -> Any:
    pa = arrow()
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
            column = reader.read_all().column(place)
    except pa.ArrowException as error:
        path.unlink(missing_ok=True)
        raise WidsError(
            f"{path}: was damaged, and has been removed; run the command again to make a new one"
        ) from error
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
