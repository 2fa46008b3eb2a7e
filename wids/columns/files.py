"""Column files: a column of a descriptor in a file of its own beside it, written once and mapped by every process.

    train.json                       "columns": {"width": "train.columns/width.arrow"}
    train.columns/width.arrow        the column `width`, one value for each sample of train.json, in order

A file is an Arrow IPC file (https://arrow.apache.org/docs/format/Columnar.html, "IPC File Format"). It is not compressed, and
has one record batch of one column, so that the values are contiguous and can be used in place. The metadata `wids` of its
schema identifies the data that the column is of; the column is refused for other data. Because each column has its own file,
columns can be added and replaced one by one, and of remote ones only those that are used are fetched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from wids.columns.arrow import arrow, from_arrow, to_arrow
from wids.errors import DescriptorError, redact
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from wids.columns.column import Column
    from wids.storage import Storage

_FACTS = b"wids"


class StoredColumn:
    """A column in a file, which is opened on first use and not pickled.

    Args:
        name: Name of the column.
        url: URL of the file.
        storage: Opens the file.
        fingerprint: Fingerprint of the dataset, which the file must state.
        num_samples: Number of samples in the dataset, and so of values in the column.
    """

    def __init__(self, name: str, url: str, storage: Storage, fingerprint: str, num_samples: int) -> None:
        self._name = name
        self._url = url
        self._storage = storage
        self._fingerprint = fingerprint
        self._num_samples = num_samples
        self._column: Column | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_column": None}

    @property
    def column(self) -> Column:
        """The column, mapped.

        Raises:
            DescriptorError: The file is damaged, or was made for other data.
            FetchError: The file cannot be opened or fetched.
            ModuleNotFoundError: pyarrow is not installed.
        """
        if self._column is None:
            self._column = self._open()
        return self._column

    def _open(self) -> Column:
        pa = arrow()
        source = self._storage.open({"url": self._url})
        view, base = source.window(0, source.identity.size)
        try:
            with pa.ipc.open_file(pa.py_buffer(view[-base:] if base else view)) as reader:
                facts = orjson.loads((reader.schema.metadata or {}).get(_FACTS, b"{}"))
                batch = reader.get_batch(0)
            batch.validate()
            column = from_arrow(batch.column(0), self._name)
        except (pa.ArrowException, ValueError, IndexError) as error:
            raise DescriptorError(
                f"{redact(self._url)}: cannot be read as a column: {error}; {self._remedy}"
            ) from error
        if (
            facts != {"fingerprint": self._fingerprint, "samples": self._num_samples}
            or len(column) != self._num_samples
        ):
            raise DescriptorError(
                f"{redact(self._url)}: was made for other data: {facts.get('samples')} samples with fingerprint "
                f"{facts.get('fingerprint')}, expected {self._num_samples} with {self._fingerprint}; {self._remedy}"
            )
        return column

    @property
    def _remedy(self) -> str:
        return f"make it again with: widsindex columns DESCRIPTOR --from-json {self._name}"


def write_column(path: Path, name: str, column: Column, fingerprint: str) -> None:
    """Write a column file atomically; an existing file is replaced.

    Args:
        path: Path of the file.
        name: Name of the column.
        column: One value for each sample.
        fingerprint: Fingerprint of the dataset.

    Raises:
        OSError: The file cannot be written.
    """
    pa = arrow()
    facts = orjson.dumps({"fingerprint": fingerprint, "samples": len(column)})
    values = to_arrow(column)
    schema = pa.schema([pa.field(name, values.type)], metadata={_FACTS: facts})
    with whole_file(path) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([values], schema=schema))
