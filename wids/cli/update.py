"""`widsindex update`: change what a descriptor says, and nothing else in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from wids.cli.arguments import add_command, add_workers
from wids.cli.terminal import fold
from wids.descriptor import load_descriptor
from wids.descriptor.urls import local_path
from wids.errors import DescriptorError, redact
from wids.storage import Storage
from wids.tools import recount, write_json
from wids.tools.files import refuse_url, writing
from wids.words import counted

if TYPE_CHECKING:
    import argparse
    from concurrent.futures import Executor


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "update",
        run,
        title="change a descriptor",
        description="Change what is asked for in a descriptor, and nothing else. The old one is kept as NAME.bak.",
        examples="""
widsindex update train.json --recount
widsindex update train.json -n train -b https://example.org/shards
""",
    )
    parser.add_argument("file", help="the descriptor")
    parser.add_argument("-n", "--name", help="set the dataset's name")
    parser.add_argument("-i", "--info", help="set the description")
    parser.add_argument("-b", "--base", help="set the base of the shards' URLs")
    parser.add_argument(
        "-B", "--rebase", action="store_true", help="move the folder that all shards share into the base"
    )
    folder = parser.add_mutually_exclusive_group()
    folder.add_argument("-d", "--dir", help="replace the folders of the shards' URLs by this one")
    folder.add_argument("-D", "--nodir", action="store_true", help="remove the folders from the shards' URLs")
    keep = parser.add_mutually_exclusive_group()
    keep.add_argument("-k", "--keep", action="store_true", default=None, help="mark the shards as to be kept in caches")
    keep.add_argument("-K", "--nokeep", action="store_false", dest="keep", default=None, help="remove that mark")
    parser.add_argument(
        "--recount",
        action="store_true",
        help="set counts, sizes and checksums, and the index pack, to what the shards have",
    )
    add_workers(parser)


def run(options: argparse.Namespace) -> None:
    """Change a descriptor."""
    from wids.cli.workers import workers

    storage = Storage()
    path = Path(options.file)
    refuse_url(path)
    load_descriptor(path, fetch=storage.read)  # raises for what is no descriptor, before anything is changed
    before = path.read_bytes()
    try:
        content: dict[str, Any] = orjson.loads(before)
    except ValueError as error:
        raise DescriptorError(f"{path}: is a shard, not a descriptor; make one with: widsindex create") from error
    if not any(getattr(options, name) for name in ("rebase", "nodir", "recount")) and all(
        getattr(options, name) is None for name in ("name", "info", "base", "keep", "dir")
    ):
        raise ValueError(f"{path}: no change was requested; see: widsindex update --help")
    for name in ("name", "info", "base", "keep"):
        if getattr(options, name) is not None:
            content[name] = getattr(options, name)
    _move(content, options)
    if options.recount:
        with workers(options.workers) as executor:
            _recount(content, path, storage, executor)
    if content == orjson.loads(before):
        return  # the .bak stays what was there before the last change
    with writing(path.with_name(f"{path.name}.bak")) as file:
        file.write(before)
    write_json(path, content)


def _move(content: dict[str, Any], options: argparse.Namespace) -> None:
    """Change the folders in the shards' URLs."""
    if not (options.rebase or options.nodir or options.dir is not None):
        return
    if "shardlist" not in content:
        raise ValueError(f"{options.file}: has no shardlist of its own; update the descriptors that its datasets name")
    entries = content["shardlist"]
    if options.rebase:
        folders = {str(entry["url"]).rpartition("/")[0] for entry in entries}
        if len(folders) != 1 or "" in folders:
            raise ValueError(
                f"{options.file}: the shards lie in {counted(len(folders), 'folder')}; --rebase needs one that all share"
            )
        content["base"] = folders.pop()
    for entry in entries:
        name = str(entry["url"]).rpartition("/")[2]
        entry["url"] = f"{options.dir.rstrip('/')}/{name}" if options.dir is not None else name


def _recount(content: dict[str, Any], path: Path, storage: Storage, executor: Executor | None) -> None:
    if content.get("rows") is not None:
        raise ValueError(f"{path}: selects rows, which other counts would change; recount the data, and select again")
    if "shardlist" not in content:
        raise ValueError(f"{path}: has no shardlist of its own; recount the descriptors that its datasets name")
    base = content.get("base") or ""
    if "://" not in base:
        base = str(path.parent.absolute() / Path(base).expanduser())
    own = load_descriptor({**content, "datasets": []}, fetch=storage.read, base=base)
    pack_path = None if own.index is None else local_path(own.index)
    if own.index is not None and pack_path is None:
        print(fold(f"{redact(own.index)}: not written again; make it with: widsindex create --index"))
    pack = None if pack_path is None else Path(pack_path)
    changes = recount(content["shardlist"], own.shards, storage, pack=pack, executor=executor, progress=True)
    for url, old, new in changes:
        print(fold(f"{redact(url)}: {old} -> {counted(new, 'sample')}"))
