"""Columns and joined datasets: the part of `ShardListDataset` that puts beside the samples what lies elsewhere."""

from __future__ import annotations

from abc import abstractmethod
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
    """Columns over the samples, and other datasets beside them."""

    transformations: list[Any]
    _filter: FieldFilter | None

    @abstractmethod
    def _find(self, index: int) -> tuple[int, int]:
        """Return `(shard, position)` of a sample."""

    _columns: dict[str, StoredColumn | KeptColumn]
    """Over the whole dataset, whatever the rows of a view."""

    def _find_columns(self, urls: Mapping[str, str]) -> dict[str, StoredColumn | KeptColumn]:
        """Return the columns that a descriptor names."""
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
        """Return one value for each sample, without reading any.

        Args:
            name: One of `columns`.
            missing: What stands where a sample has no value. Without it that is NaN for floats, None for text, and an
                error for integers and booleans, which can hold neither.

        Returns:
            `(len,)`, read-only where it is mapped from its file, as numbers of a whole dataset are; text as a sequence of
            `str`, each made when it is asked for, of which `numpy.asarray` makes an array.

        Raises:
            KeyError: There is no such column; says which there are.
            ValueError: Samples have no value, and `missing` was not given, or cannot be held.
            DescriptorError: Its file is damaged, or was made for other data.

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
        """Return a dataset with more columns; its samples hold their values, too, under the columns' names.

        Args:
            source: Path or URL of a Parquet, JSONL, CSV or Arrow file, a folder or pattern of them, or with `{shard}` in it
                one for each shard, by its name up to `.tar`; a mapping of arrays or lists; a table of pyarrow, pandas or polars.
            on: `"key"`: a row belongs to the sample with its key, in the shard of its file where there is one for each;
                `"index"`: row `i` belongs to sample `i`, of the shard where there is a file for each.
            columns: The only ones to take, or `{new name: name in the source}`; None for all. Values in objects are named
                with dots, `meta.width`.
            key_column: The column of `source` that holds the keys.
            missing: What stands where a sample has no row, or its row no value; one for all, or `{column: value}`. None
                leaves them missing. Without it, samples without a row are an error.
            extra: Whether rows that belong to no sample are an error: `"ignore"` leaves them out, as img2dataset's rows of failed
                downloads.

        Raises:
            ValueError: Rows are missing, too many, or repeat a key; a column is not there, is no number, boolean or text, or
                has the name of another. Names up to five of the keys.
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
        """Return a dataset with these columns over the whole dataset."""
        for name in columns:
            if name in self._columns:
                raise ValueError(
                    f"there is a column {name!r} already; give columns= another name, as in {{'{name}_2': '{name}'}}"
                )
            if name.startswith((".", "__")):
                raise ValueError(
                    f"column {name!r} has the name of a field; give columns= another one, without dot or __ in front"
                )
        kept = {name: KeptColumn(column, self._cache.storage) for name, column in columns.items()}
        return self._derive(
            _columns={**self._columns, **kept}, transformations=[*self.transformations, AddColumns(kept)]
        )

    def matches(self, where: str) -> NDArray[np.bool_]:
        """Return for which samples a condition over the columns is true.

        Args:
            where: As in `"width >= 512 and similarity > 0.3"`: comparisons, arithmetic, `in`, `is None`, `and`, `or`, `not`, and abs,
                len, max, min. It is parsed, and never run as code. Comparisons with missing values are false, but for `!=`.

        Returns:
            `(len,)` bool.

        Raises:
            ValueError: It is no condition, or names a column that is not there; tells the place.

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
        """Return a dataset whose samples have the fields of two, in the order of this one.

        Each side is decoded by its own transformations and read through its own cache; a side of which no field is
        asked for, by `select_fields` or `to_tuple`, is not read.

        Args:
            other: A dataset; or a table, as `add_columns` takes them, whose columns are added.
            on: `"key"`: samples with one key, first within shards of one name, then of those that are left; `"index"`: sample `i` of
                either side.
            how: `"inner"`: samples that both sides have; `"left"`: all of this side.
            prefix: Put before the names of the other's fields: with `"recap."`, its `.txt` is `.recap.txt`.

        Raises:
            ValueError: Keys are ambiguous, names up to five; lengths differ; an argument is none of those that it may be.
            TypeError: `other` is neither dataset nor table.

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
        # What stands for a damaged sample of the other side would be another one's.
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

    def _beside(self, index: int) -> list[tuple[Join, int]]:
        """Return the joins that have something for a sample, and its index on their other side."""
        joins = self._joins()
        if not joins:
            return []
        shard, position = self._find(index)
        places = [join.find(self._offsets.starts[shard] + position) for join in joins]
        return [(join, place) for join, place in zip(joins, places, strict=True) if place is not None]

    def _count(self, counted: dict[int, dict[str, float]]) -> dict[str, float]:
        """Return what this dataset and those joined to it have counted, one that comes twice once."""
        if id(self._cache) not in counted:
            counted[id(self._cache)] = self._cache.count()
        for join in self._joins():
            join.other._count(counted)
        return {name: sum(counts[name] for counts in counted.values()) for name in counted[id(self._cache)]}

    def sizes(self, field: str) -> NDArray[np.int64]:
        """Return the bytes that a field takes in each sample, from the index alone; of a join, also of the other's fields.

        Args:
            field: `"txt"`, or `"jpg;png"` for the first that is there.

        Returns:
            `(len,)` int64, -1 where a sample has no such field.

        Raises:
            FetchError: A shard has no index yet, and cannot be opened.

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
        """Return which samples have all of these fields, from the index alone; of a join, also of the other's fields.

        Args:
            fields: Each `"txt"`, or `"jpg;png"` for one of several.

        Returns:
            `(len,)` bool.

        Raises:
            FetchError: A shard has no index yet, and cannot be opened.

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
        """Have at hand for a block, or asked of the disk, what samples need on both sides of joins."""
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
        """Whether samples, or what is joined to them, may be read by ranges."""
        return self._cache.reads_ranges or any(join.other._reads_ranges() for join in self._joins())


def _check_on(on: str, key_column: str) -> str | None:
    """Return the column that holds the keys; None where rows are known by their number."""
    if on not in {"key", "index"}:
        raise ValueError(f"on is {on!r}; it must be 'key' or 'index'")
    return key_column if on == "key" else None


def _places(rows: AnyRows) -> range | NDArray[np.int64]:
    return rows if isinstance(rows, range) else to_array(rows)
