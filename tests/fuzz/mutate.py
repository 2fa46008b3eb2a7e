"""Mutate archives with knowledge of headers: move blocks, put odd values into fields, correct checksums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.seeds import SEEDS
from tests.tar.archives import with_checksum

if TYPE_CHECKING:
    from random import Random

FIELDS = {
    "name": (0, 100),
    "size": (124, 136),
    "checksum": (148, 156),
    "type": (156, 157),
    "link": (157, 257),
    "magic": (257, 265),
    "prefix": (345, 500),
    "sparse map": (386, 482),
    "sparse size": (482, 495),
    "star": (508, 512),
}
VALUES = {
    "name": [b"a.txt", b"", b"d/", b"b" * 99 + b"/", b"n" * 100, b"a\0b", b"./b.txt", b"._x.txt", b"\xff.txt"],
    "size": [
        b"%011o\0", b"%011o ", b"%012o", b"%11o ", b"%o\0", b"%o", b"\0%011o", b" %o", b"%o x", b"\0",
        b"\x80" + bytes(9) + b"\2\0", b"\xff" * 12, b"\x80" + b"\xff" * 11, b"9", b"77777777777",
    ],
    "checksum": [b"%06o\0 ", b"%06o  ", b"%07o\0", b"%08o", b"0\0"],
    "type": [b"%c" % kind for kind in b"\x001234567ADEIKLMNSVXZgx"],
    "link": [b"a.txt", b"", b"b.txt", b"./b.txt", b"l" * 100],
    "magic": [b"ustar\x0000", b"ustar  \0", b"", b"ustar", b"ustaR\0", b"usta\0"],
    "prefix": [b"p", b"p/", b"p" * 155, b"", b"00000000000\00000000000000"],
    "sparse map": [b"%011o\0%011o\0" % pair for pair in ((0, 5), (5, 0), (512, 512), (2**31, 3))] + [b"", b"\xff"],
    "sparse size": [b"\0%011o\0" % size for size in (5, 2000, 2**31)] + [b"\1%011o\0" % 99],
    "star": [b"tar\0", b""],
}  # fmt: skip
SIZES = [0, 1, 3, 5, 12, 100, 511, 512, 513, 1024, 1536, 4096]
BLOCKS = sorted({content[start : start + 512] for content in SEEDS.values() for start in range(0, len(content), 512)})


def mutate_archive(content: bytes, random: Random) -> bytes:
    """Return an archive with a few changes, and mostly with correct checksums."""
    blocks = [content[start : start + 512] for start in range(0, len(content), 512)] or [bytes(512)]
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        random.choice([_change_field, _change_field, _change_field, _move_block, _change_text, _cut])(blocks, random)
    if random.random() < 0.9:
        with_magic = [number for number, block in enumerate(blocks) if _seems_header(block)]
        for number in {0, *with_magic}:
            if random.random() < 0.98:
                blocks[number] = _set_checksum(blocks[number], random)
    return b"".join(blocks)


def _seems_header(block: bytes) -> bool:
    return len(block) == 512 and (block[257:261] == b"usta" or block[100:107] == b"0000644")


def _change_field(blocks: list[bytes], random: Random) -> None:
    headers = [number for number, block in enumerate(blocks) if _seems_header(block)] or [0]
    number = random.choice(headers)
    name = random.choice(list(FIELDS))
    start, stop = FIELDS[name]
    value = random.choice(VALUES[name])
    if b"%" in value:
        value %= random.choice(SIZES)
    block = bytearray(blocks[number].ljust(512, b"\0"))
    block[start:stop] = value[: stop - start].ljust(stop - start, random.choice([b"\0", b"\0", b" "]))
    blocks[number] = bytes(block)


def _move_block(blocks: list[bytes], random: Random) -> None:
    number = random.randrange(len(blocks))
    block = random.choice([random.choice(blocks), random.choice(BLOCKS), bytes(512)])
    place = random.choice(["insert", "replace", "delete", "double"])
    if place == "insert":
        blocks.insert(number, block)
    elif place == "replace":
        blocks[number] = block
    elif place == "double" and len(blocks) < 200:
        blocks += blocks[number:]
    elif len(blocks) > 1:
        del blocks[number]


def _change_text(blocks: list[bytes], random: Random) -> None:
    number = random.randrange(len(blocks))
    block = bytearray(blocks[number])
    for _ in range(random.choice([1, 1, 3])):
        if block:
            block[random.randrange(min(len(block), 80))] = random.choice(b"0123456789 =\n,.x\0\xff")
    blocks[number] = bytes(block)


def _cut(blocks: list[bytes], random: Random) -> None:
    if random.random() < 0.2:
        blocks[-1] = blocks[-1][: random.randrange(len(blocks[-1]) + 1)] or b"\0"


def _set_checksum(block: bytes, random: Random) -> bytes:
    block = with_checksum(block.ljust(512, b"\0"))
    if random.random() < 0.95:
        return block
    form = random.choice(VALUES["checksum"])
    right = sum(block[:148] + b" " * 8 + block[156:])
    return block[:148] + (form % right if b"%" in form else form).ljust(8, b" ")[:8] + block[156:]
