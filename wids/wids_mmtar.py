"""0.1.11's import path `wids.wids_mmtar`; the name lives elsewhere now."""

from wids.legacy import MMIndexedTar

__all__ = ["MMIndexedTar"]
