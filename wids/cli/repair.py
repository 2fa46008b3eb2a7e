"""`widsindex repair`: damaged cached copies fetched again, the damage of local shards named."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from wids.cli.arguments import add_cache_dir, add_command, add_data_set, add_workers
from wids.cli.terminal import fold
from wids.errors import redact

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "repair",
        run,
        title="fetch damaged cached shards again, report damage in local ones",
        description="Compare cached shards with what the descriptor and its index pack say of them, and fetch damaged ones "
        "again. Local shards are never changed; their damaged members are listed. The exit status is 1 when something "
        "is damaged that could not be mended.",
        examples="""
widsindex repair train.json
widsindex repair train.json --cache-dir cache --workers 8
""",
    )
    add_data_set(parser)
    add_cache_dir(parser)
    add_workers(parser)


def run(options: argparse.Namespace) -> int:
    """Mend what can be mended; return the exit status."""
    from wids.cli.inputs import data_set
    from wids.cli.workers import workers
    from wids.storage import Storage, StorageOptions
    from wids.tools.repair import repair

    storage = Storage(StorageOptions(cache_dir=options.cache_dir, checksum="md5"))
    with data_set(options.file) as shards, workers(options.workers) as executor:
        repairs = repair(shards, executor=executor, progress=True, storage=storage)
    for done in repairs:
        for error in done.errors:
            print(fold(f"{done.shard}: {done.outcome}: {error.message.removeprefix('damaged: ')}"))
    counts = Counter(done.outcome for done in repairs)
    shown = ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts)) or "no shards"
    print(fold(f"{redact(options.file)}: {shown}"))
    return int(counts["damaged"] > 0)
