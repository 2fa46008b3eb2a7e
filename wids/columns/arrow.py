"""Conversion between Arrow's arrays and columns; the only module that knows Arrow's memory layout.

Source: https://arrow.apache.org/docs/format/Columnar.html, "Fixed-size primitive layout" and "Variable-size binary layout".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.columns.column import Column, NumberColumn, TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray


def arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow, or one of its modules, and return it.

    Raises:
        ModuleNotFoundError: pyarrow is not installed; the message says what to type.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"columns in files need the package 'pyarrow', which cannot be imported ({error}); pip install 'wids[parquet]'",
            name="pyarrow",
        ) from error


def from_arrow(array: Any, name: str) -> Column:
    """Return a column with the values of an Arrow array; where the layouts agree, it shares Arrow's memory.

    Args:
        array: An `Array` or `ChunkedArray` of booleans, integers, floats, text or nulls, dictionary-encoded or not.
        name: Name of the column, for messages.

    Raises:
        ValueError: The array holds values of another type.
    """
    pa = arrow()
    if isinstance(array, pa.ChunkedArray):
        array = (
            array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks or [pa.array([], array.type)])
        )
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if pa.types.is_boolean(kind):
        return NumberColumn(array.fill_null(False).to_numpy(zero_copy_only=False), missing)
    if pa.types.is_integer(kind):
        return NumberColumn(_values(array, array.buffers()[1], _dtype_of(kind)), missing)
    if pa.types.is_floating(kind):
        filled = array.fill_null(np.array(np.nan, _dtype_of(kind)).item()) if missing is not None else array
        return NumberColumn(_values(filled, filled.buffers()[1], _dtype_of(kind)))
    if pa.types.is_null(kind) or pa.types.is_string(kind) or str(kind) in {"large_string", "string_view"}:
        text = array if str(kind) == "large_string" else array.cast(pa.large_string())
        _, ends, data = text.buffers()
        return TextColumn(
            np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8),
            _values(text, ends, np.int64, extra=1),
            missing,
        )
    raise ValueError(f"column {name!r} is {kind}; only numbers, booleans and text can be columns, so leave it out")


def _dtype_of(kind: Any) -> np.dtype[Any]:
    """Return the numpy dtype of an Arrow type of numbers; Arrow's own conversion needs pandas."""
    return np.dtype({"halffloat": "f2", "float": "f4", "double": "f8"}.get(str(kind), str(kind)))


def to_arrow(column: Column) -> Any:
    """Return a column as an Arrow array: a primitive one, or large_string for text."""
    pa = arrow()
    if isinstance(column, NumberColumn):
        return pa.array(column.data, mask=column.missing)
    bitmap = None
    if column.missing is not None:
        bitmap = pa.py_buffer(np.packbits(~column.missing, bitorder="little").tobytes())
    ends = np.ascontiguousarray(column.ends, np.int64)
    buffers = [bitmap, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(column.data))]
    return pa.Array.from_buffers(pa.large_string(), len(column), buffers)


def _values(array: Any, buffer: Any, dtype: Any, *, extra: int = 0) -> NDArray[Any]:
    """Return the values in an array's buffer, with `extra` values after the last row; nothing is copied."""
    if buffer is None or not len(array):
        return np.zeros(len(array) + extra, dtype)
    values = np.frombuffer(buffer, dtype)
    return values[array.offset : array.offset + len(array) + extra]
