"""What is done to shards and descriptors as a whole: indexing them, correcting descriptors."""

from wids.tools.create import ShardDescription, create_index, describe_shard
from wids.tools.files import write_json
from wids.tools.update import recount

__all__ = ["ShardDescription", "create_index", "describe_shard", "recount", "write_json"]
