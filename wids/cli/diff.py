"""`widsindex diff`: what differs between two descriptors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import orjson

from wids.cli.arguments import add_command
from wids.cli.terminal import fold, printable
from wids.words import counted

if TYPE_CHECKING:
    import argparse

    from wids.tools.diff import Difference, KeyDifference


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "diff",
        run,
        title="compare two descriptors",
        description="List the shards that differ between two descriptors, compared by name wherever they lie, and the samples, "
        "compared by key. Shards with equal checksums are not opened. As with diff(1) the exit status is 0 when nothing "
        "differs, 1 when something does, and 2 when there was an error.",
        examples="""
widsindex diff old.json new.json
widsindex diff train.json small.json --json
""",
    )
    parser.add_argument("before", help="descriptor, folder, pattern or shard")
    parser.add_argument("after", help="the same")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(error_status=2)


def run(options: argparse.Namespace) -> int:
    """Print what differs; return the exit status."""
    from wids.tools.diff import diff

    found = diff(options.before, options.after)
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(_to_json(found), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        _print(found)
    return int(bool(found))


def _print(found: Difference) -> None:
    for what, names in (("added", found.added), ("removed", found.removed)):
        for name in names:
            print(f"shard  {what:8} {printable(name)}")
    for name, facts in found.changed.items():
        shown = ", ".join(f"{fact} {old} -> {new}" for fact, (old, new) in facts.items())
        print(f"shard  changed  {fold(f'{name}: {shown}', 16)}")
    if found.reordered:
        print("shards come in another order")
    for what, samples in _samples(found).items():
        for key in samples.examples:
            print(f"sample {what:8} {printable(key)}")
        if samples.count > len(samples.examples):
            print(f"sample {what:8} and {samples.count - len(samples.examples)} more")
    print(
        fold(
            f"{counted(len(found.added), 'shard')} added, {len(found.removed)} removed, {len(found.changed)} changed; "
            f"{counted(found.samples_added.count, 'sample')} added, {found.samples_removed.count} removed, "
            f"{found.samples_moved.count} moved to another shard"
        )
    )


def _samples(found: Difference) -> dict[str, KeyDifference]:
    return {"added": found.samples_added, "removed": found.samples_removed, "moved": found.samples_moved}


def _to_json(found: Difference) -> dict[str, Any]:
    return {
        "different": bool(found),
        "shards": {
            "added": list(map(printable, found.added)),
            "removed": list(map(printable, found.removed)),
            "changed": {
                printable(name): {fact: {"before": old, "after": new} for fact, (old, new) in facts.items()}
                for name, facts in found.changed.items()
            },
            "reordered": found.reordered,
        },
        "samples": {
            what: {"count": samples.count, "examples": list(map(printable, samples.examples))}
            for what, samples in _samples(found).items()
        },
    }
