"""What is done to shards and descriptors as a whole: writing, indexing, correcting, checking and mending them."""

from wids.tools.create import create_index
from wids.tools.describe import ShardDescription, Wanted, describe_shard
from wids.tools.files import write_json
from wids.tools.repair import repair
from wids.tools.reshard import reshard
from wids.tools.select import write_selection
from wids.tools.update import recount
from wids.tools.verify import verify
from wids.tools.writer import ShardWriter

__all__ = [
    "ShardDescription",
    "ShardWriter",
    "Wanted",
    "create_index",
    "describe_shard",
    "recount",
    "repair",
    "reshard",
    "verify",
    "write_json",
    "write_selection",
]
