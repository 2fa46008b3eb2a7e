"""Metadata of samples as columns: one value a sample, typed, missing where there is none, and conditions over them."""

from wids.columns.column import Column, NumberColumn, TextColumn
from wids.columns.expression import Expression
from wids.columns.files import StoredColumn, write_column
from wids.columns.kept import KeptArray, KeptColumn
from wids.columns.match import hash_texts, mark_groups, match_hashes
from wids.columns.names import suggest
from wids.columns.table import Table, read_table, row_shards

__all__ = [
    "Column",
    "Expression",
    "KeptArray",
    "KeptColumn",
    "NumberColumn",
    "StoredColumn",
    "Table",
    "TextColumn",
    "hash_texts",
    "mark_groups",
    "match_hashes",
    "read_table",
    "row_shards",
    "suggest",
    "write_column",
]
