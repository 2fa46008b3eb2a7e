"""`widsindex fetch`: shards into the disk cache, before a training needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_cache_dir, add_command
from wids.cli.terminal import fold
from wids.errors import redact
from wids.words import counted, counted_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from wids.storage import Storage


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "fetch",
        run,
        title="fetch shards into the disk cache",
        description="Fetch the shards of a dataset into the disk cache, as many as it may hold, so that they are there when "
        "training starts. Local shards are read in place and need no fetching.",
        examples="""
widsindex fetch train.json
widsindex fetch train.json --shards 0-99 --cache-dir /scratch/wids
""",
    )
    parser.add_argument("file", help="descriptor, folder, pattern or shard; - for a descriptor on stdin")
    parser.add_argument("--shards", metavar="A-B", help="first and last shard, counted from 0; or a single one (all)")
    add_cache_dir(parser)
    parser.add_argument(
        "--cache-size", metavar="SIZE", help="bytes, or 200GB ($WIDS_CACHE_SIZE, or half of what is free)"
    )
    parser.add_argument("-w", "--workers", type=int, default=4, help="shards fetched at the same time (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Fetch the shards; return the exit status."""
    from wids.cli.inputs import data_set
    from wids.closing import threads
    from wids.descriptor import load_descriptor
    from wids.storage import Storage, StorageOptions
    from wids.storage.progress import format_size
    from wids.tools.number_range import check_range, read_range
    from wids.tools.progress import show_progress

    if options.workers < 1:
        raise ValueError(f"--workers is {options.workers}; it must be at least 1")
    storage = Storage(StorageOptions(cache_dir=options.cache_dir, cache_size=options.cache_size, checksum="md5"))
    with data_set(options.file) as named:
        shards = load_descriptor(named, fetch=storage.read, list_folder=storage.list_folder).shards
        chosen = shards
        if options.shards is not None:
            numbers = read_range("--shards", options.shards)
            check_range(numbers, len(shards), "shard")
            chosen = shards[numbers.start : numbers.stop]
        with threads(options.workers) as pool:
            fetched = pool.map(lambda shard: _try_fetch(storage, shard), chosen)
            results = list(show_progress(fetched, "fetching", len(chosen), is_shown=True))
        ready = [shard for shard, result in zip(chosen, results, strict=True) if isinstance(result, int)]
        cached, in_place = storage.count_ready(ready)
    errors = [result for result in results if isinstance(result, Exception)]
    for error in errors:
        print(fold(f"failed: {error}"))
    sizes = [result for result in results if isinstance(result, int)]
    print(
        fold(
            f"{redact(options.file)}: {counted_of(cached, len(chosen), 'shard', 'is', 'are')} in {storage.cache_dir}, "
            f"{counted(in_place, 'is read in place', 'are read in place')}, {len(errors)} failed; {format_size(sum(sizes))} in all"
        )
    )
    if cached + in_place + len(errors) < len(chosen):
        print(fold("the cache does not hold the rest; give a larger --cache-size, and the same to the training"))
    return int(bool(errors))


def _try_fetch(storage: Storage, shard: Mapping[str, Any]) -> int | Exception:
    from wids.errors import WidsError

    try:
        return storage.make_ready(shard)
    except (WidsError, OSError) as error:
        return error
