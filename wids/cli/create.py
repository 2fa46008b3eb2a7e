"""`widsindex create`: shards to a descriptor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wids.cli.terminal import printable
from wids.errors import redact
from wids.tools import create_index


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "create",
        help="index shards and write their descriptor",
        description="Count the samples of each shard and write a descriptor (JSON). Shards that cannot be read are "
        "listed, the others written, and the exit status is 1.",
        epilog="examples:\n"
        "  widsindex create 'train-{000000..000099}.tar' -o train.json\n"
        "  widsindex create shards/ -o train.json -n train -i README.txt\n"
        "  widsindex create shards/ -o train.json --index --checksums --workers 8\n"
        "  find . -name '*.tar' | widsindex create - -o train.json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", help="shards, patterns or folders; - reads their names from stdin")
    parser.add_argument("-o", "--output", default="shardindex.json", help="descriptor to write (%(default)s)")
    parser.add_argument("-n", "--name", help="name of the dataset (what the shards' names share)")
    parser.add_argument("-i", "--info", metavar="FILE", help="file with a description of the dataset")
    parser.add_argument("-b", "--base", help="URL or folder that the shards' names will be resolved against")
    parser.add_argument("--index", action="store_true", help="also write the pack of the shards' indexes beside it")
    parser.add_argument("--checksums", action="store_true", help="put the checksum of each member into the pack")
    parser.add_argument("-w", "--workers", type=int, default=1, help="processes that read shards (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write a descriptor."""
    from wids.cli.workers import workers

    files = [name for file in options.files for name in (_read_names() if file == "-" else [file])]
    with workers(options.workers) as executor:
        content = create_index(
            files,
            options.output,
            name=options.name,
            base=options.base,
            info=None if options.info is None else Path(options.info).read_text(encoding="utf-8"),
            index=options.index,
            checksums=options.checksums,
            executor=executor,
            progress=True,
        )
    total = sum(entry["nsamples"] for entry in content["shardlist"])
    print(printable(f"{options.output}: {total} samples in {len(content['shardlist'])} shards"))
    if options.base is not None and "index" in content:
        print(printable(f"{content['index']}: readers look for it under {redact(options.base)}; put it there"))


def _read_names() -> list[str]:
    return [line.rstrip("\n") for line in sys.stdin if line.strip()]
