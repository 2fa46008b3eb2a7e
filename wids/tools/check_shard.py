"""One shard to what is wrong with it, and to what is compared across shards: hashes of keys, and fields."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from xxhash import xxh3_64_intdigest

from wids.errors import TarFormatError, redact
from wids.index_files import IndexPack
from wids.source import digest_source
from wids.tar import add_checksums, group_members, scan_members
from wids.tools.findings import NUM_EXAMPLES, Finding, list_examples
from wids.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from wids.source import Source
    from wids.storage import Storage
    from wids.tar import Members, TarIndex


@dataclass(slots=True)
class ShardReport:
    """What one shard holds, and what is wrong with it."""

    name: str
    """URL without secrets."""
    findings: list[Finding] = field(default_factory=list)
    """In the order of the checks."""
    num_samples: int = 0
    """Samples in it; 0 when it cannot be read."""
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """`(num_distinct_keys,)` uint64, ascending, xxh3-64 of each key."""
    field_sets: dict[tuple[str, ...], tuple[int, str]] = field(default_factory=dict)
    """By set of fields, sorted: how many samples have it, and the key of the first."""

    @property
    def errors(self) -> list[Finding]:
        """Those findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]

    def add(self, kind: str, message: str, count: int = 1) -> None:
        """Add a finding; the message need not name the shard."""
        self.findings.append(Finding(kind, self.name, message.removeprefix(f"{self.name}: "), count))


class ShardChecker:
    """Checks shards, one after the other; pickles as its storage alone.

    Args:
        storage: Opens shards.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._packs: dict[str, IndexPack | str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardChecker, (self._storage,)

    def __call__(self, shard: Mapping[str, Any]) -> ShardReport:
        """Return what is wrong with a shard as it is stored, given as its entry in a descriptor."""
        report = ShardReport(redact(str(shard["url"])))
        with (
            self._noted(report),
            self._storage.stored.inspect(str(shard["url"]), digest=shard.get("md5sum") is not None) as it,
        ):
            _check_stored(report, it.size, it.md5, shard)
            self._check_content(report, it.source, shard)
        return report

    def check_cached(self, shard: Mapping[str, Any]) -> ShardReport | None:
        """Return what is wrong with the cached copy of a shard; None where there is none."""
        report = ShardReport(redact(str(shard["url"])))
        with self._noted(report):
            source = self._storage.open_cached(shard)
            if source is None:
                return None
            if source.identity.size == shard.get("filesize"):  # else it was unpacked, and its MD5 is not known
                md5 = digest_source(source) if shard.get("md5sum") is not None else None
                _check_stored(report, source.identity.size, md5, shard)
            self._check_content(report, source, shard)
        return report

    @contextmanager
    def _noted(self, report: ShardReport) -> Iterator[None]:
        """Turn what keeps a shard from being read into a finding."""
        try:
            yield
        except TarFormatError as error:
            report.add("damage", str(error))
        except (OSError, ValueError) as error:
            report.add("unreadable", str(error))

    def _check_content(self, report: ShardReport, source: Source, shard: Mapping[str, Any]) -> None:
        members = scan_members(source)
        index = group_members(members)
        self._check_pack(report, source, shard, index)
        _check_members(report, members)
        _check_samples(report, shard, index)

    def _check_pack(self, report: ShardReport, source: Source, shard: Mapping[str, Any], index: TarIndex) -> None:
        """Compare the shard with what the index pack says about it."""
        url = shard.get("index")
        if url is None:
            return
        pack = self._open_pack(url)
        packed = None if isinstance(pack, str) else pack.find(str(shard["url"]), source)
        if packed is None:
            reason = pack if isinstance(pack, str) else "it has no entry that fits"
            report.add("index-unused", f"the index pack {redact(url)} is not used: {reason}")
        elif not _are_equal(packed, index):
            report.add("index-differs", f"the index pack {redact(url)} names other members than the shard has")
        elif packed.checksums is not None:
            add_checksums(index, source)
            assert index.checksums is not None, "they were just computed"
            wrong = np.flatnonzero(index.checksums != packed.checksums)
            if len(wrong):
                texts = [_describe_member(index, int(member)) for member in wrong[:NUM_EXAMPLES]]
                report.add("member-checksum", f"changed members: {list_examples(texts, len(wrong))}", len(wrong))

    def _open_pack(self, url: str) -> IndexPack | str:
        """Return a pack, or in words why it cannot be used."""
        if url not in self._packs:
            try:
                self._packs[url] = IndexPack(self._storage.open({"url": url}), url)
            except Exception as error:  # zipfile raises half a dozen kinds for what is no ZIP
                self._packs[url] = str(error)
        return self._packs[url]


def read_keys(index: TarIndex) -> Iterator[bytes]:
    """Yield the keys of all samples in order."""
    text, start = bytes(index.keys), 0
    for end in index.key_ends.tolist():
        yield text[start:end]
        start = end


def hash_keys(index: TarIndex) -> NDArray[np.uint64]:
    """Return `(num_samples,)` uint64, the xxh3-64 of each key."""
    return np.fromiter((xxh3_64_intdigest(key) for key in read_keys(index)), np.uint64, index.num_samples)


def show(name: bytes) -> str:
    """Return a stored name for a message."""
    return repr(name.decode("utf-8", "surrogateescape"))


def _check_stored(report: ShardReport, size: int, md5: str | None, shard: Mapping[str, Any]) -> None:
    """Compare size and MD5 of the stored object with what the descriptor says."""
    expected_size, expected_md5 = shard.get("filesize"), shard.get("md5sum")
    if expected_size is not None and size != expected_size:
        report.add("size", f"has {size} bytes, the descriptor says {expected_size}")
    if expected_md5 is not None and md5 != expected_md5.lower():
        report.add("md5", f"has MD5 {md5}, the descriptor says {expected_md5.lower()}")


def _check_members(report: ShardReport, members: Members) -> None:
    if members.broken_links:
        texts = list(members.broken_links.values())
        report.add("broken-link", list_examples(texts, len(texts)), len(texts))
    examples: dict[str, list[str]] = {"apple-double": [], "no-field": []}
    counts = dict.fromkeys(examples, 0)
    for block in members.names.blocks():
        for row in np.flatnonzero(~block.find_dots()[1]).tolist():
            name = block.name(row)
            kind = "apple-double" if name.rpartition(b"/")[2].startswith(b"._") else "no-field"
            counts[kind] += 1
            if len(examples[kind]) < NUM_EXAMPLES:
                examples[kind].append(show(name))
    for kind, count in counts.items():
        if count:
            report.add(kind, f"in no sample: {list_examples(examples[kind], count)}", count)
    if not members.has_end_blocks:
        report.add("no-end-blocks", f"ends at byte {members.end} without its end blocks; it may have been cut there")
    if members.bytes_after_end:
        report.add("bytes-after-end", f"{members.bytes_after_end} bytes follow the archive's end at byte {members.end}")


def _check_samples(report: ShardReport, shard: Mapping[str, Any], index: TarIndex) -> None:
    report.num_samples = found = index.num_samples
    expected = shard.get("nsamples")
    if expected is not None and found != expected:
        kind = "too-few-samples" if found < expected else "too-many-samples"
        report.add(kind, f"has {counted(found, 'sample')}, the descriptor says {expected}")
    _check_fields(report, index)
    hashes = hash_keys(index)
    report.hashes, counts = np.unique(hashes, return_counts=True)
    if (counts > 1).any():
        _check_scattered(report, index, np.isin(hashes, report.hashes[counts > 1]))


def _check_fields(report: ShardReport, index: TarIndex) -> None:
    texts = []
    num_twice = 0
    for kind, fields in enumerate(index.fields_of_kind):
        rows = np.flatnonzero(index.kinds == kind)
        if not len(rows):
            continue
        count, first = report.field_sets.get(names := tuple(sorted(set(fields))), (0, _key(index, int(rows[0]))))
        report.field_sets[names] = (count + len(rows), first)
        if len(names) != len(fields):
            num_twice += len(rows)
            texts += [_describe_twice(index, int(row), fields) for row in rows[:NUM_EXAMPLES]]
    if num_twice:
        report.add("duplicate-field", list_examples(texts, num_twice), num_twice)


def _check_scattered(report: ShardReport, index: TarIndex, suspects: NDArray[np.bool_]) -> None:
    """Report keys that come again later in the shard; equal hashes only say where to look."""
    positions: dict[bytes, list[int]] = {}
    for position, (key, is_suspect) in enumerate(zip(read_keys(index), suspects.tolist(), strict=True)):
        if is_suspect:
            positions.setdefault(key, []).append(position)
    again = {key: places for key, places in positions.items() if len(places) > 1}
    if again:
        texts = [
            f"{show(key)} at positions {list_examples(list(map(str, places)), len(places))}"
            for key, places in list(again.items())[:NUM_EXAMPLES]
        ]
        report.add("scattered-key", list_examples(texts, len(again)), len(again))


def _describe_twice(index: TarIndex, position: int, fields: tuple[str, ...]) -> str:
    name = next(name for place, name in enumerate(fields) if name in fields[:place])
    first = int(index.starts[position])
    offsets = [int(index.offsets[first + place]) for place, other in enumerate(fields) if other == name]
    return f"key {_key(index, position)} has the field {name!r} at bytes {' and '.join(map(str, offsets))}"


def _describe_member(index: TarIndex, member: int) -> str:
    position = int(np.searchsorted(index.starts, member, "right")) - 1
    name = index.fields_of_kind[index.kinds[position]][member - int(index.starts[position])]
    return f"key {_key(index, position)}, field {name!r}, at byte {index.offsets[member]}"


def _key(index: TarIndex, position: int) -> str:
    start = int(index.key_ends[position - 1]) if position else 0
    return show(bytes(index.keys[start : int(index.key_ends[position])]))


def _are_equal(packed: TarIndex, index: TarIndex) -> bool:
    columns = ("offsets", "sizes", "starts", "key_ends")
    return (
        all(np.array_equal(getattr(packed, name), getattr(index, name)) for name in columns)
        and bytes(packed.keys) == bytes(index.keys)
        and [packed.fields_of_kind[kind] for kind in packed.kinds.tolist()]
        == [index.fields_of_kind[kind] for kind in index.kinds.tolist()]
    )
