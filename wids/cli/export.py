"""`widsindex export`: index files of other tools, for shards that have a descriptor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command, add_workers
from wids.cli.terminal import fold
from wids.descriptor.urls import local_path
from wids.errors import redact
from wids.words import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Executor

    from wids.storage import Storage


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "export",
        run,
        title="write the index files of DALI or Energon",
        description="Write the index files that other tools need: an .idx for each shard, which DALI's fn.readers.webdataset "
        "takes as index_paths; or .nv-meta and .tar.idx beside the shards, with which Energon opens the folder.",
        examples="""
widsindex export train.json --to dali -o idx/
widsindex export train=train.json val=val.json --to energon
""",
    )
    parser.add_argument(
        "files", nargs="+", metavar="[SPLIT=]FILE", help="descriptors, folders or patterns (train=FILE)"
    )
    parser.add_argument("--to", choices=("dali", "energon"), required=True, help="which tool's files to write")
    parser.add_argument("-o", "--output", metavar="DIR", help="folder to write to (that of the shards)")
    add_workers(parser)


def run(options: argparse.Namespace) -> None:
    """Write the files."""
    from wids.cli.workers import workers
    from wids.descriptor import load_descriptor
    from wids.storage import Storage

    storage = Storage()
    splits: dict[str, list[dict[str, Any]]] = {}
    for text in options.files:
        split, file = _split_argument(text)
        shards = load_descriptor(file, fetch=storage.read, list_folder=storage.list_folder).shards
        splits.setdefault(split, []).extend(shards)
    if not _in_all(splits):
        raise ValueError(
            f"{redact(', '.join(options.files))}: there are no shards to export; name a descriptor that has some"
        )
    folder = Path(options.output) if options.output else _shared_folder(_in_all(splits))
    with workers(options.workers) as executor:
        print(fold(_export(options.to, splits, folder, storage, executor)))


def _export(
    to: str,
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
    folder: Path,
    storage: Storage,
    executor: Executor | None,
) -> str:
    """Write the files; return the line to print."""
    from wids.tools.export import export_dali, export_energon

    if to == "dali":
        shards = _in_all(splits)
        paths = export_dali(shards, folder, storage=storage, executor=executor, progress=True)
        names = dict.fromkeys(path.name for path in (*paths[:1], *paths[-1:]))
        return f"{folder}: {counted(len(paths), 'index file')}, {' to '.join(names)}"
    meta = export_energon(splits, folder, storage=storage, executor=executor, progress=True)
    counts = (f"{split} ({counted(len(shards), 'shard')})" for split, shards in splits.items())
    return f"{meta}: {', '.join(counts)}"


def _in_all(splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    return [shard for shards in splits.values() for shard in shards]


def _split_argument(text: str) -> tuple[str, str]:
    """Return the split and the file that an argument names.

    Examples:
        >>> _split_argument("val=data/val.json"), _split_argument("data/train.json"), _split_argument("s3://b/x?a=1")
        (('val', 'data/val.json'), ('train', 'data/train.json'), ('train', 's3://b/x?a=1'))
    """
    split, equals, file = text.partition("=")
    return (split, file) if equals and split.isidentifier() else ("train", text)


def _shared_folder(shards: Sequence[Mapping[str, Any]]) -> Path:
    """Return the folder on this machine that all shards are in.

    Raises:
        ValueError: There is none.
    """
    paths = [local_path(str(shard["url"])) for shard in shards]
    folders = [Path(path).parent for path in paths if path is not None]
    if not folders or None in paths:
        raise ValueError("the shards are not in a local folder; name a folder to write to with --output")
    if len({folder.is_absolute() for folder in folders}) > 1:
        folders = [folder.absolute() for folder in folders]
    return Path(os.path.commonpath(folders))
