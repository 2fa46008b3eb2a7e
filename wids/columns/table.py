"""Read tables of metadata (Parquet, JSONL, CSV or Arrow files, arrays) into columns, with the keys of their rows."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import braceexpand
import numpy as np

from wids.columns.arrow import arrow, from_arrow
from wids.columns.column import Column, NumberColumn, TextColumn
from wids.columns.names import suggest
from wids.descriptor import local_path, stem_of
from wids.errors import redact
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Fetch = Callable[[str], bytes]

SHARD = "{shard}"
"""Placeholder in a file's name for the name, up to `.tar`, of the shard that the file belongs to."""

_PARQUET, _JSONL, _CSV, _ARROW = (".parquet", ".pq"), (".jsonl", ".ndjson"), (".csv", ".tsv"), (".arrow", ".feather")


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of the same length."""

    columns: dict[str, Column]
    """Columns by the names that they will have in the dataset."""
    keys: TextColumn | None
    """Key of each row; None if rows are matched by their number."""
    lengths: list[int] | None
    """Number of rows of each shard of the dataset, in order; None if there is not one file for each shard."""
    name: str
    """Name of the source, for messages."""

    def __len__(self) -> int:
        return len(self.keys if self.keys is not None else next(iter(self.columns.values()), ()))


def read_table(
    source: Any,
    *,
    columns: Iterable[str] | Mapping[str, str] | None,
    key: str | None,
    shards: Sequence[str],
    fetch: Fetch,
) -> Table:
    """Read a table.

    Args:
        source: The path or URL of a Parquet, JSONL, CSV or Arrow file; a folder or pattern of such files; a path with
            `{shard}` in it, for one file per shard; a mapping of arrays; or an object with Arrow's C stream interface, as
            tables of pyarrow, pandas and polars have it.
        columns: The only columns to take, or `{new name: old name}`; None for all but the key.
        key: The column that holds the keys; None to read no keys.
        shards: URLs of the dataset's shards.
        fetch: Returns the bytes of a URL, for files that are not local.

    Raises:
        ValueError: A column does not exist or cannot be read, and the message names it; or columns differ in length.
        TypeError: `source` is none of these.
        OSError: A file cannot be read.
    """
    wanted = _new_names(columns)
    old = None if wanted is None else list(wanted.values())
    lengths = None
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        if SHARD in name:
            names = [name.replace(SHARD, stem_of(url)) for url in shards]
            table, lengths = _read_files(names, old, key, fetch)
        else:
            table, _ = _read_files(_list_files(name), old, key, fetch)
        found = _from_arrow_table(table, old, key, name)
    elif isinstance(source, Mapping):
        name = "the columns given"
        found = {str(title): _from_values(values, str(title)) for title, values in source.items()}
    elif hasattr(source, "__arrow_c_stream__"):
        name = f"the {type(source).__name__} given"
        found = _from_arrow_table(_flatten(arrow().table(source)), old, key, name)
    else:
        raise TypeError(
            f"source is of type {type(source).__name__}; it must be a path, a URL, a mapping of arrays, or a table of Arrow"
        )
    return _make_table(found, wanted, key, lengths, redact(name))


def _new_names(columns: Iterable[str] | Mapping[str, str] | None) -> dict[str, str] | None:
    if columns is None or isinstance(columns, Mapping):
        return None if columns is None else dict(columns)
    return {name: name for name in ([columns] if isinstance(columns, str) else columns)}


def _make_table(
    found: dict[str, Column], wanted: dict[str, str] | None, key: str | None, lengths: list[int] | None, name: str
) -> Table:
    """Return a table of the wanted columns, after checks of their names, lengths and keys."""
    if wanted is None:
        wanted = {title: title for title in found if title != key}
    for title in [*wanted.values(), *([] if key is None else [key])]:
        if title not in found:
            raise ValueError(f"{name}: there is no column {title!r}; {suggest(title, found)}")
    keys = None if key is None else found[key]
    if keys is not None and not isinstance(keys, TextColumn):
        raise ValueError(
            f"{name}: the column {key!r} holds {keys.kind}; keys are text, so name another with key_column="
        )
    if keys is not None and len(gone := keys.missing_rows()):
        raise ValueError(
            f"{name}: {counted(len(gone), 'row has', 'rows have')} no key in the column {key!r}, the first is row {gone[0]}"
        )
    columns = {new: found[old] for new, old in wanted.items()}
    counts = {title: len(column) for title, column in columns.items()} | ({} if keys is None else {str(key): len(keys)})
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{title!r} has {count}" for title, count in counts.items())
        raise ValueError(f"{name}: the columns are of different lengths: {listed}; give one value for each row")
    return Table(columns, keys, lengths, name)


def _from_values(values: Any, name: str) -> Column:
    if isinstance(values, (NumberColumn, TextColumn)):
        return values
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"column {name!r} has the shape {array.shape}; it must be one value for each row")
    if array.dtype.kind in "bif" or array.dtype.kind == "u":
        return NumberColumn(array.astype(array.dtype.newbyteorder("="), copy=False))
    texts = array.tolist()
    if all(text is None or isinstance(text, str) for text in texts):
        return TextColumn.from_texts(texts)
    raise ValueError(
        f"column {name!r} holds {array.dtype}; only numbers, booleans and text can be columns, so leave it out"
    )


# Reading files


def _list_files(name: str) -> list[str]:
    path = local_path(name)
    if path is None:
        return list(braceexpand.braceexpand(name)) if "{" in name else [name]
    if os.path.isdir(path):  # noqa: PTH112  # a Path would drop a slash or dot at the end
        kinds = (_PARQUET, _JSONL, _CSV, _ARROW)
        files = sorted(str(file) for file in Path(path).iterdir() if not file.name.startswith("."))
        listed = next((found for kind in kinds if (found := [file for file in files if file.endswith(kind)])), [])
    elif Path(path).exists():
        return [path]
    else:
        listed = [file for part in braceexpand.braceexpand(path) for file in sorted(glob.glob(part)) or [part]]  # noqa: PTH207
    if not listed:
        raise FileNotFoundError(f"{name}: holds no Parquet, JSONL, CSV or Arrow file; name the folder that does")
    return listed


def _read_files(names: list[str], columns: list[str] | None, key: str | None, fetch: Fetch) -> tuple[Any, list[int]]:
    """Return one table with the rows of all files, in order, and the number of rows in each file."""
    pa = arrow()
    gone = [name for name in names if (path := local_path(name)) is not None and not Path(path).is_file()]
    if gone:
        more = f", … ({len(gone)} in all)" if len(gone) > 5 else ""
        raise FileNotFoundError(f"there is no file {', '.join(gone[:5])}{more}; correct the name")
    wanted = None if columns is None else list(dict.fromkeys([*columns, *([] if key is None else [key])]))
    tables = []
    for name in names:
        try:
            tables.append(_flatten(_read_file(name, wanted, key, fetch)))
        except pa.ArrowException as error:
            raise ValueError(f"{redact(name)}: cannot be read as a table: {error}") from error
    try:
        # "permissive" makes integers in one file and floats in the next all floats, and gives nulls the type of the others.
        return pa.concat_tables(tables, promote_options="permissive"), [len(table) for table in tables]
    except pa.ArrowException as error:
        raise ValueError(
            f"{redact(names[0])} and the files after it have columns of different types: {error}"
        ) from error


def _read_file(name: str, columns: list[str] | None, key: str | None, fetch: Fetch) -> Any:
    pa = arrow()
    path = local_path(name)
    source = pa.BufferReader(fetch(name)) if path is None else path
    kind = name.partition("?")[0].lower() if path is None else name.lower()
    if kind.endswith(_PARQUET):
        file = arrow("pyarrow.parquet").ParquetFile(source)
        wanted = None if columns is None else [name for name in file.schema_arrow.names if _is_wanted(name, columns)]
        return file.read(columns=wanted)
    if kind.removesuffix(".gz").endswith(_JSONL):
        with pa.input_stream(source, compression="detect") as stream:
            return arrow("pyarrow.json").read_json(stream)
    if kind.removesuffix(".gz").endswith(_CSV):
        csv = arrow("pyarrow.csv")
        delimiter = "\t" if ".tsv" in kind else ","
        # Keys often consist of digits; they are read as text so that 00012 stays 00012.
        convert = csv.ConvertOptions(column_types={} if key is None else {key: pa.string()})
        with pa.input_stream(source, compression="detect") as stream:
            return csv.read_csv(stream, parse_options=csv.ParseOptions(delimiter=delimiter), convert_options=convert)
    if kind.endswith(_ARROW):
        return arrow("pyarrow.feather").read_table(source)
    raise ValueError(f"{redact(name)}: has an unknown extension; it must be .parquet, .jsonl, .csv, .tsv or .arrow")


def _is_wanted(name: str, columns: Iterable[str]) -> bool:
    """Return whether a top-level column, or a value inside it, is wanted: `meta` is for `meta.width`."""
    return any(wanted == name or wanted.startswith(f"{name}.") for wanted in columns)


def _flatten(table: Any) -> Any:
    """Return a table in which the values inside objects are columns: `meta.width` for `{"meta": {"width": 1}}`."""
    pa = arrow()
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def _from_arrow_table(table: Any, columns: list[str] | None, key: str | None, name: str) -> dict[str, Column]:
    titles = table.column_names
    twice = sorted({title for title in titles if titles.count(title) > 1})
    if twice:
        raise ValueError(f"{redact(name)}: has two columns named {twice[0]!r}; rename one")
    chosen = titles if columns is None else [title for title in titles if title in columns or title == key]
    return {title: from_arrow(table.column(title), title) for title in chosen}
