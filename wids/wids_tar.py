"""0.1.11's import path `wids.wids_tar`; the name lives elsewhere now."""

from wids.legacy import TarFileReader

__all__ = ["TarFileReader"]
