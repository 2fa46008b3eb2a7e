"""Which shards the disk cache keeps, and how much space it takes."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.storage.reading import content, exit_status_of_fork, shards, unfinished
from tests.storage.web_server import WebServer, web_server
from tests.support import sample_members, write_tar
from wids.errors import FetchError
from wids.storage import CachedShard, Storage, StorageOptions
from wids.storage.folder import CacheFolder
from wids.storage.options import parse_size
from wids.storage.space import Announcement, CacheSpace, Record, choose_victim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZE = 1000


class Counted:
    """Measures how many openings of shards of equal size hit the cache of a storage.

    Args:
        storage: The storage.
        server: The server from which it fetches, which serves each shard that is opened.
    """

    def __init__(self, storage: Storage, server: WebServer) -> None:
        self._storage = storage
        self._server = server

    def hit_rate(self, order: Sequence[int]) -> float:
        before = sum(self._server.bodies.values())
        for shard in order:
            name = f"{shard}.tar"
            self._server.objects.setdefault(name, name.encode().ljust(SIZE, b"."))
            assert content(self._storage.open({"url": self._server.url(name)})) == self._server.objects[name]
        return 1 - (sum(self._server.bodies.values()) - before) / len(order)


def put_shards(server: WebServer, folder: Path, number: int) -> list[dict[str, Any]]:
    """Write and serve shards of three samples; return their descriptor entries."""
    entries = []
    for shard in range(number):
        path = write_tar(folder / f"{shard}.tar", sample_members(3, first=3 * shard))
        server.objects[path.name] = path.read_bytes()
        entries.append({"url": server.url(path.name), "nsamples": 3})
    return entries


def epochs(num_shards: int, num_epochs: int, draw: random.Random) -> list[int]:
    return [shard for _ in range(num_epochs) for shard in draw.sample(range(num_shards), num_shards)]


def lru_hits(order: Sequence[int], capacity: int, skip: int = 0) -> float:
    there: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for place, shard in enumerate(order):
        if shard in there:
            there.move_to_end(shard)
            hits += place >= skip
            continue
        if len(there) == capacity:
            there.popitem(last=False)
        there[shard] = None
    return hits / (len(order) - skip)


def farthest_hits(order: Sequence[int], capacity: int, skip: int = 0) -> float:
    """Return the hit rate of evicting the shard whose next use is farthest, which is optimal (Belady 1966)."""
    places = defaultdict(list)
    for place, shard in reversed(list(enumerate(order))):
        places[shard].append(place)
    there: set[int] = set()
    hits = 0
    for place, shard in enumerate(order):
        places[shard].pop()
        if shard in there:
            hits += place >= skip
            continue
        if len(there) == capacity:
            there.remove(max(there, key=lambda known: places[known][-1] if places[known] else len(order)))
        there.add(shard)
    return hits / (len(order) - skip)


@pytest.mark.parametrize(("capacity", "at_least"), [(30, 0.45), (48, 0.75)])
def test_the_hit_rate_of_epochs_larger_than_the_cache_is_near_the_optimum(
    server: WebServer, make_storage: Callable[..., Storage], capacity: int, at_least: float
) -> None:
    """60 shards are read in shuffled order in four epochs, the first of which can hit nothing."""
    order = epochs(60, 4, random.Random(5))
    cached = Counted(make_storage(cache_size=capacity * SIZE), server)
    assert cached.hit_rate(order[:60]) == 0
    found = cached.hit_rate(order[60:])

    assert found >= at_least
    assert found >= 0.9 * farthest_hits(order, capacity, 60)
    assert found > lru_hits(order, capacity, 60) + 0.2


@pytest.mark.parametrize(("skew", "capacity"), [(0.8, 5), (1.0, 20), (1.2, 5)])
def test_skewed_access_hits_at_least_as_often_as_lru(
    server: WebServer, make_storage: Callable[..., Storage], skew: float, capacity: int
) -> None:
    draw = random.Random(7)
    order = draw.choices(range(60), [1 / (rank + 1) ** skew for rank in range(60)], k=600)

    assert Counted(make_storage(cache_size=capacity * SIZE), server).hit_rate(order) >= lru_hits(order, capacity)


def test_shards_that_were_used_often_long_ago_are_removed(
    server: WebServer, make_storage: Callable[..., Storage]
) -> None:
    cached = Counted(make_storage(cache_size=10 * SIZE), server)
    cached.hit_rate(list(range(10)) * 20)
    cached.hit_rate([shard + 100 for shard in epochs(10, 40, random.Random(1))])

    assert cached.hit_rate([shard + 100 for shard in range(10)]) >= 0.8


def test_announced_shards_are_removed_last_and_the_farthest_of_them_first() -> None:
    def shard(name: str, arrived: int, uses: int) -> CachedShard:
        return CachedShard(name, name, Record(name, "", "", 1, 1, 1, name), arrived, arrived, uses)

    there = [shard("old", 1, 5), shard("new", 9, 1), shard("next", 8, 0), shard("later", 7, 0)]
    needed = {"next": 0, "later": 1}

    assert choose_victim(there, needed).id == "new"
    assert choose_victim(there[2:], needed).id == "later"
    assert choose_victim([shard("old", 1, 1), shard("hot", 9, 4)], {}).id == "old"


def test_an_announcement_ends_with_its_process(tmp_path: Path) -> None:
    folder = CacheFolder(str(tmp_path))
    folder.make()
    space = CacheSpace(folder, 10)
    own = Announcement(folder)
    own.tell(["a" * 32, "b" * 32])

    def announce() -> int:
        Announcement(folder).tell(["c" * 32])
        return 0

    assert exit_status_of_fork(announce) == 0
    assert space._needed_next() == {"a" * 32: 0, "b" * 32: 1}
    own.close()
    assert space._needed_next() == {}


def test_the_limit_is_kept_and_a_shard_larger_than_it_is_still_cached(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    opened = make_storage(cache_size=3 * SIZE)
    Counted(opened, server).hit_rate(range(10))
    assert len(shards(cache_dir)) == 3
    server.objects["large.tar"] = bytes(20 * SIZE)
    assert content(opened.open({"url": server.url("large.tar")})) == bytes(20 * SIZE)
    assert [path.stat().st_size for path in shards(cache_dir)] == [20 * SIZE]
    Counted(opened, server).hit_rate([1])
    assert [path.stat().st_size for path in shards(cache_dir)] == [SIZE]


def test_keep_removes_nothing(server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path) -> None:
    Counted(make_storage(cache_size=3 * SIZE, keep=True), server).hit_rate(range(10))

    assert len(shards(cache_dir)) == 10


def test_the_environment_sets_the_cache_size(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDS_CACHE_SIZE", "2kB")
    Counted(make_storage(), server).hit_rate(range(5))
    assert len(shards(cache_dir)) == 2
    monkeypatch.setenv("WIDS_CACHE_SIZE", "huge")
    with pytest.raises(ValueError, match=r"\$WIDS_CACHE_SIZE is 'huge'; it must be a number of bytes"):
        make_storage()


@pytest.mark.parametrize("size", [0, -1, "", "GB", "1 2", "1e3x", float("nan"), float("inf"), True, "0"])
def test_an_invalid_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match="must be a number of bytes"):
        parse_size(size, "cache_size")


def test_files_the_cache_did_not_write_are_never_removed(
    server: WebServer, make_storage: Callable[..., Storage], cache_dir: Path
) -> None:
    """The cache folder is also a folder of the user's own shards."""
    cache_dir.mkdir()
    for number in range(5):
        (cache_dir / f"own-{number}.tar").write_bytes(bytes(SIZE))
    opened = make_storage(cache_size=2 * SIZE)
    Counted(opened, server).hit_rate(range(5))
    victim = next(path for path in shards(cache_dir) if not path.name.startswith("own"))
    theirs = cache_dir / "theirs"  # made before the other file goes, so that it cannot get its inode number
    theirs.write_bytes(b"put here by somebody else".ljust(SIZE))
    theirs.rename(victim)
    Counted(opened, server).hit_rate([20, 21, 22, 23])

    assert sum(path.name.startswith("own") for path in shards(cache_dir)) == 5
    assert victim.read_bytes().startswith(b"put here")


def test_a_view_stays_valid_when_its_shard_is_removed(server: WebServer, cache_dir: Path, tmp_path: Path) -> None:
    entries = put_shards(server, tmp_path, 4)
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir), cache_size=12_000)
    view = dataset.view(0)[".txt"]
    file = dataset.open(1, "txt")
    assert dataset.read(11)[".txt"] == b"text of 11"

    assert [path.name[0] for path in shards(cache_dir)] == ["3"]
    assert (bytes(view), file.read()) == (b"text of 0", b"text of 1")


# Space used, by the folder's files and by statvfs

MB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk of 16 MiB; tests are skipped where it cannot be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def read_at_random(entries: list[dict[str, Any]], cache: str, seed: int, answers: Any) -> None:
    dataset = wids.ShardListDataset(entries, cache_dir=cache, cache_size=3 * MB + 20_000, transformations=[])
    draw = random.Random(seed)
    wrong = 0
    for _ in range(30):
        index = draw.randrange(len(dataset))
        wrong += dataset.read(index)[".bin"] != bytes([index]) * (MB - 2048)
    answers.put(wrong)


def test_the_disk_never_holds_more_than_the_limit_and_what_is_in_use(small_disk: Path, tmp_path: Path) -> None:
    """4 processes read 50 shards of 1 MiB at random, with a cache of 3.

    At most there are the 3, one that each process is fetching, and one that each is reading."""
    with web_server() as server:
        entries = []
        for number in range(50):
            path = write_tar(tmp_path / f"{number}.tar", [("a.bin", bytes([number]) * (MB - 2048))])
            server.objects[path.name] = path.read_bytes()
            entries.append({"url": server.url(path.name), "nsamples": 1})
        largest = len(server.objects["0.tar"])
        context: Any = multiprocessing.get_context("spawn")
        answers = context.Queue()
        readers = [
            context.Process(target=read_at_random, args=(entries, str(small_disk), seed, answers)) for seed in range(4)
        ]
        for reader in readers:
            reader.start()
        most_used = most_listed = 0
        while any(reader.is_alive() for reader in readers):
            disk = os.statvfs(small_disk)
            most_used = max(most_used, (disk.f_blocks - disk.f_bfree) * disk.f_frsize)
            most_listed = max(most_listed, total_size(small_disk))
        assert [answers.get(timeout=60) for _ in readers] == [0] * 4
        for reader in readers:
            reader.join()

    slack = MB  # bookkeeping and indexes
    assert most_listed <= (3 + 4) * largest + slack
    assert most_used <= (3 + 4 + 4) * largest + slack
    assert len(shards(small_disk)) == 3
    assert not unfinished(small_disk)


def total_size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def test_a_shard_larger_than_the_disk_is_an_error_and_smaller_ones_still_work(
    small_disk: Path, server: WebServer
) -> None:
    opened = Storage(StorageOptions(cache_dir=str(small_disk), cache_size="1GB"))
    server.objects |= {"small.tar": bytes(MB), "large.tar": bytes(20 * MB)}
    opened.open({"url": server.url("small.tar")})
    with pytest.raises(
        FetchError, match=r"large.tar: the disk of the cache folder .* is full; free some of it, or set"
    ):
        opened.open({"url": server.url("large.tar")})

    assert not unfinished(small_disk)
    assert content(opened.open({"url": server.url("small.tar")})) == bytes(MB)


def test_cached_shards_are_removed_when_the_disk_is_full(small_disk: Path, server: WebServer) -> None:
    opened = Storage(StorageOptions(cache_dir=str(small_disk), cache_size="1GB"))
    for number in range(12):
        server.objects[f"{number}.tar"] = bytes([number]) * (3 * MB)
        assert content(opened.open({"url": server.url(f"{number}.tar")})) == server.objects[f"{number}.tar"]

    assert 3 <= len(shards(small_disk)) <= 5
    assert not unfinished(small_disk)


def fill(opened: Storage, urls: list[str]) -> None:
    for url in urls:
        opened.open({"url": url})


def test_a_full_disk_is_an_error_with_keep(small_disk: Path, server: WebServer) -> None:
    opened = Storage(StorageOptions(cache_dir=str(small_disk), keep=True))
    for number in range(12):
        server.objects[f"{number}.tar"] = bytes([number]) * (3 * MB)
    with pytest.raises(FetchError, match="is full"):
        fill(opened, [server.url(f"{number}.tar") for number in range(12)])

    assert len(shards(small_disk)) in {4, 5}
    assert not unfinished(small_disk)


def test_maps_of_removed_shards_are_closed_at_the_next_miss(server: WebServer, cache_dir: Path, tmp_path: Path) -> None:
    entries = put_shards(server, tmp_path, 6)
    dataset = wids.ShardListDataset(entries, cache_dir=str(cache_dir))
    for index in (0, 3, 6):
        dataset.read(index)
    for path in shards(cache_dir):
        path.unlink()

    def removed_and_mapped() -> list[str]:
        lines = Path("/proc/self/maps").read_text().splitlines()
        return [line for line in lines if f"{cache_dir}/" in line and line.endswith(".tar (deleted)")]

    assert len(removed_and_mapped()) == 3
    dataset.read(9)
    assert not removed_and_mapped()
