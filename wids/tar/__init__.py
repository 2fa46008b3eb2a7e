"""Tar shards: where each sample's bytes lie, and reading them."""

from wids.tar.index import TarIndex, build_index, group_members, split_names
from wids.tar.members import Members, scan_members
from wids.tar.reader import MemberFile, MemberLocation, TarReader

__all__ = [
    "MemberFile",
    "MemberLocation",
    "Members",
    "TarIndex",
    "TarReader",
    "build_index",
    "group_members",
    "scan_members",
    "split_names",
]
