"""Arguments that several commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_cache_dir(parser: argparse.ArgumentParser) -> None:
    """Let a command take another cache folder."""
    parser.add_argument("--cache-dir", metavar="DIR", help="cache folder ($WIDS_CACHE, or the private default)")
