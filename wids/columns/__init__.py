"""Columns of metadata: one typed value, or none, for each sample; and conditions over them."""

from wids.columns.column import Column, NumberColumn, TextColumn
from wids.columns.expression import Expression
from wids.columns.files import StoredColumn, write_column
from wids.columns.kept import KeptArray, KeptColumn
from wids.columns.match import group_marks, hash_texts, match_hashes
from wids.columns.names import suggest
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
    "group_marks",
    "hash_texts",
    "match_hashes",
    "read_table",
    "suggest",
    "write_column",
]
