"""`widsindex columns`: values in the samples to columns beside the descriptor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wids.cli.arguments import add_cache_dir, add_command, add_workers
from wids.cli.terminal import fold
from wids.words import counted

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "columns",
        run,
        title="extract values from the samples into columns",
        description="Read a JSON field of every sample once, and store the values asked for as columns, which "
        "dataset.column(name) and select --where use without reading a sample. They go into the folder NAME.columns "
        "beside the descriptor, which lists them. An interrupted run resumes where it stopped. Needs wids[parquet].",
        examples="""
widsindex columns train.json --from-json width,height,similarity --workers 8
widsindex columns train.json --from-json meta.lang --field meta.json
""",
    )
    parser.add_argument("file", help="the descriptor")
    parser.add_argument(
        "--from-json",
        metavar="NAMES",
        required=True,
        help="values to take, separated by commas; a.b is b in the object a",
    )
    parser.add_argument("--field", default="json", help="field of the samples that holds them (%(default)s)")
    parser.add_argument(
        "--skip-damaged",
        action="store_true",
        help="leave values missing where a field is no JSON object or a value is of another type than the others",
    )
    add_workers(parser)
    add_cache_dir(parser)


def run(options: argparse.Namespace) -> None:
    """Extract columns, and print their names and types."""
    from wids.cli.workers import workers
    from wids.storage import Storage, StorageOptions
    from wids.tools.columns import extract_columns

    with workers(options.workers) as executor:
        columns = extract_columns(
            options.file,
            [name.strip() for name in options.from_json.split(",")],
            field=options.field,
            skip_damaged=options.skip_damaged,
            executor=executor,
            progress=True,
            storage=Storage(StorageOptions(cache_dir=options.cache_dir)),
        )
    for name, column in columns.items():
        missing = len(column.missing_rows())
        print(fold(f"{name}: {column.kind}, {counted(len(column), 'sample')}, {missing} of them without a value"))
