"""`widsindex cat`: the bytes of one field, of one sample or of many."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

from wids.cli.arguments import add_command, add_data_set, add_key_filter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from wids.tools.contents import Contents, Row

_CHUNK_BYTES = 1 << 20


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "cat",
        run,
        title="write one field's bytes to stdout",
        description="Write the stored bytes of one field to stdout: of the samples named, in that order, or of all that have "
        "the field. A whole number without leading zeros is an index, and -1 the last one; anything else is a key; "
        "- reads such names from stdin, one a line.",
        examples="""
widsindex cat train.json 17 jpg > x.jpg
widsindex cat train.json 000000-0003 json
widsindex cat train.json txt --lines > texts.txt
widsindex cat train.json json --keys '0000??-*' > lines.json
""",
    )
    add_data_set(parser)
    parser.add_argument("samples", nargs="*", help="indexes or keys; - for names on stdin (all samples)")
    parser.add_argument("field", help="as jpg or .jpg")
    add_key_filter(parser)
    parser.add_argument("-l", "--lines", action="store_true", help="end each with a newline")


def run(options: argparse.Namespace) -> None:
    """Write the bytes."""
    from wids.cli.inputs import data_set, expand_names
    from wids.tools.contents import Contents

    if options.samples and (options.keys is not None or options.shard is not None):
        raise ValueError("samples are both named and chosen by --keys or --shard; give one or the other")
    if options.file == "-" and "-" in options.samples:
        raise ValueError("- stands for the dataset and for names of samples; stdin can be only one of them")
    with data_set(options.file) as shards:
        contents = Contents(shards, opens=True)
        if options.samples:
            _write(contents, contents.find(expand_names(options.samples)), options.field, options.lines)
        else:
            rows = contents.rows(contents.choose_shards(options.shard), options.keys)
            _write_where_present(contents, rows, options.field, options.lines)


def _write(contents: Contents, rows: Iterable[Row], field: str, lines: bool) -> None:
    for row in rows:
        with contents.open(row, field) as file:
            shutil.copyfileobj(file, sys.stdout.buffer, _CHUNK_BYTES)
        if lines:
            sys.stdout.buffer.write(b"\n")


def _write_where_present(contents: Contents, rows: Iterable[Row], field: str, lines: bool) -> None:
    from wids.fields import find_field

    found = False
    for row in rows:
        if find_field(field, row.sizes) is not None:
            found = True
            _write(contents, [row], field, lines)
    if not found:
        raise LookupError(f"none of the chosen samples has the field {field!r}; see: widsindex ls")
