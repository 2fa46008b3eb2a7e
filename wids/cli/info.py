"""`widsindex info`: what a descriptor says."""

from __future__ import annotations

import argparse
from typing import Any

from wids.cli.terminal import printable
from wids.descriptor import Descriptor, load_descriptor
from wids.errors import redact
from wids.storage import Storage


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "info",
        help="show what descriptors say",
        description="Show what descriptors say; no shard is read.",
        epilog="examples:\n  widsindex info train.json\n  widsindex info --table train.json test.json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", help="descriptors")
    parser.add_argument("-t", "--table", action="store_true", help="one line per descriptor, separated by tabs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the descriptors."""
    storage = Storage()
    if options.table:
        _print_columns("file", "name", "nbytes", "nsamples", "base", "last", "datasets")
    for file in options.files:
        descriptor = load_descriptor(file, fetch=storage.read, list_folder=storage.list_folder)
        if options.table:
            _print_row(file, descriptor)
        else:
            _print_whole(file, descriptor)


def _print_row(file: str, descriptor: Descriptor) -> None:
    spec, shards = descriptor.spec, descriptor.shards
    last = redact(str(shards[-1]["url"])) if shards else None
    datasets = len(spec.get("datasets") or [])
    _print_columns(
        redact(file),
        descriptor.name,
        _total(shards, "filesize"),
        _total(shards, "nsamples"),
        None if spec.get("base") is None else redact(spec["base"]),
        last,
        datasets,
    )


def _print_whole(file: str, descriptor: Descriptor) -> None:
    spec, shards = descriptor.spec, descriptor.shards
    num_samples, num_bytes = _total(shards, "nsamples"), _total(shards, "filesize")
    rows: dict[str, Any] = {
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
        "first shard": redact(str(shards[0]["url"])) if shards else None,
        "last shard": redact(str(shards[-1]["url"])) if shards else None,
    }
    for name, value in rows.items():
        print(f"{name:>18}: {'-' if value is None else printable(str(value))}")
    for component in spec.get("datasets") or []:
        source = redact(str(component.get("source_url") or ""))
        print(f"{'dataset':>18}: {printable(str(component.get('name') or '-'))} {printable(source)}".rstrip())
    print()


def _print_columns(*values: object) -> None:
    print(*(printable(str(value)) for value in values), sep="\t")


def _total(shards: list[dict[str, Any]], name: str) -> int | None:
    """Return a sum over all shards, None when one of them does not say."""
    values = [shard.get(name) for shard in shards]
    return None if None in values else sum(value for value in values if value is not None)
