"""`widsindex create`: shards to a descriptor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wids.cli.arguments import add_command, add_workers
from wids.cli.terminal import fold, printable
from wids.errors import redact
from wids.words import samples_in_shards


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "create",
        run,
        title="index shards and write their descriptor",
        description="Count the samples of each shard and write a descriptor (JSON). Shards that cannot be read are listed at the "
        "end, the others are written, and the exit status is 1. Results are kept in .NAME.journal beside the descriptor: an "
        "interrupted run resumes from it, and a later run reads only shards that are new or have changed.",
        examples="""
widsindex create 'train-{000000..000099}.tar' -o train.json
widsindex create shards/ -o train.json -n train -i README.txt
widsindex create shards/ -o train.json --index --checksums -w 8
widsindex create shards/ -o train.json --no-md5
find . -name 'train-*.tar' | sort | widsindex create - -o -
""",
    )
    parser.add_argument("files", nargs="+", help="shards, patterns or folders; - reads their names from stdin")
    parser.add_argument(
        "-o", "--output", default="shardindex.json", help="descriptor to write; - writes it to stdout (%(default)s)"
    )
    parser.add_argument("-n", "--name", help="name of the dataset (what the shards' names share)")
    parser.add_argument("-i", "--info", metavar="FILE", help="file with a description of the dataset")
    parser.add_argument("-b", "--base", help="URL or folder that readers resolve the shards' names against")
    parser.add_argument(
        "--md5",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="record the MD5 of each shard; without it only headers are read",
    )
    parser.add_argument(
        "--index", action="store_true", help="also write a pack of the shards' indexes beside the descriptor"
    )
    parser.add_argument("--checksums", action="store_true", help="put the checksum of each member into the pack")
    parser.add_argument(
        "--no-resume", dest="resume", action="store_false", help="read all shards again, whatever an earlier run found"
    )
    add_workers(parser)


def run(options: argparse.Namespace) -> int:
    """Write a descriptor; return the exit status."""
    from wids.tools.create import LeftOutError

    try:
        _create(options)
    except LeftOutError as error:
        summary, *reasons = str(error).split("\n")
        print(f"widsindex: {printable(summary)}", *map(printable, reasons), sep="\n  ", file=sys.stderr)
        return 1
    return 0


def _create(options: argparse.Namespace) -> None:
    from wids.cli.inputs import expand_names
    from wids.cli.workers import workers
    from wids.tools import create_index
    from wids.tools.files import encode_json

    to_stdout = options.output == "-"
    with workers(options.workers) as executor:
        content = create_index(
            expand_names(options.files),
            None if to_stdout else options.output,
            name=options.name,
            base=options.base,
            info=None if options.info is None else Path(options.info).read_text(encoding="utf-8"),
            md5=options.md5,
            index=options.index,
            checksums=options.checksums,
            executor=executor,
            progress=True,
            resume=options.resume,
        )
    if to_stdout:
        sys.stdout.buffer.write(encode_json(content, "-"))
        return
    total = sum(entry["nsamples"] for entry in content["shardlist"])
    print(fold(f"{options.output}: {samples_in_shards(total, len(content['shardlist']))}"))
    if options.base is not None and "index" in content:
        print(fold(f"{content['index']}: readers look for it under {redact(options.base)}; put it there"))
