"""The import path `wids.wids_tar` of wids 0.1.11, kept for existing code: re-exports only."""

from wids.legacy import TarFileReader

__all__ = ["TarFileReader"]
