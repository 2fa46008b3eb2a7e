"""Up to which distance between headers is it faster to look for one in every block than to hop from header to header?

    make bench-border

`wids.tar.runs.DENSE_STRIDE` is this distance. Both ways are measured in turn on the same shards of 96 MB, with the file
in the page cache (filled by reading) and with it dropped from there before each scan. The members that they find are
compared.
"""

from __future__ import annotations

import statistics
import tarfile
import tempfile
import time
from pathlib import Path

from corpus import OUT, drop, read_through

from wids.source import MmapSource
from wids.tar import runs, scan_members

SHARD_BYTES = 96 << 20
STRIDES_KIB = (2, 4, 8, 16, 24, 32, 48, 64, 128, 256)
ROUNDS = 5
WAYS = {"look": 1 << 40, "hop": 0}


def main() -> None:
    """Print one line per distance."""
    print(
        f"ms, medians of {ROUNDS}   " + "".join(f"{title:>12}" for title in ("look", "hop", "look, cold", "hop, cold"))
    )
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        for stride in STRIDES_KIB:
            path = Path(folder, "shard.tar")
            write_shard(path, stride << 10)
            times = measure(path)
            medians = [statistics.median(times[way, cold]) for cold in (False, True) for way in WAYS]
            print(f"{stride:6} KiB apart    " + "".join(f"{1e3 * median:12.1f}" for median in medians), flush=True)
    print(f"DENSE_STRIDE is {runs.DENSE_STRIDE >> 10} KiB")


def write_shard(path: Path, stride: int) -> None:
    """Write members whose headers are about `stride` bytes apart."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SHARD_BYTES // stride):
            member = tarfile.TarInfo(f"{number:08d}.bin")
            member.size = stride - 512 - number % 512
            with open("/dev/urandom", "rb") as noise:  # noqa: PTH123
                tar.addfile(member, noise)


def measure(path: Path) -> dict[tuple[str, bool], list[float]]:
    """Return the seconds that scans took, by way and by whether the page cache was cold."""
    times: dict[tuple[str, bool], list[float]] = {(way, cold): [] for way in WAYS for cold in (False, True)}
    read_through(path)
    found = set()
    for _ in range(ROUNDS):
        for cold in (False, True):
            for way, runs.DENSE_STRIDE in WAYS.items():
                drop(path) if cold else read_through(path)
                start = time.perf_counter()
                members = scan_members(MmapSource(str(path)))
                times[way, cold].append(time.perf_counter() - start)
                found.add(members.offsets.tobytes() + members.sizes.tobytes())
    runs.DENSE_STRIDE = BORDER
    if len(found) != 1:
        raise SystemExit("the two ways found different members")
    return times


BORDER = runs.DENSE_STRIDE

if __name__ == "__main__":
    main()
