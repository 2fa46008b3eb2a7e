"""Shards to a descriptor: how many samples each has, its size and its checksum; and to a pack of their indexes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.descriptor import load_descriptor
from wids.descriptor.urls import is_url
from wids.errors import DescriptorError, WidsError, redact
from wids.fingerprint import basename
from wids.index_files import SUFFIX, write_pack
from wids.storage import Storage
from wids.tools.describe import Wanted
from wids.tools.files import check_place, encode_json, explaining, refuse_shards, write_json
from wids.tools.journal import Journal
from wids.tools.survey import Survey
from wids.words import counted_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor


class LeftOutError(WidsError):
    """Shards cannot be read; names them, and if they are several, each on a line of its own behind the first."""


def create_index(
    shards: Any,
    output: str | os.PathLike[str] | None,
    *,
    name: str | None = None,
    base: str | None = None,
    info: str | None = None,
    md5: bool = True,
    index: bool = False,
    checksums: bool = False,
    executor: Executor | None = None,
    progress: bool = False,
    resume: bool = True,
    storage: Storage | None = None,
) -> dict[str, Any]:
    """Write the descriptor of shards, in their order, and return what it says.

    What is found in each shard is written to a journal beside the descriptor (`.NAME.journal`): a run that follows an
    interrupted one reads only the remaining shards, and a later run only those that are new or have changed, as their size,
    times, inode or the tag of their store tells.

    Args:
        shards: What `ShardListDataset` takes: a folder, a pattern, a list of paths or URLs, …
        output: Path of the descriptor; it appears only whole. Shards under its folder are named relative to it. None
            writes nothing, and names them relative to the present folder.
        name: Of the dataset; None for what its shards' names begin with.
        base: What readers resolve the URLs against; shards are then named by the last part of their URLs.
        info: A description in words.
        md5: Record the MD5 of each shard; without it only headers are read.
        index: Also write a pack of the shards' indexes beside the descriptor, `NAME.widx`, which the descriptor names.
        checksums: Put a checksum of each member into the pack, for `verify_members=True`; implies `index`.
        executor: Reads the shards, and is given a bounded number of them at a time: any `concurrent.futures.Executor`,
            also a cluster's (Dask's `client.get_executor()`, `mpi4py.futures`), whose machines must see the shards under
            the same names. None for one shard after the other in this thread.
        progress: Show a bar when it takes more than a moment.
        resume: Use what an earlier run found in shards that have not changed since.
        storage: Opens shards; None for one with the defaults.

    Raises:
        DescriptorError: No shards were named, or the descriptor could not name them.
        OSError: The descriptor cannot be written.
        WidsError: Shards cannot be read. The descriptor of the others was written; the message lists those left out.
            Or a process of the executor was ended, or the executor gave up; the journal has what was found until then.

    Examples:
        >>> content = create_index(["shard-0000.tar", "shard-0001.tar"], "both.json")
        >>> content["name"], [(shard["url"], shard["nsamples"]) for shard in content["shardlist"]]
        ('shard', [('shard-0000.tar', 50), ('shard-0001.tar', 50)])
    """
    storage = storage or Storage()
    wanted = Wanted(md5=md5, index=index or checksums, checksums=checksums)
    path = None if output is None else Path(output)
    _check_output(path, wanted)
    listed = _list_shards(shards, path, storage)
    names = name_shards(listed, (Path() if path is None else path.parent).absolute(), base)
    content = _describe_dataset(_default_name(listed[0]) if name is None else name, base, info)
    if path is not None:
        encode_json(content, str(path))  # fails before the work is done, not after
    pack = path.with_suffix(SUFFIX) if path is not None and wanted.index else None
    with Journal(path, pack, is_fresh=not resume) as journal:
        survey = Survey(journal, storage, wanted)
        errors = survey.run(dict(zip(listed, names, strict=True)), executor, progress=progress)
        found = [(url, name) for url, name in zip(listed, names, strict=True) if url not in errors]
        if found:
            content |= _list_found(found, survey, pack, md5=md5)
            if path is not None:
                write_json(path, content)
                survey.settle()
    if errors:
        raise _name_left_out(path, errors, len(listed) if found else len(errors))
    return content


def _check_output(path: Path | None, wanted: Wanted) -> None:
    """Check that the descriptor and its pack can be written to this path.

    Raises:
        DescriptorError: They cannot.
    """
    if path is not None:
        check_place(path)
    elif wanted.index:
        raise DescriptorError("an index pack is written beside its descriptor; name a file for the descriptor")


def _list_shards(shards: Any, path: Path | None, storage: Storage) -> list[str]:
    """Return the URLs of the shards that a user named.

    Raises:
        DescriptorError: There are none, or the descriptor would be written over one.
    """
    descriptor = load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder)
    listed = [str(shard["url"]) for shard in descriptor.shards]
    if not listed:
        raise DescriptorError("no shards were named; give files, patterns or folders")
    if path is not None:
        refuse_shards(path, listed)
    return listed


def _describe_dataset(name: str, base: str | None, info: str | None) -> dict[str, Any]:
    """Return what a descriptor says besides its shards."""
    content = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": name, "base": base, "info": info}
    return {key: value for key, value in content.items() if value is not None}


def _list_found(found: Sequence[tuple[str, str]], survey: Survey, pack: Path | None, *, md5: bool) -> dict[str, Any]:
    """Write the pack of shards, if one is wanted; return what the descriptor says of both.

    Args:
        found: URL of each shard, and what the descriptor calls it.
        survey: Has been run on them.
        pack: Path of the pack; None for none.
        md5: Record the MD5 of each shard.
    """
    content: dict[str, Any] = {}
    if pack is not None:
        with explaining(str(pack)):
            # In the pack, too, shards are named relative to the descriptor.
            write_pack(pack, pack.name, ((name, *survey.packed(url, name)) for url, name in found))
        content["index"] = pack.name
    content["shardlist"] = [survey.found[url].to_entry(name, md5=md5) for url, name in found]
    return content


def _name_left_out(path: Path | None, errors: Mapping[str, str], num_shards: int) -> WidsError:
    """Return the error that lists the shards which cannot be read."""
    where = str(path or "descriptor").replace("\n", " ")
    gap = " " if len(errors) == 1 else "\n"
    left_out = gap.join(" ".join(error.split()) for error in errors.values())
    if len(errors) == num_shards:
        return LeftOutError(f"{where}: not written, no shard can be read:{gap}{left_out}")
    return LeftOutError(
        f"{where}: {counted_of(len(errors), num_shards, 'shard', 'was', 'were')} left out:{gap}{left_out}"
    )


def name_shards(urls: Sequence[str], folder: Path, base: str | None) -> list[str]:
    """Return what a descriptor in `folder` calls shards.

    Raises:
        DescriptorError: JSON cannot hold a name, or two shards would have the same one.
    """
    named: dict[str, str] = {}
    names = [_name_shard(url, folder, base) for url in urls]
    for name, url in zip(names, urls, strict=True):
        if not _is_utf8(name):
            raise DescriptorError(f"{url}: this name is not UTF-8, and JSON cannot hold it; rename the shard")
        if named.setdefault(name, url) != url and base is not None:
            raise DescriptorError(
                f"{redact(named[name])} and {redact(url)} would both be {name} under the base {redact(base)}; "
                "rename one, or give no base"
            )
    return names


def _name_shard(url: str, folder: Path, base: str | None) -> str:
    if is_url(url):
        return url
    if base is not None:
        return Path(url).name
    # resolve() would follow links, which may be how shards are arranged.
    path = Path(os.path.abspath(os.path.expanduser(url)))  # noqa: PTH100, PTH111
    if not path.is_relative_to(folder):
        return str(path)
    name = str(path.relative_to(folder))
    return f"./{name}" if name.startswith("~") else name


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _default_name(url: str) -> str:
    """Return what the names of a dataset's shards usually share: a file's name without number and extension.

    Examples:
        >>> _default_name("/data/train-000012.tar.gz"), _default_name("https://x.org/0007.tar?sig=1")
        ('train', '0007')
        >>> _default_name("/data/what?-01.tar")
        'what?'
    """
    stem = basename(redact(url)).partition(".")[0]
    return stem.rstrip("0123456789").rstrip("-_") or stem
