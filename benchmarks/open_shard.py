"""How much time and private memory does it take to open a shard, by a scan and through its kept index?

    make bench-open

Scans are measured against wids 0.1.11 and CPython's `tarfile` on the same shards; the sides take turns, each in a fresh
process. This package and `tarfile` verify header checksums. The page cache is warm and was filled by reading. The floor
is the time to map the file and touch each of its pages once: no reader that looks through a map at headers all over the
file can be faster. Names and counts are compared.
"""

from __future__ import annotations

import hashlib
import io
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from corpus import OLD, OUT, drop, install_old, read_through

ROUNDS = 7
SHARDS = {
    # name: (members, minimum bytes, maximum bytes, writer)
    "50,000 x 1-600 B, ustar": (50_000, 1, 600, "tarfile"),
    "50,000 x 1-600 B, TarWriter": (50_000, 1, 600, "webdataset"),
    "10,000 x 10-20 kB, ustar": (10_000, 10_000, 20_000, "tarfile"),
    "10,000 x 10-20 kB, TarWriter": (10_000, 10_000, 20_000, "webdataset"),
}
NUM_OPEN = 100
NUM_SAMPLES = 10_000


def main() -> None:
    """Print all tables."""
    OUT.mkdir(exist_ok=True)
    install_old()
    print_scans()
    print_reopening()
    print_memory()
    print_many_shards()


def print_scans() -> None:
    """Compare scans."""
    sides = ("wids 0.1.11", "tarfile", "this", "floor")
    print(f"first opening, ms, median of {ROUNDS}  " + "".join(f"{side:>12}" for side in sides) + "   ratio to 0.1.11")
    for name, (count, least, most, writer) in SHARDS.items():
        path = write_shard(count, least, most, writer)
        drop(path)  # freshly written pages are in the cache in smaller pieces than read ones
        read_through(path)
        times: dict[str, list[float]] = {side: [] for side in sides}
        found = set()
        for _ in range(ROUNDS):
            for side in sides:
                answer = ask("scan", side, str(path))
                times[side].append(answer["ms"])
                found.add(answer.get("names"))
        if len(found - {None}) != 1:
            sys.exit(f"{name}: the sides read different names")
        medians = [statistics.median(times[side]) for side in sides]
        print(f"{name:34}" + "".join(f"{ms:12.1f}" for ms in medians) + f"{medians[0] / medians[2]:12.1f}", flush=True)


def print_reopening() -> None:
    """Measure opening through the kept index."""
    print("\nopening again through the kept index, first sample read, ms; bytes of the index per member")
    for count in (10_000, 50_000, 200_000):
        answer = ask("reopen", str(write_shard(count, 1, 600, "tarfile")))
        print(f"{count:>10,} members {answer['ms']:10.3f} {answer['bytes_per_member']:8.1f}", flush=True)


def print_memory() -> None:
    """Compare the memory that open shards add to a process."""
    shard = str(write_shard(50_000, 1, 600, "tarfile"))
    print(f"\nprivate anonymous memory that open 50,000-member shards add, after {NUM_SAMPLES:,} random samples, MB")
    for side, num_open in (("this", NUM_OPEN), ("wids 0.1.11", NUM_OPEN // 10)):
        print(f"{side:>12}, {num_open:3} open {ask('memory', side, shard, str(num_open))['mb']:10.1f}", flush=True)


def print_many_shards() -> None:
    """Compare random access to many shards with random access to one."""
    answer = ask("many")
    print("\nrandom access to 100,000 samples, us: in one shard, in 100 that stay open, their ratio; each read a miss")
    print(f"{answer['one']:10.2f} {answer['many']:10.2f} {answer['many'] / answer['one']:10.2f} {answer['miss']:10.1f}")


def ask(*arguments: str) -> dict:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])


def write_shard(count: int, least: int, most: int, writer: str) -> Path:
    """Write a shard, unless it exists."""
    path = OUT / f"open-{count}-{most}-{writer}.tar"
    if path.exists():
        return path
    rng = random.Random(0)
    if writer == "webdataset":
        import webdataset

        with webdataset.TarWriter(str(path)) as sink:
            for number in range(count):
                sink.write({"__key__": f"{number:08d}", "bin": rng.randbytes(rng.randint(least, most))})
    else:
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(count):
                member = tarfile.TarInfo(f"{number:08d}.bin")
                member.size = rng.randint(least, most)
                tar.addfile(member, io.BytesIO(rng.randbytes(member.size)))
    return path


# In the fresh process


def scan(side: str, path: str) -> dict:
    """Open a shard; return the time taken and a digest of its names."""
    use(side)
    if side == "floor":
        import numpy as np

        start = time.perf_counter()
        with Path(path).open("rb") as file:
            pages = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)[:: mmap.PAGESIZE]
            int(pages.max())
        return {"ms": 1e3 * (time.perf_counter() - start)}
    if side == "tarfile":
        start = time.perf_counter()
        with tarfile.open(path) as tar:
            names = tar.getnames()
        taken = time.perf_counter() - start
        names = [name.split(".")[0] for name in names]
    else:
        from wids.wids import IndexedTarSamples

        start = time.perf_counter()
        samples = IndexedTarSamples(path=path)
        taken = time.perf_counter() - start
        names = [samples[number]["__key__"] for number in range(len(samples))]
    return {"ms": 1e3 * taken, "names": hashlib.sha256("\n".join(names).encode()).hexdigest()}


def reopen(path: str) -> dict:
    """Open a shard with a kept index again and again; return the time taken and the size of the index."""
    import wids

    with tempfile.TemporaryDirectory() as cache:
        shards = [{"url": path, "nsamples": len(wids.IndexedTarSamples(path))}]
        times = []
        for _ in range(31):
            dataset = wids.ShardListDataset(shards, transformations=[], cache_dir=cache)
            start = time.perf_counter()
            dataset[len(dataset) // 2]
            times.append(time.perf_counter() - start)
        (kept,) = Path(cache).rglob("*.widx")
        return {
            "ms": 1e3 * statistics.median(times[1:]),
            "bytes_per_member": kept.stat().st_size / shards[0]["nsamples"],
        }


def memory(side: str, path: str, num_open: str) -> dict:
    """Open `num_open` shards, read samples at random, and return the memory that this added."""
    use(side)
    import wids

    with tempfile.TemporaryDirectory() as cache:
        shards = []
        for number in range(int(num_open)):
            link = Path(cache, f"{number}.tar")
            link.symlink_to(Path(path).resolve())
            shards.append({"url": str(link), "nsamples": 50_000})
        more = {"keep": True} if side != "this" else {}
        dataset = wids.ShardListDataset(shards, transformations=[], cache_dir=cache, lru_size=1000, **more)
        if side == "this" and os.fork() == 0:
            for number in range(len(shards)):
                dataset[50_000 * number]  # as if another worker on this machine had indexed these shards before
            os._exit(0)
        elif side == "this":
            os.wait()
        before = anonymous_bytes()
        rng = random.Random(0)
        for _ in range(NUM_SAMPLES):
            dataset[rng.randrange(len(dataset))]
        return {"mb": (anonymous_bytes() - before) / 1e6}


def anonymous_bytes() -> int:
    """Return the private anonymous memory of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon"))


def many() -> dict:
    """Read at random from one shard, from many open ones, and from many that must be opened each time."""
    import wids

    with tempfile.TemporaryDirectory() as folder:
        write_samples(Path(folder, "one.tar"), range(100_000))
        shards = []
        for shard in range(100):
            path = Path(folder, f"{shard:03d}.tar")
            write_samples(path, range(1000 * shard, 1000 * (shard + 1)))
            shards.append((str(path), 1000))
        rng = random.Random(0)

        def measure(dataset: wids.ShardListDataset, reads: int) -> float:
            indices = [rng.randrange(len(dataset)) for _ in range(reads)]
            for index in range(0, len(dataset), 1000):
                dataset[index]
            times = []
            for _ in range(5):
                start = time.perf_counter()
                for index in indices:
                    dataset[index]
                times.append((time.perf_counter() - start) / reads)
            return 1e6 * statistics.median(times)

        options = {"transformations": [], "cache_dir": folder}
        return {
            "one": measure(wids.ShardListDataset([(str(Path(folder, "one.tar")), 100_000)], **options), 20_000),
            "many": measure(wids.ShardListDataset(shards, **options), 20_000),
            "miss": measure(wids.ShardListDataset(shards, lru_size=1, **options), 2000),
        }


def write_samples(path: Path, numbers: range) -> None:
    """Write samples of 2 kB and 60 B."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in numbers:
            for field, size in (("jpg", 2000), ("txt", 60)):
                member = tarfile.TarInfo(f"{number:08d}.{field}")
                member.size = size
                tar.addfile(member, io.BytesIO(bytes(size)))


def use(side: str) -> None:
    """Put the old package before this one on the path, if it is to be measured."""
    if side == "wids 0.1.11":
        sys.path.insert(0, str(OLD))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps({"scan": scan, "reopen": reopen, "memory": memory, "many": many}[sys.argv[1]](*sys.argv[2:])))
    else:
        main()
