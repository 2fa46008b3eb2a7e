"""Arrays of a dataset object in files of the cache folder, which all processes map and share; pickles hold only their paths.

    CACHE/.wids/columns/DIGEST.npy      the array whose dtype and bytes have this xxh3-128 digest, in numpy's own format

Equal arrays are stored once, so the ranks of a job share a file, as does the next run. Files that were not opened for a week
are removed when another one is written.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_128

from wids.columns.column import column_of
from wids.errors import FetchError
from wids.whole_file import whole_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from wids.columns.column import Column
    from wids.storage import Storage

_log = logging.getLogger(__name__)

_SMALL_BYTES = 1 << 16
"""Arrays up to this size are not stored in files, but pickled."""
_UNUSED_S = 7 * 24 * 3600.0
"""Seconds after which a file that was not opened may be removed."""


class KeptArray:
    """An array in a file of the cache folder, whose pickle holds the path of the file.

    Args:
        array: `(n,)`, of any dtype but object.
        storage: The storage whose cache folder the file is in; if it cannot be written to, the array itself is pickled.
    """

    def __init__(self, array: NDArray[Any], storage: Storage) -> None:
        self._array: NDArray[Any] | None = array
        self._path = None
        if array.nbytes > _SMALL_BYTES:
            try:
                self._path = _keep(np.ascontiguousarray(array), storage)
                self._array = None
            except OSError as error:
                _log.debug("a column is not kept in the cache folder: %s", error)

    @property
    def array(self) -> NDArray[Any]:
        """The array, mapped; read-only.

        Raises:
            FetchError: Its file was removed.
        """
        if self._array is None:
            assert self._path is not None, "without a file, the array is held in memory"
            try:
                self._array = np.load(self._path, mmap_mode="r", allow_pickle=False).view(np.ndarray)
                _note_use(self._path)
            except (OSError, ValueError) as error:
                raise FetchError(
                    f"{self._path}: a column that this dataset keeps in the cache folder cannot be opened ({error}); "
                    "open the dataset again"
                ) from error
        return self._array

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_array": self._array if self._path is None else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


class KeptColumn:
    """A column whose arrays are `KeptArray`s.

    Args:
        column: The column.
        storage: The storage whose cache folder the files are in.
    """

    def __init__(self, column: Column, storage: Storage) -> None:
        self._arrays = {name: KeptArray(array, storage) for name, array in column.arrays().items()}
        self._column: Column | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_column": None}

    @property
    def column(self) -> Column:
        """The column, mapped.

        Raises:
            FetchError: Its file was removed.
        """
        if self._column is None:
            self._column = column_of({name: kept.array for name, kept in self._arrays.items()})
        return self._column


def _keep(array: NDArray[Any], storage: Storage) -> Path:
    """Write an array to the cache folder, unless an equal one is there; return the path of its file."""
    storage.make_cache_folder()
    folder = Path(storage.cache_dir, ".wids", "columns")
    folder.mkdir(parents=True, exist_ok=True)
    digest = xxh3_128(array.dtype.str.encode())
    digest.update(array.view(np.uint8).data)
    path = folder / f"{digest.hexdigest()}.npy"
    if not _note_use(path):  # else the next array that is written would remove an old file before it is opened
        _remove_unused(folder)
        with whole_file(path, sync=False) as file:
            np.save(file, array, allow_pickle=False)
    return path


def _note_use(path: Path) -> bool:
    """Set a file's modification time, which tells when it was last used; return whether the file exists."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        _log.debug("%s: its time of last use cannot be set: %s", path, error)
    return True


def _remove_unused(folder: Path) -> None:
    oldest = time.time() - _UNUSED_S
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()
