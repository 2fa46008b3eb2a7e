"""Extremes take no more memory: members of gigabytes, hundreds of thousands of members, names of 60,000 bytes."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from tests.tar.archives import END, FORMATS, GNU, find, hard_link, header, long_name, member, pax, pax_payload
from wids.errors import TarFormatError
from wids.source import BufferSource, MmapSource, PreadSource
from wids.tar import TarReader, build_index, scan_members

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from wids.source import Source

SOURCES: dict[str, Callable[[str], Source]] = {"mapped": MmapSource, "read": PreadSource}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("tar_format", ["gnu", "pax"])
def test_a_member_of_nine_gigabytes_and_the_one_after_it_are_read(tmp_path: Path, tar_format: str, source: str) -> None:
    path = tmp_path / "a.tar"
    size = 9 << 30
    big = tarfile.TarInfo("a.bin")
    big.size = size
    with path.open("wb") as file:  # the data is a hole in a sparse file
        file.write(big.tobuf(FORMATS[tar_format]))
        start = file.tell()
        file.seek(size - 4, io.SEEK_CUR)
        file.write(b"last" + member(b"b.bin", b"after") + END)
    opened = SOURCES[source](str(path))

    reader = TarReader(opened, build_index(opened))

    assert reader.read(1, bytes) == {".bin": b"after"}
    assert reader.locate(0, "url")[".bin"].offset == start
    assert reader.locate(0, "url")[".bin"].size == size
    with reader.open(0, ".bin") as big_file:
        big_file.seek(-4, io.SEEK_END)
        assert big_file.read() == b"last"


@pytest.mark.parametrize("source", SOURCES)
def test_a_shard_of_200_000_members_is_indexed_and_read(tmp_path: Path, source: str) -> None:
    path = tmp_path / "a.tar"
    count = 200_000
    with path.open("wb") as file:
        for number in range(count):
            file.write(header(b"%06d.%s" % (number // 2, [b"txt", b"cls"][number % 2]), number % 3).ljust(1024, b"x"))
            if number % 3 == 0:
                file.seek(-512, io.SEEK_CUR)
        file.truncate()
        file.write(END)
    opened = SOURCES[source](str(path))

    index = build_index(opened)
    reader = TarReader(opened, index)

    assert reader.num_samples == count // 2
    assert reader.key(count // 2 - 1) == f"{count // 2 - 1:06d}"
    for position in (0, 1, 2, 77_777, count // 2 - 1):
        number = 2 * position
        assert reader.read(position, bytes) == {".txt": b"x" * (number % 3), ".cls": b"x" * ((number + 1) % 3)}
    assert index.sizes.sum() == sum(number % 3 for number in range(count))


@pytest.mark.parametrize("writer", ["tarfile, gnu", "tarfile, pax", "by hand, between ordinary ones"])
def test_a_name_of_60_000_bytes_is_read_whole(writer: str) -> None:
    name = "/".join(["d" * 100] * 600) + ".txt"
    if writer.startswith("tarfile"):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=FORMATS[writer.removeprefix("tarfile, ")]) as tar:
            tar.addfile(tarfile.TarInfo(name))
        assert [found.name for found in find(buffer.getvalue())] == [name.encode()]
    else:
        ordinary = b"".join(member(b"%04d.txt" % number) for number in range(500))
        content = ordinary + long_name(name.encode()) + member(magic=GNU) + ordinary + END
        assert [found.name for found in find(content)][500] == name.encode()
        assert len(find(content)) == 1001


def test_a_name_of_60_000_bytes_is_read_as_gnu_tar_reads_it(tmp_path: Path) -> None:
    name = b"/".join([b"d" * 100] * 600) + b".txt"
    content = long_name(name) + member(magic=GNU) + END
    (tmp_path / "a.tar").write_bytes(content)

    listed = subprocess.run(["tar", "-tf", "a.tar"], cwd=tmp_path, check=True, stdout=subprocess.PIPE).stdout

    assert [found.name for found in find(content)] == [listed.rstrip(b"\n")]


ORDINARY = b"".join(member(b"%04d.txt" % number) for number in range(200))
MAP = b",".join(b"%d,1" % (2 * number) for number in range(40_000))
HOSTILE = {
    "size of 2**62": member(size=b"\x80" + (2**62).to_bytes(11, "big")),
    "long name of 2**62 bytes": header(b"L", b"\x80" + (2**62).to_bytes(11, "big"), kind=b"L", magic=GNU),
    "pax header of 2**62 bytes": header(b"x", b"\x80" + (2**62).to_bytes(11, "big"), kind=b"x"),
    "pax size of 10**60": pax((b"size", b"1" + b"0" * 60)) + member(),
    "a million records": pax_payload(b"".join(b"11 k%05d=v\n" % (number % 100_000) for number in range(90_000)))
    + member(),
    "a global name for all": pax((b"path", b"n" * 100_000), kind=b"g") + header() * 4000,
    "a global target for all": pax((b"linkpath", b"n" * 100_000), kind=b"g") + hard_link(b"l", b"") * 4000,
    "a sparse file of 2**62 bytes": pax((b"GNU.sparse.size", b"%d" % 2**62), (b"GNU.sparse.map", b"0,5")) + member(),
    "a map of 2**60 parts": pax(
        (b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"9")
    )
    + member(data=b"%d\n" % 2**60 + b"1\n" * 255),
    "many links to a sparse file": pax((b"GNU.sparse.size", b"99999"), (b"GNU.sparse.map", MAP))
    + member(data=b"x" * 40_000)
    + hard_link(b"l.txt", b"a.txt") * 4000,
    "ten thousand long names for one member": long_name(b"n" * 400) * 10_000 + member(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_takes_at_most_8_mib_more_memory_than_its_size(name: str) -> None:
    content = ORDINARY + HOSTILE[name] + ORDINARY + END
    source = BufferSource(content, "a.tar")
    scan_members(BufferSource(ORDINARY, "a.tar"))  # so that one-time imports and allocations do not count

    tracemalloc.start()
    try:
        build_index(source)
    except TarFormatError as error:
        assert "byte" in str(error) or "longer than the whole file" in str(error) or "parts together" in str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < len(content) + (8 << 20)
