"""A training job without a model, for torchrun: all ranks read with a DataLoader in lockstep, and log what they see.

The only argument is a JSON object:

- `descriptor`: path of the descriptor.
- `out`: folder for the logs.
- `batch_size`: samples per batch and rank.
- `jobs`: lists of name, number of workers, start method of the workers, and number of epochs.
- `lanes`: number of canonical replicas; optional.
- `state`: file from which the job resumes, and which rank 0 writes after every step; optional.
- `kill`: `[rank, step]` at which that rank kills itself, or null; optional.
- `cache`: the cache folder; optional.
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
    """Return a batch unchanged."""
    return batch


def run_job(task: dict[str, Any], name: str, workers: int, context: str | None, epochs: int) -> None:
    """Read some epochs with one configuration of workers."""
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
    # Then only the fork server of each rank imports torch, and not each worker that it forks.
    multiprocessing.set_forkserver_preload(["torch", "wids"])
    dist.init_process_group("gloo")
    for job in task["jobs"]:
        run_job(task, *job)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
