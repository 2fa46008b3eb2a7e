"""Metadata of samples as columns: one value a sample, typed, missing where there is none, and conditions over them."""

from wids.columns.column import Column, NumberColumn, TextColumn
from wids.columns.expression import Expression
from wids.columns.files import StoredColumn, write_column
from wids.columns.kept import KeptArray, KeptColumn
from wids.columns.match import match_hashes
from wids.columns.table import Table, read_table

__all__ = [
    "Column",
    "Expression",
    "KeptArray",
    "KeptColumn",
    "NumberColumn",
    "StoredColumn",
    "Table",
    "TextColumn",
    "match_hashes",
    "read_table",
    "write_column",
]
