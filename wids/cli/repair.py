"""`widsindex repair`: damaged cached copies fetched again, the damage of local shards named."""

from __future__ import annotations

import argparse
from collections import Counter

from wids.cli.arguments import add_cache_dir
from wids.cli.terminal import printable


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "repair",
        help="fetch damaged cached shards again, name what is damaged in local ones",
        description="Compare cached shards with what the descriptor and its index pack say of them, and fetch those again "
        "that are damaged. Local shards are never changed; their damaged members are named. The exit status is 1 when "
        "something is damaged that could not be mended.",
        epilog="examples:\n"
        "  widsindex repair train.json\n"
        "  widsindex repair train.json --cache-dir cache --workers 8\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="descriptor, folder, pattern or shard")
    add_cache_dir(parser)
    parser.add_argument("-w", "--workers", type=int, default=1, help="processes that read shards (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Mend what can be mended; return the exit status."""
    from wids.cli.workers import workers
    from wids.storage import Storage, StorageOptions
    from wids.tools.repair import repair

    storage = Storage(StorageOptions(cache_dir=options.cache_dir, checksum="md5"))
    with workers(options.workers) as executor:
        repairs = repair(options.file, executor=executor, progress=True, storage=storage)
    for done in repairs:
        for error in done.errors:
            print(printable(f"{done.shard}: {done.outcome}: {error.message}"))
    counts = Counter(done.outcome for done in repairs)
    print(printable(f"{options.file}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in sorted(counts))))
    return int(counts["damaged"] > 0)
