"""`widsindex cache`: show the disk cache, make it smaller, or empty it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wids.cli.arguments import add_cache_dir, add_command
from wids.cli.terminal import printable
from wids.storage import CachedShard, Storage, StorageOptions
from wids.storage.progress import format_size
from wids.words import counted

if TYPE_CHECKING:
    import argparse


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "cache",
        None,
        title="show or empty the disk cache",
        description="Show what is in the disk cache, or remove some or all of it. Files that the cache did not write are "
        "left alone.",
        examples="""
widsindex cache ls
widsindex cache prune --to 100GB
widsindex cache clear --cache-dir /scratch/wids
""",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, action, text in (
        ("ls", _list, "show the shards in it, the largest first"),
        ("prune", _prune, "remove what exceeds its size, and what dead processes left"),
        ("clear", _clear, "remove all shards and indexes"),
    ):
        one = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        add_cache_dir(one)
        if name == "prune":
            one.add_argument("--to", metavar="SIZE", help="bytes, or 100GB ($WIDS_CACHE_SIZE, or half of what is free)")
        one.set_defaults(run=action)


def _list(options: argparse.Namespace) -> None:
    storage = Storage(StorageOptions(cache_dir=options.cache_dir))
    storage.check_cache_folder()
    shards = storage.space.shards()
    for shard in sorted(shards, key=lambda shard: (-shard.record.size, shard.record.label)):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(shard.used_ns / 1e9))
        print(
            printable(
                f"{format_size(shard.record.size):>9}  {used}  {shard.uses:>5} {'use ' if shard.uses == 1 else 'uses'}  {shard.record.label}"
            )
        )
    print(printable(f"{_count(shards)} in {storage.cache_dir}{_describe_limit(storage, shards)}"))


def _prune(options: argparse.Namespace) -> None:
    storage = Storage(StorageOptions(cache_dir=options.cache_dir, cache_size=options.to))
    before = storage.space.shards()
    storage.prune()
    after = storage.space.shards()
    gone = {shard.id for shard in before} - {shard.id for shard in after}
    removed = [shard for shard in before if shard.id in gone]
    print(printable(f"removed {_count(removed)}; {_count(after)} left in {storage.cache_dir}"))


def _clear(options: argparse.Namespace) -> None:
    storage = Storage(StorageOptions(cache_dir=options.cache_dir))
    shards = storage.space.shards()
    storage.clear()
    left = storage.space.shards()
    print(printable(f"removed {_count(shards)} and all indexes from {storage.cache_dir}"))
    if left:
        raise OSError(f"{_count(left)} could not be removed from {storage.cache_dir}; are they another user's?")


def _count(shards: list[CachedShard]) -> str:
    return f"{counted(len(shards), 'shard')}, {format_size(sum(shard.record.size for shard in shards))}"


def _describe_limit(storage: Storage, shards: list[CachedShard]) -> str:
    if not shards and storage.options.cache_limit is None:
        return ""
    limit = storage.space.limit(sum(shard.record.size for shard in shards))
    return "" if limit is None else f", which may hold {format_size(limit)}"
