"""Small archives from which the fuzz target starts: one for each form of header."""

from __future__ import annotations

from tests.tar.archives import END, GNU, V7, hard_link, header, long_name, member, pax


def _seeds() -> dict[str, bytes]:
    after = member(b"b.txt", b"bye")
    return {
        "ustar": member(b"a.cls", b"1") + member(b"a.jpg") + after,
        "many": b"".join(member(b"%d.txt" % n, b"x" * n) for n in range(12)),
        "times": b"".join(pax((b"mtime", b"1.5")) + member(b"%d.txt" % n) for n in range(4)),
        "pax": pax((b"path", b"p" * 120), (b"size", b"5")) + member(size=0) + after,
        "global": pax((b"path", b"g.txt"), kind=b"g") + member() + after,
        "comment": pax((b"comment", b"c"), kind=b"g") + member() + after,
        "prefix": member(prefix=b"p" * 155) + member(prefix=b"go", magic=GNU) + after,
        "gnu": long_name(b"n" * 120)
        + member(magic=GNU)
        + long_name(b"t", kind=b"K")
        + hard_link(b"l.txt", b"")
        + after,
        "v7": member(magic=V7) + header(b"d/", kind=b"\0", magic=V7) + after,
        "kinds": b"".join(member(b"%c" % kind, b"x", kind=b"%c" % kind) for kind in b"7VZ") + header(kind=b"5") + after,
        "base 256": member(size=b"\x80" + bytes(10) + b"\5") + after,
        "links": after + hard_link(b"1.txt", b"./b.txt") + hard_link(b"2.txt", b"1.txt") + hard_link(b"3.txt", b"4"),
        "sparse": member(
            data=b"x" * 12,
            kind=b"S",
            magic=GNU,
            fields={386: b"%011o\0%011o\0%011o\0%011o\0" % (0, 10, 1000, 2), 483: b"%011o\0" % 2000},
        )
        + after,
        "sparse, extended": header(
            size=3, kind=b"S", magic=GNU, fields={386: b"%011o\0%011o\0" % (5, 1), 482: b"\1", 483: b"%011o\0" % 99}
        )
        + (b"%011o\0%011o\0" % (9, 2)).ljust(512, b"\0")
        + b"abc".ljust(512, b"\0")
        + after,
        "sparse 0.0": pax(
            (b"GNU.sparse.size", b"99"),
            (b"GNU.sparse.numblocks", b"2"),
            (b"GNU.sparse.offset", b"0"),
            (b"GNU.sparse.numbytes", b"2"),
            (b"GNU.sparse.offset", b"50"),
            (b"GNU.sparse.numbytes", b"3"),
        )
        + member()
        + after,
        "sparse 0.1": pax((b"GNU.sparse.name", b"s.txt"), (b"GNU.sparse.size", b"99"), (b"GNU.sparse.map", b"0,2,50,3"))
        + member()
        + after,
        "sparse 1.0": pax(
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"s.txt"),
            (b"GNU.sparse.realsize", b"99"),
        )
        + member(data=b"2\n0\n2\n50\n3\n".ljust(512, b"\0") + b"hello")
        + after,
        "sparse of star": member(
            kind=b"S", fields={356: b"%011o %011o " % (0, 5), 452: b"%011o " % 2000, 508: b"tar\0"}
        )
        + after,
        "two": member() + END + member(),
    }


SEEDS: dict[str, bytes] = {name: content + END for name, content in _seeds().items()}
