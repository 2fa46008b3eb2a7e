"""Index files of other tools, made from a dataset's indexes, so that those tools need not read the shards again."""

from wids.tools.export.dali import export_dali
from wids.tools.export.energon import export_energon

__all__ = ["export_dali", "export_energon"]
