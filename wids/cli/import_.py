"""`widsindex import`: a folder that another tool made, to a descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.cli.arguments import add_command, add_workers
from wids.cli.terminal import fold
from wids.words import counted, samples_in_shards

if TYPE_CHECKING:
    import argparse

    from wids.tools.importing import Imported

_NAMES = {
    "energon": "prepared for Energon",
    "huggingface": "a Hugging Face repository",
    "tars": "one of tars",
    "imagefolder": "one of images",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "import",
        run,
        title="describe a folder that another tool made",
        description="Write the descriptor of a folder made by img2dataset, Energon (.nv-meta) or DALI (.idx), or of a Hugging "
        "Face repository. Sample counts found in the folder are used, and compared when a shard is first read; missing ones "
        "are counted. Images in one folder per class are first packed into shards beside the descriptor.",
        examples="""
widsindex import laion/ -o train.json
widsindex import prepared/ --split val -o val.json
widsindex import hf://datasets/org/name --split train -o train.json
widsindex import imagenet/ --split train --seed 0 -o shards/train.json
""",
    )
    parser.add_argument("folder", help="path or URL of the folder")
    parser.add_argument("-o", "--output", default="shardindex.json", help="descriptor to write (%(default)s)")
    parser.add_argument("-n", "--name", help="name of the dataset (the split's, or the folder's)")
    parser.add_argument("-s", "--split", help="which split, if there are several")
    parser.add_argument("--format", choices=_NAMES, help="what kind of folder it is (told from its files)")
    images = parser.add_argument_group("folders of images")
    images.add_argument("--shard-size", metavar="SIZE", help="most bytes of a shard, or 500MB (1GB)")
    images.add_argument("--seed", type=int, help="write them in random order, seeded with this number (by class)")
    images.add_argument("--resume", action="store_true", help="continue after the shards that are there")
    add_workers(parser, "count samples")


def run(options: argparse.Namespace) -> None:
    """Write a descriptor."""
    from wids.cli.workers import workers
    from wids.tools.importing import import_folder

    with workers(options.workers) as executor:
        found = import_folder(
            options.folder,
            options.output,
            split=options.split,
            kind=options.format,
            name=options.name,
            max_bytes=options.shard_size,
            seed=options.seed,
            resume=options.resume,
            executor=executor,
            progress=True,
        )
    shards = found.content["shardlist"]
    num_samples = sum(shard["nsamples"] for shard in shards)
    print(
        fold(
            f"{options.output}: {samples_in_shards(num_samples, len(shards))}; the folder is "
            f"{_NAMES[found.kind]}, {_describe_counts(found)}"
        )
    )


def _describe_counts(found: Imported) -> str:
    if "classes" in found.content:
        return f"of {counted(len(found.content['classes']), 'class', 'classes')}"
    known = len(found.content["shardlist"]) - found.num_counted
    return f"and told the counts of {counted(known, 'shard')}" if known else "and told no counts"
