"""How long does `wids create` take for 400 shards, with one and two workers, and again, against 0.1.11 and `md5sum`?

    make bench-create

The shards are 400 hard links to 8 files of 25 MB, so that all of them fit into the page cache: the work is measured,
not the disk. 0.1.11 is installed into a folder of its own. Each measurement is a whole process, and the sides take
turns. Counts, sizes and MD5 sums are compared in each round.
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path

from corpus import OLD, OUT, install_old

SHARDS = OUT / "create"
NUM_SHARDS = int(os.environ.get("SHARDS", "400"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
NUM_FILES = 8
SAMPLES_PER_SHARD = 250
SAMPLE_BYTES = 100_000
NEW = [sys.executable, "-m", "wids", "create", "--no-resume", "-o", "new.json", "-w"]
MEASURED = {
    "0.1.11": [sys.executable, "-c", "from wids.wids_index import main; main()", "create", "-o", "old.json"],
    "no md5, 1 worker": [*NEW, "1", "--no-md5"],
    "md5, 1 worker": [*NEW, "1"],
    "md5, 2 workers": [*NEW, "2"],
    "md5sum, 1 process": ["xargs", "-n", "20", "-P", "1", "md5sum"],
    "md5sum, 2 processes": ["xargs", "-n", "20", "-P", "2", "md5sum"],
    "second run": [sys.executable, "-m", "wids", "create", "-o", "kept.json"],
}
AIMS = [
    ("0.1.11", "no md5, 1 worker", 8.0),
    ("md5, 1 worker", "md5, 2 workers", 1.7),
    ("md5sum, 1 process", "md5, 1 worker", 1 / 1.2),
    ("md5sum, 2 processes", "md5, 2 workers", 1 / 1.2),
    ("md5, 1 worker", "second run", 8.0),
]
PEAK = """
import sys, wids
from peak_memory import peak_megabytes
wids.create_index(sys.argv[1:], "peak.json", md5=False, index=True, resume=False)
print(peak_megabytes())
"""


def main() -> None:
    """Write the shards, measure all in turn, and print a table."""
    names = prepare()
    run("second run", names)  # leaves the journal that later runs find
    times: dict[str, list[float]] = {name: [] for name in MEASURED}
    cpu_times: dict[str, list[float]] = {name: [] for name in MEASURED}
    for _ in range(ROUNDS):
        for name in MEASURED:
            before = os.times()
            sums = run(name, names)
            after = os.times()
            times[name].append(after.elapsed - before.elapsed)
            cpu_times[name].append(sum(after[2:4]) - sum(before[2:4]))
            if name.startswith("md5"):
                check(name, sums)
    size = sum((SHARDS / name).stat().st_size for name in names)
    print(f"{NUM_SHARDS} shards, {size / 1e9:.1f} GB, warm page cache; medians of {ROUNDS}")
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:24} {median:8.2f} s {statistics.median(cpu_times[name]):8.2f} s of CPU")
    for slow, fast, aim in AIMS:
        print(f"{slow} / {fast}: {medians[slow] / medians[fast]:.2f} (aim: at least {aim:.2f})")
    here = Path(__file__).parent
    for count in (NUM_SHARDS // 10, NUM_SHARDS):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *names[:count]],
            cwd=SHARDS,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{here.parent}:{here}"},
        )
        print(f"peak memory, {count} shards with a pack: {float(done.stdout):.0f} MiB")


def prepare() -> list[str]:
    """Return the names of the shards; those that do not exist are written."""
    SHARDS.mkdir(parents=True, exist_ok=True)
    install_old()
    names = [f"train-{number:06d}.tar" for number in range(NUM_SHARDS)]
    for number, name in enumerate(names):
        if not (SHARDS / name).exists():
            if number < NUM_FILES:
                write_shard(SHARDS / name, number)
            else:
                os.link(SHARDS / names[number % NUM_FILES], SHARDS / name)
    return names


def write_shard(path: Path, seed: int) -> None:
    """Write a shard in the ustar format."""
    rng = random.Random(seed)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SAMPLES_PER_SHARD):
            for field, size in (("jpg", SAMPLE_BYTES), ("cls", 3)):
                member = tarfile.TarInfo(f"{seed:03d}-{number:06d}.{field}")
                member.size = size
                tar.addfile(member, io.BytesIO(rng.randbytes(size)))


def check(name: str, sums: str) -> None:
    """Stop unless the last run of a command found the same as 0.1.11."""
    old, new = read("old.json"), read("new.json")
    words = sums.split()
    printed = dict(zip(words[1::2], words[::2], strict=True)) if name.startswith("md5sum") else {}
    if new != old or any(printed.get(url, md5) != md5 for url, _, _, md5 in old):
        sys.exit(f"{name}: the sides do not agree on the shards")


def run(name: str, names: list[str]) -> str:
    """Run one of the commands, and return what it prints."""
    is_filter = MEASURED[name][0] == "xargs"
    done = subprocess.run(
        MEASURED[name] if is_filter else [*MEASURED[name], *names],
        cwd=SHARDS,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        input="\n".join(names) if is_filter else None,
        env={**os.environ, "PYTHONPATH": str(OLD if name == "0.1.11" else Path(__file__).parents[1])},
    )
    return done.stdout


def read(name: str) -> list[tuple[str, int, int, str]]:
    """Return URL, number of samples, size and MD5 of each shard in a descriptor."""
    entries = json.loads((SHARDS / name).read_bytes())["shardlist"]
    return [(entry["url"], entry["nsamples"], entry["filesize"], entry["md5sum"]) for entry in entries]


if __name__ == "__main__":
    main()
