"""`widsindex reshard`: shards to shards of another size, order, subset or compression."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wids.cli.arguments import add_command, add_data_set, add_workers
from wids.cli.terminal import fold
from wids.errors import redact
from wids.words import counted, samples_in_shards

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "reshard",
        run,
        title="write shards of another size, order or subset",
        description="Copy the samples of a dataset into new shards, with a descriptor and an index pack beside them. The bytes "
        "of their members stay as they are. A shard appears only when it is whole; --resume continues an interrupted run.",
        examples="""
widsindex reshard train.json -o new/train-%06d.tar --max-bytes 1GB
widsindex reshard train.json -o new/train-%06d.tar --shuffle --seed 1 -w 8
widsindex reshard train.json -o new/train-%06d.tar.zst --max-samples 5000
widsindex reshard train.json -o val/val-%04d.tar --samples 0-9999
widsindex reshard train.json -o txt/txt-%04d.tar --fields txt,json
cut -f1 good.tsv | widsindex reshard train.json -o ok/ok-%05d.tar --keys -
""",
    )
    add_data_set(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATTERN", required=True, help="new shards: out/train-%%06d.tar, .tar.gz or .tar.zst"
    )
    size = parser.add_argument_group("how much goes into a shard (1GB)")
    size.add_argument("--max-samples", metavar="N", type=int, help="most samples")
    size.add_argument("--max-bytes", metavar="SIZE", help="most bytes, uncompressed, or 500MB")
    what = parser.add_argument_group("which samples, in which order (all, in theirs)")
    what.add_argument("--samples", metavar="A-B", help="first and last index, counted from 0; or a single one")
    what.add_argument("--keys", metavar="FILE", help="only the keys in it, one per line; - for stdin")
    what.add_argument("--fields", metavar="A,B", help="only these fields of each")
    what.add_argument("--shuffle", action="store_true", help="in random order")
    what.add_argument("--seed", type=int, help="of the random order (0)")
    there = parser.add_mutually_exclusive_group()
    there.add_argument("--resume", action="store_true", help="keep the new shards that an earlier run wrote")
    there.add_argument("--overwrite", action="store_true", help="replace shards of these names")
    parser.add_argument("--md5", action="store_true", help="record the MD5 of each new shard in the descriptor")
    add_workers(parser, "write shards")


def run(options: argparse.Namespace) -> None:
    """Write new shards."""
    from wids.cli.inputs import data_set
    from wids.cli.workers import workers
    from wids.tools import reshard
    from wids.tools.number_range import read_range

    if options.seed is not None and not options.shuffle:
        raise ValueError("--seed decides the order of --shuffle; give both")
    if options.file == "-" and options.keys == "-":
        raise ValueError("- stands for the dataset and for keys; stdin can be only one of them")
    samples = None if options.samples is None else read_range("--samples", options.samples)
    keys = None if options.keys is None else _read_keys(options.keys)
    with data_set(options.file) as shards, workers(options.workers) as executor:
        made = reshard(
            shards,
            options.output,
            max_samples=options.max_samples,
            max_bytes=options.max_bytes,
            shuffle=options.shuffle,
            seed=options.seed or 0,
            samples=samples,
            keys=keys,
            fields=None if options.fields is None else [name.strip() for name in options.fields.split(",")],
            md5=options.md5,
            resume=options.resume,
            overwrite=options.overwrite,
            executor=executor,
            progress=True,
        )
    there = f", of which {counted(made.num_resumed, 'was', 'were')} there" if made.num_resumed else ""
    print(fold(f"{redact(options.output)}: {samples_in_shards(made.num_samples, made.num_shards)}{there}"))


def _read_keys(name: str) -> list[str]:
    from wids.cli.inputs import without_mark

    file = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    # Keys may be any bytes, as in the shards.
    return [line.decode("utf-8", "surrogateescape") for line in without_mark(file).splitlines() if line]
