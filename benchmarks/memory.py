"""How much private memory does a worker need, and does it grow with the number of samples read?

    make bench-memory

The workers of a DataLoader read 100 shards of 50,000 members each at random. Reported are a worker's private memory
without files (`Private_Dirty` of anonymous maps in /proc/PID/smaps), against a worker that reads nothing, and the size
of the files that it maps, whose pages all workers share.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import corpus
import torch
from torch.utils.data import DataLoader, Dataset

import wids

SHARDS, MEMBERS = 100, 50_000
READS = 20_000
OUT = corpus.OUT / "memory"
WORKERS = 2


class Nothing(Dataset[int]):
    """A dataset of plain numbers, whose workers read no files."""

    def __len__(self) -> int:
        return READS

    def __getitem__(self, index: int) -> int:
        return index


def main() -> None:
    """Print how much memory workers need."""
    OUT.mkdir(parents=True, exist_ok=True)
    shards = [OUT / f"{number:03d}.tar" for number in range(SHARDS)]
    if not shards[0].exists():
        corpus.write_tar(OUT / "part", ((f"{number:06d}.txt", b"%06d" % number) for number in range(MEMBERS)))
        (OUT / "part").rename(shards[0])
    for path in shards[1:]:
        if not path.exists():
            shutil.copyfile(shards[0], path)
    dataset = wids.ShardListDataset([str(path) for path in shards], transformations=[])
    order = torch.randint(len(dataset), (READS,), generator=torch.Generator().manual_seed(0)).tolist()
    results = {}
    for context in ("fork", "spawn"):
        bare = measure(Nothing(), range(READS), context)
        ours = measure(dataset, order, context)
        results[context] = {"own": ours[0], "bare": bare[0], "mapped": ours[1]}
        print(
            f"{context:6} a worker holds {ours[0] / 1e6:.1f} MB of its own after {READS // WORKERS:,} samples from {SHARDS} shards of "
            f"{MEMBERS:,} members, a bare one {bare[0] / 1e6:.1f} MB: {(ours[0] - bare[0]) / 1e6:.1f} MB more; it maps "
            f"{ours[1] / 1e6:,.0f} MB of files"
        )
    (corpus.OUT / "memory.json").write_text(json.dumps(results, indent=1))


def measure(dataset: Any, order: Any, context: str) -> tuple[int, int]:
    """Return the most private bytes and the most mapped bytes of shards among the workers, near the end of the data."""
    loader = DataLoader(
        dataset, batch_size=100, sampler=order, num_workers=WORKERS, multiprocessing_context=context, collate_fn=len
    )
    batches = iter(loader)
    for _ in range(len(loader) - 2 * WORKERS):
        next(batches)
    found = [read_maps(worker.pid) for worker in multiprocessing.active_children()]
    for _ in batches:
        pass
    return max(own for own, _ in found), max(mapped for _, mapped in found)


def read_maps(pid: int) -> tuple[int, int]:
    """Return a process's private bytes without files, and the bytes of shards that it maps."""
    own = mapped = 0
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Private_Dirty:" and (not name or name.startswith("[")):
            own += 1024 * int(words[1])
        elif words[0] == "Size:" and name.startswith(os.fspath(OUT)):
            mapped += 1024 * int(words[1])
    return own, mapped


if __name__ == "__main__":
    sys.exit(main())
