"""What is done to shards and descriptors as a whole: indexing, correcting, checking and mending them."""

from wids.tools.create import create_index
from wids.tools.describe import ShardDescription, Wanted, describe_shard
from wids.tools.files import write_json
from wids.tools.repair import repair
from wids.tools.update import recount
from wids.tools.verify import verify

__all__ = ["ShardDescription", "Wanted", "create_index", "describe_shard", "recount", "repair", "verify", "write_json"]
