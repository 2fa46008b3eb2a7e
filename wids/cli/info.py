"""`widsindex info`: what a descriptor says, and how large the fields of its samples are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command
from wids.cli.terminal import is_terminal, paint, print_table, printable, rename
from wids.descriptor import Descriptor, load_descriptor
from wids.errors import redact
from wids.storage import Storage
from wids.storage.progress import format_size

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from wids.tools.sizes import Sizes

_NUM_BINS = 20
_BARS = " ▁▂▃▄▅▆▇█"
_ASCII_BARS = " .:-=+*#@"
_SIZES = {"bytes", "bytes per sample"}
"""Facts that a terminal shows in words too."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "info",
        run,
        title="show what descriptors say, and statistics of the fields",
        description="Show what descriptors say, without reading any shard. --fields reads the shards' indexes, and shows for each "
        "field how many samples have it, the sum, minimum, median and maximum of its sizes, and their histogram on a "
        "logarithmic scale.",
        examples="""
widsindex info train.json
widsindex info --fields train.json
widsindex info --json --fields train.json
widsindex info --table train.json test.json
""",
    )
    parser.add_argument(
        "files", nargs="+", metavar="file", help="descriptors, folders, patterns or shards; - for stdin"
    )
    parser.add_argument("-f", "--fields", action="store_true", help="statistics of each field")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-t", "--table", action="store_true", help="one line per descriptor, separated by tabs")
    form.add_argument("--json", action="store_true", help="one JSON object per descriptor, a line each")


def run(options: argparse.Namespace) -> None:
    """Print the descriptors."""
    from wids.cli.inputs import data_set

    if options.table and options.fields:
        raise ValueError("--table prints one line per descriptor and has no room for --fields; use --json")
    if options.table:
        _print_columns("file", "name", "nbytes", "nsamples", "base", "last", "datasets")
    for file in options.files:
        with data_set(file) as shards:
            descriptor, fields = _read(shards, options.fields)
        if options.table:
            _print_row(file, descriptor)
        elif options.json:
            _print_json(file, descriptor, fields)
        else:
            _print_whole(file, descriptor)
            if fields is not None:
                _print_fields(fields)
                print()


def _read(shards: Any, with_fields: bool) -> tuple[Descriptor, Mapping[str, Sizes] | None]:
    """Return a descriptor, and the sizes of its fields where they are asked for."""
    if not with_fields:
        storage = Storage()
        return load_descriptor(shards, fetch=storage.read, list_folder=storage.list_folder), None
    from wids.tools.contents import Contents

    contents = Contents(shards)
    fields = contents.measure()
    for shard, count in zip(contents.descriptor.shards, contents.counts(), strict=True):
        shard["nsamples"] = count
    return contents.descriptor, fields


def _print_row(file: str, descriptor: Descriptor) -> None:
    facts = _facts(file, descriptor)
    datasets = len(descriptor.spec.get("datasets") or [])
    names = ("file", "name", "bytes", "samples", "base", "last shard")
    # The name is empty, and not missing, where there is none, as 0.1.11 has it.
    _print_columns(*(descriptor.name if name == "name" else facts[name] for name in names), datasets)


def _print_whole(file: str, descriptor: Descriptor) -> None:
    for name, value in _facts(file, descriptor).items():
        shown = "-" if value is None else printable(str(value))
        if name in _SIZES and value is not None and is_terminal():
            shown += f" ({format_size(value)})"
        print(f"{paint(f'{name:>18}', 'bold')}: {shown}")
    for component in descriptor.spec.get("datasets") or []:
        source = redact(str(component.get("source_url") or ""))
        title = paint(f"{'dataset':>18}", "bold")
        print(f"{title}: {printable(str(component.get('name') or '-'))} {printable(source)}".rstrip())
    print()


def _facts(file: str, descriptor: Descriptor) -> dict[str, Any]:
    spec, shards = descriptor.spec, descriptor.shards
    num_samples, num_bytes = _total(shards, "nsamples"), _total(shards, "filesize")
    return {
        "file": redact(file),
        "name": descriptor.name or None,
        "info": spec.get("info"),
        "base": None if spec.get("base") is None else redact(spec["base"]),
        "shards": len(shards),
        "samples": num_samples,
        **({} if descriptor.rows is None else {"selected": descriptor.rows["count"]}),
        "bytes": num_bytes,
        "samples per shard": num_samples // len(shards) if num_samples is not None and shards else None,
        "bytes per sample": num_bytes // num_samples if num_bytes is not None and num_samples else None,
        "first shard": rename(redact(str(shards[0]["url"]))) if shards else None,
        "last shard": rename(redact(str(shards[-1]["url"]))) if shards else None,
    }


def _print_json(file: str, descriptor: Descriptor, fields: Mapping[str, Sizes] | None) -> None:
    from wids.cli.ls import to_json

    facts: dict[str, Any] = {name.replace(" ", "_"): value for name, value in _facts(file, descriptor).items()}
    if fields is not None:
        facts["fields"] = {
            name: {
                "count": sizes.count,
                "bytes": sizes.total,
                "min": sizes.least,
                "median": sizes.median,
                "max": sizes.most,
            }
            for name, sizes in fields.items()
        }
    print(to_json(facts))


def _print_fields(fields: Mapping[str, Sizes]) -> None:
    bars = _bars_of_stdout()
    # A program that reads it wants numbers.
    show, count = (format_size, "{:,}".format) if is_terminal() else (str, str)
    print_table(
        ["field", "count", "bytes", "min", "median", "max", "sizes"],
        [
            [
                name,
                count(sizes.count),
                *map(show, (sizes.total, sizes.least, sizes.median, sizes.most)),
                draw(sizes.histogram(_NUM_BINS), bars),
            ]
            for name, sizes in fields.items()
        ],
        right=["count", "bytes", "min", "median", "max"],
    )


def draw(counts: list[int], bars: str = _BARS) -> str:
    """Return a bar for each count, one character wide; a count above 0 is never blank.

    Args:
        counts: At least one is above 0.
        bars: Characters by height, the first for 0.

    Examples:
        >>> draw([8, 4, 0, 1])
        '█▄ ▁'
    """
    most = max(counts)
    return "".join(bars[-(-count * (len(bars) - 1) // most)] for count in counts)


def _bars_of_stdout() -> str:
    """Return bars that the output's encoding can show."""
    try:
        _BARS.encode(sys.stdout.encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return _ASCII_BARS
    return _BARS


def _print_columns(*values: object) -> None:
    print(*(printable(str(value)) for value in values), sep="\t")


def _total(shards: list[dict[str, Any]], name: str) -> int | None:
    """Return the sum over all shards; None when it is unknown for one of them."""
    values = [shard.get(name) for shard in shards]
    return None if None in values else sum(value for value in values if value is not None)
