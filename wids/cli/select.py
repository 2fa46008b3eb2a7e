"""`widsindex select`: samples that meet a condition, as a descriptor of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.cli.arguments import add_cache_dir, add_command
from wids.cli.terminal import fold
from wids.words import counted

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "select",
        run,
        title="choose samples by their columns",
        description="Write a descriptor of the samples for which a condition over the columns is true. It lists their indices "
        "and the same shards: nothing is copied, and no sample is read. The condition is made of columns, numbers, text, "
        "+ - * / // %, comparisons, in, is None, and, or, not, abs, len, max and min; comparisons with missing values are "
        "false.",
        examples="""
widsindex select train.json --where 'width >= 512' -o large.json
widsindex select train.json --where "lang in ['en', 'de']" -o en-de.json
""",
    )
    parser.add_argument("file", help="descriptor with columns, as `widsindex columns` makes them")
    parser.add_argument("--where", metavar="CONDITION", required=True, help="which samples to take")
    parser.add_argument("-o", "--output", required=True, help="descriptor to write")
    add_cache_dir(parser)


def run(options: argparse.Namespace) -> None:
    """Write a selection, and print its size."""
    from wids.dataset import ShardListDataset
    from wids.tools import write_selection

    dataset = ShardListDataset(options.file, transformations=None, cache_dir=options.cache_dir)
    content = write_selection(dataset, dataset.matches(options.where), options.output)
    print(fold(f"{options.output}: {content['rows']['count']} of {counted(len(dataset), 'sample')}"))
