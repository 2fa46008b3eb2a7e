"""`widsindex verify`: what is wrong with a dataset."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import orjson

from wids.cli.arguments import add_command, add_data_set, add_workers
from wids.cli.terminal import columns_of, fold, paint, printable, terminal_width
from wids.errors import redact
from wids.words import counted, samples_in_shards

if TYPE_CHECKING:
    import argparse

    from wids.tools.findings import Finding
    from wids.tools.verify import Verification

_COLUMNS_BEFORE_SHARD = 8 + 1 + 17 + 1
_LEAST_COLUMNS = 30
"""The least room for a message beside the other columns; with less it goes on a line of its own."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    from wids.tools.findings import KINDS

    kinds = "".join(f"  {severity:8} {kind:17} {meaning}\n" for kind, (severity, meaning) in KINDS.items())
    parser = add_command(
        commands,
        "verify",
        run,
        title="check shards against their descriptor",
        description="Read the descriptor and all of its shards, and list what is wrong. The exit status is 1 when there is an "
        "error, and with --strict also when there is a warning.",
        more=f"what is found:\n{kinds}\n",
        examples="""
widsindex verify train.json --workers 8
widsindex verify train.json --json --strict
""",
    )
    add_data_set(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    add_workers(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is wrong; return the exit status."""
    from wids.cli.inputs import data_set
    from wids.cli.workers import workers
    from wids.tools.verify import verify

    with data_set(options.file) as shards, workers(options.workers) as executor:
        found = verify(shards, executor=executor, progress=True)
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(_to_json(options.file, found), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print_findings(found.findings)
        print(
            fold(
                f"{redact(options.file)}: {samples_in_shards(found.num_samples, found.num_shards)}, "
                f"{counted(found.count('error'), 'error')}, {counted(found.count('warning'), 'warning')}"
            )
        )
    return int(bool(found.count("error") or (options.strict and found.findings)))


def print_findings(findings: list[Finding]) -> None:
    """Print findings in columns; a message goes below where a terminal has no room for it beside the rest."""
    shards = [printable(finding.shard) for finding in findings]
    width = max(map(columns_of, shards), default=0)
    beside = _COLUMNS_BEFORE_SHARD + width + 2
    is_narrow = (terminal_width() or beside + _LEAST_COLUMNS) < beside + _LEAST_COLUMNS
    for finding, shard in zip(findings, shards, strict=True):
        severity = paint(f"{finding.severity:8}", "red" if finding.severity == "error" else "yellow")
        below = "\n    " if is_narrow else " " * (width - columns_of(shard) + 2)
        print(f"{severity} {finding.kind:17} {shard}{below}{fold(finding.message, 4 if is_narrow else beside)}")


def _to_json(file: str, found: Verification) -> dict[str, Any]:
    return {
        "file": printable(redact(file)),
        "shards": found.num_shards,
        "samples": found.num_samples,
        "errors": found.count("error"),
        "warnings": found.count("warning"),
        "findings": [
            {
                "severity": finding.severity,
                "kind": finding.kind,
                "shard": printable(finding.shard),
                "count": finding.count,
                "message": printable(finding.message),
            }
            for finding in found.findings
        ],
    }
