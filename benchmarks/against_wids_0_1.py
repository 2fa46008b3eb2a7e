"""How much faster than wids 0.1.11 is it to open a shard, and to read `dataset[i]` at random from memory?

    make bench-old

Both sides read the same shards in one run. 0.1.11 is installed into a folder of its own, since the package names
collide. The sides take turns, and each measurement is a fresh process. Samples are compared before anything is timed.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import statistics
import subprocess
import sys
import tarfile
import time
from typing import TYPE_CHECKING

from corpus import OLD, OUT, install_old

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 7
READS = 4000
SHARDS = {
    # name: (samples, {field: (minimum bytes, maximum bytes)})
    "open": (50_000, {"bin": (1, 600)}),
    "two": (5_000, {"jpg": (14_000, 14_000), "cls": (3, 3)}),
    "one": (50_000, {"txt": (300, 300)}),
}
AIMS = {"open": 8.0, "two": 3.0, "one": 3.0}
NAMES = {
    "open": "open a shard of 50,000 members of 1 to 600 B, ms",
    "two": "random dataset[i], 14 kB + 3 B, us",
    "one": "random dataset[i], 300 B, us",
}


def main() -> None:
    """Write the shards, measure both sides in turn, and print a table."""
    OUT.mkdir(exist_ok=True)
    install_old()
    for name, (count, fields) in SHARDS.items():
        write_shard(OUT / f"{name}.tar", count, fields)
    print(f"{'medians of ' + str(ROUNDS):52} {'0.1.11':>9} {'this':>9} {'ratio':>6} {'aim':>5}")
    for name in SHARDS:
        times: dict[str, list[float]] = {"old": [], "new": []}
        digests = set()
        for _ in range(ROUNDS):
            for side in ("old", "new"):
                command = [sys.executable, __file__, side, name]
                answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
                times[side].append(answer["time"])
                digests.add(answer["digest"])
        if len(digests) != 1:
            sys.exit(f"{name}: the two sides read different bytes")
        old, new = (statistics.median(times[side]) for side in ("old", "new"))
        print(f"{NAMES[name]:52} {old:9.2f} {new:9.2f} {old / new:6.2f} {AIMS[name]:5.1f}", flush=True)


def write_shard(path: Path, count: int, fields: dict[str, tuple[int, int]]) -> None:
    """Write a shard in the ustar format, unless it exists."""
    if path.exists():
        return
    rng = random.Random(0)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(count):
            for field, (least, most) in fields.items():
                member = tarfile.TarInfo(f"{number:08d}.{field}")
                member.size = rng.randint(least, most)
                tar.addfile(member, io.BytesIO(rng.randbytes(member.size)))


def measure(side: str, name: str) -> None:
    """Measure one side in this process, and print the result as JSON."""
    if side == "old":
        sys.path.insert(0, str(OLD))
        import wids
        from wids.wids import IndexedTarSamples
    else:
        import wids
        from wids import IndexedTarSamples
    path = str(OUT / f"{name}.tar")
    count = SHARDS[name][0]
    if name == "open":
        times = []
        for _ in range(3):
            start = time.perf_counter()
            samples = IndexedTarSamples(path=path)
            times.append(time.perf_counter() - start)
            if len(samples) != count:
                sys.exit(f"{side}: {len(samples)} samples")
        digest = hashlib.sha256(b"".join(samples[i][".bin"].read() for i in range(0, count, 97)))
        print(json.dumps({"time": 1e3 * min(times), "digest": digest.hexdigest()}))
        return
    more = {"cache_dir": str(OUT / "cache"), "keep": True} if side == "old" else {}
    dataset = wids.ShardListDataset([{"url": path, "nsamples": count}], transformations=[], **more)
    indices = random.Random(1).sample(range(count), READS)
    digest = hashlib.sha256()
    for index in indices:
        sample = dataset[index]
        digest.update(b"".join(sample[f".{field}"].read() for field in SHARDS[name][1]))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for index in indices:
            dataset[index]
        times.append((time.perf_counter() - start) / READS)
    print(json.dumps({"time": 1e6 * min(times), "digest": digest.hexdigest()}))


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
