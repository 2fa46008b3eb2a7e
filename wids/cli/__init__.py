"""The command `widsindex` (also installed as `wids`): makes, shows and corrects descriptors, and shows samples."""

from wids.cli.command_line import main

__all__ = ["main"]
