"""`widsindex create`: shards to a descriptor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from wids.descriptor import load_descriptor
from wids.storage import Storage
from wids.tools import create_descriptor, write_json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "create",
        help="index shards and write their descriptor",
        description="Count the samples of each shard and write a descriptor (JSON).",
        epilog="examples:\n"
        "  widsindex create 'train-{000000..000099}.tar' -o train.json\n"
        "  widsindex create shards/ -o train.json -n train -i README.txt\n"
        "  find . -name '*.tar' | widsindex create - -o train.json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", help="shards, patterns or folders; - reads their names from stdin")
    parser.add_argument("-o", "--output", default="shardindex.json", help="descriptor to write (%(default)s)")
    parser.add_argument("-n", "--name", help="name of the dataset (from the first shard)")
    parser.add_argument("-i", "--info", metavar="FILE", help="file with a description of the dataset")
    parser.add_argument("-b", "--base", help="URL or folder that the shards' names will be resolved against")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write a descriptor."""
    files = [line.strip() for line in sys.stdin if line.strip()] if options.files == ["-"] else options.files
    storage = Storage()
    shards = [shard for file in files for shard in load_descriptor(file, fetch=storage.read).shards]
    if not shards:
        raise ValueError("no shards were named; give files, patterns or folders")
    output = Path(options.output)
    content = create_descriptor(
        tqdm(shards, "indexing", unit="shard", delay=1, disable=None),
        storage,
        folder=output.parent.absolute(),
        name=_default_name(str(shards[0]["url"])) if options.name is None else options.name,
        base=options.base,
        info=None if options.info is None else Path(options.info).read_text(encoding="utf-8"),
    )
    write_json(output, content)
    total = sum(entry["nsamples"] for entry in content["shardlist"])
    print(f"{output}: {total} samples in {len(shards)} shards")


def _default_name(url: str) -> str:
    """Return what the shards of a dataset usually share: the file's name without number and extension."""
    stem = url.rsplit("/", 1)[-1].split(".", maxsplit=1)[0]
    return stem.rstrip("0123456789").rstrip("-_") or stem
