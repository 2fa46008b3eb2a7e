"""The import path `wids.wids_mmtar` of wids 0.1.11, kept for existing code: re-exports only."""

from wids.legacy import MMIndexedTar

__all__ = ["MMIndexedTar"]
