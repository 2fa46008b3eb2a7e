"""`widsindex verify`: what is wrong with a data set."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import orjson

from wids.cli.terminal import printable

if TYPE_CHECKING:
    from wids.tools.findings import Finding
    from wids.tools.verify import Verification


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    from wids.tools.findings import KINDS

    kinds = "".join(f"  {severity:8} {kind:17} {meaning}\n" for kind, (severity, meaning) in KINDS.items())
    parser = commands.add_parser(
        "verify",
        help="check shards against their descriptor",
        description="Read descriptor and shards whole, and list what is wrong. The exit status is 1 when anything is an "
        "error, with --strict also when anything is a warning.",
        epilog=f"what is found:\n{kinds}\n"
        "examples:\n  widsindex verify train.json --workers 8\n  widsindex verify train.json --json --strict\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="descriptor, folder, pattern or shard")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings, too")
    parser.add_argument("-w", "--workers", type=int, default=1, help="processes that read shards (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what is wrong; return the exit status."""
    from wids.cli.workers import workers
    from wids.tools.verify import verify

    with workers(options.workers) as executor:
        found = verify(options.file, executor=executor, progress=True)
    if options.json:
        sys.stdout.buffer.write(orjson.dumps(_to_json(options.file, found), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print_findings(found.findings)
        print(
            f"{printable(options.file)}: {found.num_samples} samples in {found.num_shards} shards, "
            f"{found.count('error')} errors, {found.count('warning')} warnings"
        )
    return int(bool(found.count("error") or (options.strict and found.findings)))


def print_findings(findings: list[Finding]) -> None:
    """Print one line for each, in columns."""
    shards = [printable(finding.shard) for finding in findings]
    width = max(map(len, shards), default=0)
    for finding, shard in zip(findings, shards, strict=True):
        print(f"{finding.severity:8} {finding.kind:17} {shard:{width}}  {printable(finding.message)}")


def _to_json(file: str, found: Verification) -> dict[str, Any]:
    return {
        "file": printable(file),
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
