"""The contract of sources, checked for every kind of them."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from wids.source import BufferSource, MmapSource, PreadSource, Source, digest_source
from wids.storage import ReadAhead, Storage, StorageOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.storage.web_server import WebServer

DATA = random.Random(1).randbytes(300_007)

KINDS = (
    "mapped",
    "empty-name mapped",
    "cached",
    "pread",
    "memory",
    "web ranges",
    "store ranges",
    "read ahead",
    "cached pread",
)


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path, server: WebServer) -> Source:
    """One source of each kind, over `DATA`."""
    path = tmp_path / "a.tar"
    path.write_bytes(DATA)
    server.has_ranges = True
    server.objects["a.tar"] = DATA
    with fsspec.open("memory://sources/a.tar", "wb") as file:
        file.write(DATA)

    def stored(url: str, **options: Any) -> Source:
        return Storage(StorageOptions(cache_dir=str(tmp_path / "cache"), **options)).open({"url": url})

    kinds: dict[str, Callable[[], Source]] = {
        "mapped": lambda: MmapSource(str(path)),
        "empty-name mapped": lambda: MmapSource(str(path), ""),
        "cached": lambda: stored(server.url("a.tar")),
        "cached pread": lambda: stored(server.url("a.tar"), io="pread"),
        "pread": lambda: PreadSource(str(path)),
        "memory": lambda: BufferSource(DATA, "a.tar"),
        "web ranges": lambda: stored(server.url("a.tar"), access="range"),
        "store ranges": lambda: stored("memory://sources/a.tar", access="range"),
        "read ahead": lambda: ReadAhead(stored(server.url("a.tar"), access="range")),
    }
    return kinds[request.param]()


def part(window: tuple[memoryview, int], start: int, stop: int) -> bytes:
    view, base = window
    assert base <= start
    return bytes(view[start - base : stop - base])


def random_spans(draw: random.Random, number: int) -> list[tuple[int, int]]:
    starts = [draw.randrange(len(DATA) + 10) for _ in range(number)]
    return [(start, start + draw.choice((0, 1, 100, 512, 70_000))) for start in starts]


def test_a_window_holds_the_requested_bytes(source: Source) -> None:
    assert source.identity.size == len(DATA)
    assert source.name.endswith("a.tar")
    for start, stop in random_spans(random.Random(2), 60):
        assert part(source.window(start, stop), start, min(stop, len(DATA))) == DATA[start:stop]


def test_windows_come_in_the_order_of_their_spans(source: Source) -> None:
    draw = random.Random(3)
    for number in (0, 1, 2, 30):
        spans = random_spans(draw, number)
        windows = source.windows(spans)
        assert [part(window, *span) for window, span in zip(windows, spans, strict=True)] == [
            DATA[start:stop] for start, stop in spans
        ]


def test_windows_end_where_the_object_ends(source: Source) -> None:
    end = len(DATA)
    for start, stop in ((end, end), (end, end + 5), (end + 5, end + 9), (0, 0), (7, 7)):
        assert part(source.window(start, stop), start, stop) == DATA[start:stop]
    assert part(source.window(end - 3, end + 1000), end - 3, end) == DATA[-3:]
    assert part(source.window(0, end), 0, end) == DATA


def test_windows_stay_valid_after_release(source: Source) -> None:
    window = source.window(1000, 2000)
    source.release()

    assert part(window, 1000, 2000) == DATA[1000:2000]


def test_advise_never_raises(source: Source) -> None:
    for hint in ("sequential", "random", "willneed"):
        source.advise([(0, 10), (5000, 5000), (len(DATA) - 1, len(DATA) + 100_000)], hint)
    assert not source.is_removed()
    assert source.cached_bytes in {0, len(DATA)}


def test_threads_share_a_source(source: Source) -> None:
    wrong: list[tuple[int, int]] = []

    def read(seed: int) -> None:
        for start, stop in random_spans(random.Random(seed), 40):
            if part(source.window(start, stop), start, min(stop, len(DATA))) != DATA[start:stop]:
                wrong.append((start, stop))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_the_digest_of_a_source_is_that_of_its_bytes(source: Source) -> None:
    assert digest_source(source) == digest_source(BufferSource(DATA, "a"))
