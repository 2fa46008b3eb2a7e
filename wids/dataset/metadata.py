"""Columns and joins: the part of `ShardListDataset` that adds data from elsewhere to the samples."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wids.columns import Expression, KeptColumn, NumberColumn, StoredColumn, read_table, suggest
from wids.dataset.attach import AddColumns, attach, match_table
from wids.dataset.join import Join, match_samples
from wids.dataset.replace import Replacer
from wids.dataset.rows import to_array
from wids.dataset.selection import Selection
from wids.dataset.steps import REQUIRED, alternatives
from wids.fingerprint import basename, digest_data
from wids.words import counted, counted_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from wids.columns import Column, TextColumn
    from wids.dataset.rows import AnyRows
    from wids.fields import FieldFilter


class Metadata(Selection):
    """A selection of samples with columns, and with other datasets joined to it."""

    transformations: list[Any]
    _filter: FieldFilter | None

    _columns: dict[str, StoredColumn | KeptColumn]
    """The columns by name, each over the whole dataset, also in a view."""

    def _find_columns(self, urls: Mapping[str, str]) -> dict[str, StoredColumn | KeptColumn]:
        """Return the columns that a descriptor lists.

        Args:
            urls: URL of the column's file, by name of the column.
        """
        if not urls:
            return {}
        fingerprint = digest_data(map(basename, self._cache.shards), self._offsets.lengths)
        return {
            name: StoredColumn(name, url, self._cache.storage, fingerprint, len(self._offsets))
            for name, url in urls.items()
        }

    # Columns

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, those of the descriptor first.

        Examples:
            >>> dataset.add_columns({"score": range(20)}, on="index").columns
            ('score',)
        """
        return tuple(self._columns)

    def column(self, name: str, *, missing: Any = REQUIRED) -> NDArray[Any] | TextColumn:
        """Return one value for each sample, without reading any sample.

        Args:
            name: One of `columns`.
            missing: The value for samples that have none. By default that is NaN for floats and None for text, and an error
                for integers and booleans, whose arrays can hold neither.

        Returns:
            For numbers and booleans an array `(len,)`, read-only where it is mapped from a file, which is usual for a whole
            dataset. For text a sequence of `str` that creates each one on access; `numpy.asarray` makes it an array.

        Raises:
            KeyError: There is no such column; the message suggests others.
            ValueError: Samples have no value and `missing` is not given, or the column cannot hold `missing`.
            DescriptorError: The column's file is damaged, or was made for other data.

        Examples:
            >>> scored = dataset.add_columns({"score": [n / 2 for n in range(20)]}, on="index")
            >>> scored[3:6].column("score")
            array([1.5, 2. , 2.5])
        """
        if name not in self._columns:
            raise KeyError(f"{name!r}: there is no such column; {suggest(name, self._columns)}")
        column = self._columns[name].column
        if self._rows is not None:
            column = column.take(_places(self._rows))
        if missing is not REQUIRED:
            column = column.filled(missing)
        if not isinstance(column, NumberColumn):
            return column
        if column.missing is not None and column.missing.any():
            gone = column.missing_rows()
            raise ValueError(
                f"column {name!r}: {counted_of(len(gone), len(column), 'sample', 'has', 'have')} no value, the first is index {gone[0]}; give "
                f"missing= one, as in column({name!r}, missing=0)"
            )
        return column.data

    def add_columns(
        self,
        source: Any,
        *,
        on: Literal["key", "index"] = "key",
        columns: Iterable[str] | Mapping[str, str] | None = None,
        key_column: str = "key",
        missing: Any = REQUIRED,
        extra: Literal["error", "ignore"] = "error",
    ) -> Self:
        """Return a dataset with more columns; each of its samples also holds its values, under the columns' names.

        Args:
            source: The path or URL of a Parquet, JSONL, CSV or Arrow file; a folder or pattern of such files; a path with
                `{shard}` in it, which stands for the name of each shard up to `.tar`, for one file per shard; a mapping of
                arrays or lists; or a table of pyarrow, pandas or polars.
            on: `"key"`: a row belongs to the sample with the row's key. `"index"`: row `i` belongs to sample `i`. With one
                file per shard, rows belong to samples of that shard, and `i` counts within it.
            columns: The only columns to take, or `{new name: name in the source}`; None for all. A value inside an object is
                named with a dot, as in `meta.width`.
            key_column: The column of `source` that holds the keys.
            missing: The value for samples that have no row, or no value in it: one for all columns, or `{column: value}`.
                None leaves these values missing. By default, a sample without a row is an error.
            extra: What to do about rows that belong to no sample: `"error"`, or `"ignore"` them, as img2dataset's rows for
                failed downloads.

        Raises:
            ValueError: There are too few or too many rows, or several with one key; a column does not exist, is not of
                numbers, booleans or text, or has the name of an existing one. The message names up to five keys.
            OSError: A file cannot be read.

        Examples:
            >>> words = {"key": ["000001", "000000"], "word": ["one", "zero"]}
            >>> named = dataset[:2].add_columns(words)
            >>> named[0]["word"], list(named.column("word"))
            ('zero', ['zero', 'one'])
        """
        table = read_table(
            source,
            columns=columns,
            key=_check_on(on, key_column),
            shards=[str(shard["url"]) for shard in self._cache.shards],
            fetch=self._cache.storage.read,
        )
        rows = match_table(self, table, must_have=missing is REQUIRED, may_have_more=extra == "ignore")
        return self._attach(attach(self, table, rows, {} if missing is REQUIRED else missing))

    def _attach(self, columns: Mapping[str, Column]) -> Self:
        """Return a dataset with these columns added, which must extend over the whole dataset.

        Raises:
            ValueError: A column has the name of another one, or of a field.
        """
        for name in columns:
            if name in self._columns:
                raise ValueError(
                    f"column {name!r} already exists; give this one another name, as in columns={{'{name}_2': '{name}'}}"
                )
            if name.startswith((".", "__")):
                raise ValueError(
                    f"column {name!r} has the name of a field; give it another one with columns=, without a leading dot or __"
                )
        kept = {name: KeptColumn(column, self._cache.storage) for name, column in columns.items()}
        return self._derive(
            _columns={**self._columns, **kept}, transformations=[*self.transformations, AddColumns(kept)]
        )

    def matches(self, where: str) -> NDArray[np.bool_]:
        """Return a mask of the samples for which a condition over the columns is true.

        Args:
            where: A condition such as `"width >= 512 and similarity > 0.3"`. It can use comparisons, arithmetic, `in`,
                `is None`, `and`, `or`, `not`, and the functions abs, len, max and min. It is parsed, and never run as code.
                A comparison with a missing value is false, except for `!=`.

        Returns:
            `(len,)` bool.

        Raises:
            ValueError: The text is not a condition, or names a column that does not exist; the message names the place.

        Examples:
            >>> scored = dataset.add_columns({"score": range(20)}, on="index")
            >>> len(scored.select(scored.matches("5 <= score < 8 or score == 19")))
            4
        """
        condition = Expression(where)
        rows = self._rows

        def read(name: str, start: int, stop: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
            column = self._columns[name].column
            if rows is None:
                return column.block(start, stop)
            part = column.take(_places(rows[start:stop]))
            return part.block(0, len(part))

        return condition.find_rows(read, len(self), self._columns)

    # Joins

    def join(
        self,
        other: Any,
        *,
        on: Literal["key", "index"] = "key",
        how: Literal["inner", "left"] = "inner",
        prefix: str = "",
    ) -> Self:
        """Return a dataset whose samples have the fields of this dataset and of another, in the order of this one.

        Each side is decoded by its own transformations and read through its own cache. A side is not read if `select_fields`
        or `to_tuple` ask for none of its fields.

        Args:
            other: A dataset; or a table, as `add_columns` takes it, whose columns are added.
            on: `"key"` joins samples with the same key: first those in shards of the same name, then those left over.
                `"index"` joins sample `i` of this side with sample `i` of the other.
            how: `"inner"` keeps the samples that both sides have; `"left"` keeps all samples of this side.
            prefix: Prefix for the names of the other side's fields: with `"recap."`, its `.txt` becomes `.recap.txt`.

        Raises:
            ValueError: Keys are ambiguous, of which the message names up to five; the lengths differ; or an argument has a
                value that it cannot take.
            TypeError: `other` is neither a dataset nor a table.

        Examples:
            >>> other = dataset.select(range(19, 9, -1)).select_fields("cls")
            >>> both = dataset.select_fields("txt").join(other, prefix="label.")
            >>> len(both), sorted(name for name in both[3] if name.startswith("."))
            (10, ['.label.cls', '.txt'])
        """
        key = _check_on(on, "key")
        if how not in {"inner", "left"}:
            raise ValueError(f"how is {how!r}; it must be 'inner' or 'left'")
        if not isinstance(other, Metadata):
            return self._join_table(other, key, how, prefix)
        if key is None and len(other) != len(self):
            raise ValueError(
                f"the other side has {counted(len(other), 'sample')}, expected {len(self)}; join them on='key'"
            )
        found = np.arange(len(self)) if key is None else match_samples(self, other)  # type: ignore[arg-type]
        places = np.full(len(self._offsets), -1, np.int32 if len(other) < 1 << 31 else np.int64)
        places[slice(None) if self._rows is None else to_array(self._rows)] = found
        # The substitute for a damaged sample of the other side would belong to another key, so none is taken there.
        strict = other._derive(_replacer=Replacer("raise"))
        step = Join(strict, places, prefix, self._cache.storage)  # type: ignore[arg-type]
        chosen = self if how == "left" or (found >= 0).all() else self.select(found >= 0)
        return chosen._derive(transformations=[*self.transformations, step])

    def _join_table(self, source: Any, key: str | None, how: str, prefix: str) -> Self:
        table = read_table(
            source,
            columns=None,
            key=key,
            shards=[str(shard["url"]) for shard in self._cache.shards],
            fetch=self._cache.storage.read,
        )
        rows = match_table(self, table, must_have=False, may_have_more=True)
        columns = {f"{prefix}{name}": column for name, column in attach(self, table, rows, None).items()}
        joined = self._attach(columns)
        return joined if how == "left" else joined.select(rows >= 0)

    def _joins(self) -> list[Join]:
        return [step for step in self.transformations if step.__class__ is Join]

    def _joined_places(self, index: int) -> list[tuple[Join, int]]:
        """Return each join that has a counterpart of a sample, and the counterpart's index on the join's other side."""
        joins = self._joins()
        if not joins:
            return []
        shard, position = self._find(index)
        places = [join.find(self._offsets.starts[shard] + position) for join in joins]
        return [(join, place) for join, place in zip(joins, places, strict=True) if place is not None]

    def _count(self, counted: dict[int, dict[str, float]]) -> dict[str, float]:
        """Return the counters of this dataset and of those joined to it, summed; one that is joined twice counts once.

        Args:
            counted: The counters found so far, by the identity of the shard cache; this dataset's are added.
        """
        if id(self._cache) not in counted:
            counted[id(self._cache)] = self._cache.count()
        for join in self._joins():
            join.other._count(counted)
        return {name: sum(counts[name] for counts in counted.values()) for name in counted[id(self._cache)]}

    def sizes(self, field: str) -> NDArray[np.int64]:
        """Return the size in bytes of a field in each sample, from the index alone; fields of joined datasets included.

        Args:
            field: `"txt"`, or `"jpg;png"` for the first that a sample has.

        Returns:
            `(len,)` int64, -1 where a sample has no such field.

        Raises:
            FetchError: A shard is not indexed yet, and cannot be opened.

        Examples:
            >>> dataset.sizes("txt")[8:12]
            array([ 9,  9, 10, 10])
        """
        sizes = self._tables().sizes(alternatives(field))
        for join in self._joins():
            names = join.names(alternatives(field))
            places = join.places(None if self._rows is None else to_array(self._rows))
            if names and len(join.other):
                sizes = np.where((sizes < 0) & (places >= 0), join.other.sizes(";".join(names))[places], sizes)
        return sizes

    def has(self, *fields: str) -> NDArray[np.bool_]:
        """Return which samples have all of these fields, from the index alone; fields of joined datasets included.

        Args:
            fields: Each as `"txt"`, or as `"jpg;png"` for any one of several.

        Returns:
            `(len,)` bool.

        Raises:
            FetchError: A shard is not indexed yet, and cannot be opened.

        Examples:
            >>> int(dataset.has("jpg;txt", "cls").sum()), int(dataset.has("jpg").sum())
            (20, 0)
        """
        if not self._joins():
            return self._tables().has([alternatives(field) for field in fields])
        found: NDArray[np.bool_] = np.logical_and.reduce([self.sizes(field) >= 0 for field in fields])
        return found

    @contextmanager
    def _reading_together(self, places: Sequence[tuple[int, int]]) -> Iterator[None]:
        """For the `with` block, hold the byte ranges of these samples and their joined ones, or read local ones ahead.

        Args:
            places: `(shard, position)` of each sample.
        """
        with ExitStack() as held:
            if self._cache.reads_ranges:
                held.enter_context(self._cache.read_together(places, self._filter))
            else:
                self._cache.ask_for(places, self._filter)
            for join in self._joins():
                indices = [self._offsets.starts[shard] + position for shard, position in places]
                theirs = [place for place in map(join.find, indices) if place is not None]
                held.enter_context(join.other._reading_together([join.other._find(place) for place in theirs]))
            yield

    def _reads_ranges(self) -> bool:
        """Return whether remote shards of this dataset, or of one joined to it, may be read by ranges."""
        return self._cache.reads_ranges or any(join.other._reads_ranges() for join in self._joins())


def _check_on(on: str, key_column: str) -> str | None:
    """Return the column that holds the keys; None when rows are matched by their number."""
    if on not in {"key", "index"}:
        raise ValueError(f"on is {on!r}; it must be 'key' or 'index'")
    return key_column if on == "key" else None


def _places(rows: AnyRows) -> range | NDArray[np.int64]:
    return rows if isinstance(rows, range) else to_array(rows)
