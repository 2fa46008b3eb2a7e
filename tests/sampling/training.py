"""A training job without a model, for torchrun: reads with a DataLoader in step with the other ranks, and logs what it sees.

One argument, JSON: `descriptor`, `out` (a folder), `batch_size`, `jobs` (lists of a name, workers, how they start, epochs), `lanes`, `state` (a file, written by rank 0 after every step and gone on from), `kill` ([rank, step] or null), `cache`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils.data import DataLoader

from wids import DistributedChunkedSampler, ShardListDataset


def keep(batch: list[Any]) -> list[Any]:
    """Leave a batch as it is."""
    return batch


def run_job(task: dict[str, Any], name: str, workers: int, context: str | None, epochs: int) -> None:
    """Read some epochs with one kind of loader."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    dataset = ShardListDataset(task["descriptor"], transformations=[], cache_dir=task.get("cache"))
    sampler = DistributedChunkedSampler(dataset, chunksize=7, num_canonical_replicas=task.get("lanes"))
    state = Path(task["state"]) if task.get("state") else None
    steps = 0
    first = 0
    if state is not None and state.exists():
        saved = json.loads(state.read_text())
        sampler.load_state_dict(saved["sampler"])
        steps, first = saved["steps"], sampler.epoch
    consumed = sampler.state_dict()["place"]
    loader: DataLoader[Any] = DataLoader(
        dataset,
        sampler=sampler,
        batch_size=task["batch_size"],
        num_workers=workers,
        multiprocessing_context=context if workers else None,
        collate_fn=keep,
    )
    with Path(task["out"], f"{name}-{ranks}-{rank}.jsonl").open("a") as log:
        for epoch in range(first, epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                if task.get("kill") == [rank, steps]:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen = [[sample["__index__"], sample["__key__"]] for sample in batch]
                log.write(json.dumps({"epoch": epoch, "step": steps, "seen": seen}) + "\n")
                log.flush()
                dist.barrier()
                steps += 1
                consumed += len(batch) * ranks
                if state is not None and rank == 0:
                    save(state, {"sampler": sampler.state_dict(consumed=consumed), "steps": steps})
            consumed = 0


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a file whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    partial.replace(path)


def main() -> None:
    """Do what the argument says."""
    task = json.loads(sys.argv[1])
    # So that only one process of a rank imports torch for those that it forks.
    multiprocessing.set_forkserver_preload(["torch", "wids"])
    dist.init_process_group("gloo")
    for job in task["jobs"]:
        run_job(task, *job)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
