"""`widsindex ls`: keys and fields of a dataset."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command, add_data_set, add_key_filter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from wids.tools.contents import Contents, Row


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "ls",
        run,
        title="list samples: keys, fields and sizes",
        description="List the samples of a dataset: index, key, size, and the size of each field. On a terminal, lines are cut at "
        "its width; elsewhere values are whole and separated by tabs. Only indexes and headers are read.",
        examples="""
widsindex ls train.json
widsindex ls train.json --keys 'n01*' --shard 0-9
widsindex ls shards/ --json > samples.jsonl
cat train-000000.tar | widsindex ls -
""",
    )
    add_data_set(parser)
    add_key_filter(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line, with the shard's name too")


def run(options: argparse.Namespace) -> None:
    """List the samples."""
    from wids.cli.inputs import data_set
    from wids.tools.contents import Contents

    with data_set(options.file) as shards:
        contents = Contents(shards)
        rows = contents.rows(contents.choose_shards(options.shard), options.keys)
        if options.json:
            _print_json(contents, rows)
        else:
            _print_rows(rows)


def _print_rows(rows: Iterable[Row]) -> None:
    from wids.cli.terminal import is_terminal, print_table
    from wids.storage.progress import format_size

    show = format_size if is_terminal() else str
    print_table(
        ["index", "key", "bytes", "fields"],
        (
            [
                str(row.index),
                row.key,
                show(sum(row.sizes.values())),
                " ".join(f"{field}={show(size).replace(' ', '')}" for field, size in row.sizes.items()),
            ]
            for row in rows
        ),
        right=["index", "bytes"],
    )


def _print_json(contents: Contents, rows: Iterable[Row]) -> None:
    from wids.cli.terminal import rename
    from wids.errors import redact

    for row in rows:
        line = {
            "index": row.index,
            "key": row.key,
            "shard": rename(redact(contents.urls[row.shard])),
            "fields": row.sizes,
        }
        sys.stdout.write(f"{to_json(line)}\n")


def to_json(value: Any) -> str:
    """Return a value as one line of JSON; bytes of a name that are no UTF-8 become escapes of their surrogates."""
    import orjson

    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value)
