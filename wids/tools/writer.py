"""`ShardWriter`: samples to numbered shards, and to the descriptor and index pack that go with them.

    with ShardWriter("out/train-%06d.tar", max_bytes="1GB") as writer:
        for number, (image, label) in enumerate(examples):
            writer.write({"__key__": f"{number:09d}", "jpg": image, "cls": label})

A shard is written under a private name, and finished while the next one is written: read back, flushed to the disk and
renamed, always after the one before it. So at any moment the shards that exist are whole, and are the first ones of the dataset.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wids.encode import Encoder
from wids.errors import EncodeError, WidsError, redact
from wids.storage import PerProcess
from wids.tar.make_header import HeaderMaker
from wids.tools.check_shard import read_keys
from wids.tools.files import explaining
from wids.tools.finish import Finisher, check_facts, describe_existing, finish_shard, remove_shards, write_descriptor
from wids.tools.sample_names import encode_field, encode_key
from wids.tools.shard_file import ShardFile, make_limits
from wids.tools.shard_names import ShardNames
from wids.tools.targets import open_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from typing_extensions import Self

    from wids.tools.describe import ShardDescription


_log = logging.getLogger(__name__)

_MOST_REMEMBERED = 1000
"""Most fields whose stored names are remembered."""


class ShardWriter:
    """Writes samples into shards of limited size; use it in a `with` block.

    A shard appears only when it is whole. If an error ends the block, the shards that were full by then stay, the one that was
    being written is removed, and there is no descriptor; `resume=True` continues from there, as it does after a crash.

    Several threads may write; in which order is up to them. A process that is forked while the writer is open cannot write
    with it, and leaves to its parent what is being written.

    Args:
        pattern: Names of the shards, with one `%d`: a path (`"out/train-%06d.tar"`; the folder is made) or the URL of a
            store that fsspec supports. `.tar.gz`, `.tar.zst`, `.tar.xz` and `.tar.bz2` are compressed.
        max_samples: Most samples in a shard; None for any number. webdataset calls it `maxcount`.
        max_bytes: Most bytes of a shard, uncompressed, headers included, or `"500MB"`; a larger sample gets a shard of its
            own. webdataset calls it `maxsize`. Without any limit, a shard has 1 GB.
        start_shard: Number of the first shard.
        align: Let each member's bytes begin at a multiple of this many bytes, a power of two up to 64 KiB; 4096 for readers
            that map them. None for the 512 of tar.
        index: When all shards are written, write a descriptor and its index pack beside them, named like them; without any
            samples they are those of an empty dataset.
        facts: Further entries of the descriptor, such as `{"info": "…", "classes": ["cat", "dog"]}`.
        md5: Record the MD5 of each shard in the descriptor, which takes about as long as writing large samples does; readers
            compare it with `checksum="md5"`. Sizes are always recorded.
        encoders: The user's own, `{".ext": function from a value to bytes}`, which come before all others.
        allow_pickle: Allow values that only pickle can hold; readers then have to trust you.
        mtime: Time of every member, in seconds since 1970, cut to whole ones; fixed so that equal samples give equal shards.
        resume: Continue after the existing shards; `num_samples` and `last_key` tell which sample comes next.
        overwrite: First remove the existing shards, from `start_shard` up to the first number that is missing.
        maxcount: The same as `max_samples`.
        maxsize: The same as `max_bytes`.
        storage_options: Passed on to fsspec.

    Raises:
        ValueError: An argument has a value that it cannot have.
        FetchError: Nothing can be written to such a URL.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with ShardWriter(f"{folder}/digits-%04d.tar", max_samples=2) as writer:
        ...     for number in range(5):
        ...         facts = {"even": number % 2 == 0}
        ...         writer.write({"__key__": f"{number:03d}", "cls": number, ".json": facts})
        >>> import wids
        >>> dataset = wids.ShardListDataset(f"{folder}/digits.json")
        >>> len(dataset), dataset[4][".cls"], dataset[4][".json"]
        (5, 4, {'even': True})
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        max_samples: float | None = None,
        max_bytes: float | str | None = None,
        start_shard: int = 0,
        align: int | None = None,
        index: bool = True,
        facts: Mapping[str, Any] | None = None,
        md5: bool = False,
        encoders: Mapping[str, Callable[[Any], Any]] | None = None,
        allow_pickle: bool = False,
        mtime: float = 0,
        resume: bool = False,
        overwrite: bool = False,
        maxcount: float | None = None,
        maxsize: float | str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        max_samples = _either("max_samples", max_samples, "maxcount", maxcount)
        max_bytes = _either("max_bytes", max_bytes, "maxsize", maxsize)
        self._limits = make_limits(max_samples, max_bytes)
        if start_shard < 0:
            raise ValueError(f"start_shard is {start_shard}; it must be at least 0")
        if resume and overwrite:
            raise ValueError("resume keeps existing shards and overwrite removes them; give one of the two")
        self._names = ShardNames.parse(pattern)
        self._target = open_target(self._names.folder, storage_options)
        self._storage_options = storage_options
        self._headers = HeaderMaker(mtime=int(mtime), align=align)
        self._encode = Encoder(encoders, allow_pickle=allow_pickle)
        self._index = index
        self._facts = check_facts(facts or {}, self._names)
        self._md5 = md5
        self._resume = resume
        self._overwrite = overwrite
        self._next_shard = start_shard
        self._fields: dict[str, tuple[str, bytes]] = {}
        self._found: list[tuple[str, ShardDescription]] = []
        self._finisher = Finisher(self._finish)
        self._shard: ShardFile | None = None
        self._num_samples = 0
        self._last_key: str | None = None
        # Each process has its own, so that a fork has none that another thread holds; a signal may come while it is held.
        self._lock = PerProcess(threading.RLock)
        self._opened_by: int | None = None
        self._is_closed = False
        self._failure: BaseException | None = None

    # What the user asks for

    @property
    def num_samples(self) -> int:
        """How many samples were written, including those in the shards that `resume` found.

        Raises:
            WidsError: The existing shards cannot be read.
            FileExistsError: Shards exist, and neither `resume` nor `overwrite` is given.
        """
        with self._lock.get():
            if not self._is_closed:
                self._open()
            return self._num_samples

    @property
    def last_key(self) -> str | None:
        """Key of the last of these samples; None if there are none. Raises what `num_samples` raises."""
        with self._lock.get():
            if not self._is_closed:
                self._open()
            return self._last_key

    def write(self, sample: Mapping[str, Any]) -> None:
        """Write the next sample.

        Args:
            sample: `__key__`, and fields with or without their dot: bytes, or a value that the field's extension can hold.
                Other names that begin with two underscores are left out.

        Raises:
            EncodeError: The sample would not be read back the same, or a value cannot be encoded. Nothing of it is written,
                and the next one can be.
            FileExistsError: A shard of the next name exists.
            WidsError: Writing failed before, or the writer is closed, or was open when this process was forked.
            OSError: The sample cannot be written.
        """
        members = self._encode_sample(sample)
        with self._lock.get():
            self._open()
            self._add(sample["__key__"], members)

    def close(self) -> None:
        """Finish the last shard and write the descriptor; a second call does nothing.

        Raises:
            OSError: A shard cannot be written.
            WidsError: Writing failed before; the existing shards are whole, and `resume=True` continues after them.
        """
        with self._lock.get():
            if self._is_closed:
                return
            try:
                self._open()
                self._finish_current()
                self._finisher.wait()
                if self._index:
                    with explaining(self._target.url(self._names.descriptor)):
                        write_descriptor(self._names, self._target, self._found, self._facts)
            finally:
                self._abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with self._lock.get():
                self._abandon()

    # Shards

    def _open(self) -> None:
        """Look at what exists, the first time.

        Raises:
            WidsError: The writer is closed, has failed, or was opened before this process was forked.
            Exception: What the shard that is being finished raised; the next call raises the WidsError.
        """
        if self._failure is not None:
            if self._opened_by == os.getpid():
                # At whichever call the failure of the other thread is noticed, it is the same error.
                self._finisher.wait()
            raise WidsError(
                f"{self._shown}: writing failed: {self._failure}; the existing shards are complete, continue after them with resume=True"
            ) from self._failure
        if self._is_closed:
            raise WidsError(f"{self._shown}: the writer is closed; make another, with resume=True to continue")
        if self._opened_by is not None:
            if self._opened_by != os.getpid():
                raise WidsError(
                    f"{self._shown}: the writer was opened before this process was forked, and writes only in the parent; make one "
                    "in each process"
                )
            return
        first = self._next_shard
        with explaining(self._target.url(self._names.pattern)):
            self._target.prepare()
            if self._overwrite:
                remove_shards(self._names, self._target, first)
        if not (self._overwrite or self._resume):
            self._refuse_existing(self._names.name(first))
            if self._index:
                self._refuse_existing(self._names.descriptor)
        while self._target.exists(name := self._names.name(self._next_shard)):
            self._take_over(name)
            self._next_shard += 1
        self._opened_by = os.getpid()

    def _take_over(self, name: str) -> None:
        found, index = describe_existing(self._target, name, self._storage_options, md5=self._md5)
        self._found.append((name, found))
        self._num_samples += found.num_samples
        for key in read_keys(index):
            self._last_key = key.decode("utf-8", "surrogateescape")

    def _refuse_existing(self, name: str) -> None:
        if self._target.exists(name):
            raise FileExistsError(
                f"{redact(self._target.url(name))}: already exists; continue after the existing shards with resume=True, "
                "replace them with overwrite=True, or write elsewhere"
            )

    def _add(self, key: str, members: list[tuple[bytes, Any]]) -> None:
        """Write an encoded sample.

        Raises:
            EncodeError: The one before has its key.
            OSError: It cannot be written.
        """
        if key == self._last_key:
            raise EncodeError(
                f"key {key!r}: is also that of the previous sample, so the two would become one; give each sample its own key"
            )
        shard = self._shard
        if shard is not None:
            headers, num_bytes = shard.make_headers(members)
            if not self._limits.allow(shard.num_samples + 1, num_bytes):
                self._finish_current()
                shard = None
        if shard is None:
            shard = self._shard = self._begin_shard()
            headers, _ = shard.make_headers(members)
        try:
            shard.add(members, headers)
        except BaseException:
            # Entered only after an error: entering a context costs as much as writing a small member.
            with self._guarded(shard):
                raise
        self._num_samples += 1
        self._last_key = key

    def _begin_shard(self) -> ShardFile:
        name = self._names.name(self._next_shard)
        with explaining(self._target.url(name)):
            self._refuse_existing(name)
            part = self._target.make_part(name)
        shard = ShardFile(part, name, self._headers)
        self._next_shard += 1
        return shard

    def _finish_current(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            with self._guarded(shard):
                shard.finish()
                self._finisher.submit(shard)

    def _finish(self, shard: ShardFile) -> None:
        with self._guarded(shard):
            found = finish_shard(shard, self._target, index=self._index, md5=self._md5)
            if found is not None:
                self._found.append((shard.name, found))

    @contextmanager
    def _guarded(self, shard: ShardFile) -> Iterator[None]:
        """After an error, remove the shard, and note the failure so that no later shard appears."""
        try:
            with explaining(self._target.url(shard.name)):
                yield
        except BaseException as error:
            self._failure = error
            shard.drop()
            raise

    def _abandon(self) -> None:
        """Release everything, and drop the current shard; one that is being finished still is, except in a fork."""
        self._is_closed = True
        if self._shard is not None:
            self._shard.drop()
            self._shard = None
        if self._opened_by not in {None, os.getpid()}:
            return
        try:
            self._finisher.wait()
        except Exception as error:  # it was raised before, or an error of the user's is being raised
            _log.debug("%s: %s", self._shown, error)
        self._finisher.close()
        self._target.close()

    @property
    def _shown(self) -> str:
        return redact(self._target.url(self._names.pattern))

    # Samples

    def _encode_sample(self, sample: Mapping[str, Any]) -> list[tuple[bytes, Any]]:
        """Return `(name, bytes)` of a sample's members.

        Raises:
            EncodeError: It would not be read back the same.
        """
        key = sample.get("__key__")
        name = encode_key(key)
        fields = self._fields
        members: dict[bytes, tuple[bytes, Any]] = {}
        for given, value in sample.items():
            known = fields.get(given) or self._remember(given)
            field, stored = known
            if not field:
                continue
            if stored in members:
                raise EncodeError(
                    f"key {key!r}: has the field {field!r} twice, with and without its dot; give one of them"
                )
            members[stored] = (name + stored, self._encode(key, field, value))  # type: ignore[arg-type]
        if not members:
            raise EncodeError(f"key {key!r}: has no fields, so nothing of it would be stored; give it one")
        return list(members.values())

    def _remember(self, given: str) -> tuple[str, bytes]:
        """Return a field with its dot, as text and as it is stored; both are empty for what is left out."""
        if len(self._fields) >= _MOST_REMEMBERED:
            self._fields.clear()
        if isinstance(given, str) and given.startswith("__"):
            known = ("", b"")
        else:
            stored = encode_field(given)
            known = (given if given.startswith(".") else f".{given}", stored)
        self._fields[given] = known
        return known


def _either(name: str, value: Any, other: str, alias: Any) -> Any:
    if value is not None and alias is not None:
        raise ValueError(f"{name} and {other} are the same; give one of them")
    return alias if value is None else value
