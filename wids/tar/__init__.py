"""Tar shards: find the bytes of each sample, and read them."""

from wids.tar.index import TarIndex, build_index, group_members
from wids.tar.kept import add_checksums, decode_index, digest_ends, digest_headers, encode_index
from wids.tar.listing import Listing, MemberLocation
from wids.tar.member_file import MemberFile
from wids.tar.members import Members, scan_members
from wids.tar.names import Names, find_dot
from wids.tar.offsets import first_headers, format_offsets, parse_offsets, stops_of
from wids.tar.reader import TarReader
from wids.tar.stale import StaleIndexError

__all__ = [
    "Listing",
    "MemberFile",
    "MemberLocation",
    "Members",
    "Names",
    "StaleIndexError",
    "TarIndex",
    "TarReader",
    "add_checksums",
    "build_index",
    "decode_index",
    "digest_ends",
    "digest_headers",
    "encode_index",
    "find_dot",
    "first_headers",
    "format_offsets",
    "group_members",
    "parse_offsets",
    "scan_members",
    "stops_of",
]
