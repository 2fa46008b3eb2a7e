"""Stop a training run and resume it on another number of processes: on four, then two, then three.

    python examples/resume_elastic.py

The sampler's state is a few numbers that are valid for any number of ranks: every global batch has the same samples as
without a stop. If the global batch is divided among the ranks, the weights come out the same too, except for rounding.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from digits import to_pair, write_shards
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import wids

GLOBAL_BATCH = 48
NUM_LANES = 12
"""Fixed, so that a run on one process has the same order; a multiple of every number of ranks used here."""
NUM_STEPS = 60
STRETCHES = [(4, 25), (2, 20), (3, 15)]
"""Pairs of the number of ranks, and the number of steps for which they train before they are stopped."""


def main(folder: Path) -> None:
    """Train with and without stops, and compare."""
    write_shards(folder)
    for num_ranks, num_steps in STRETCHES:
        launch(folder, "stopped", num_ranks, num_steps)
    launch(folder, "whole", 1, NUM_STEPS)

    stopped, whole = (torch.load(folder / f"{name}.pt") for name in ("stopped", "whole"))
    same = [set(one) == set(other) for one, other in zip(stopped["seen"], whole["seen"], strict=True)]
    difference = max((stopped["model"][name] - weights).abs().max().item() for name, weights in whole["model"].items())
    print(
        f"{sum(same)} of {NUM_STEPS} global batches have the same samples; weights differ by {difference:.1e} at most"
    )
    if not all(same) or difference > 1e-4:
        sys.exit("with stops and without, the batches should be the same, and the weights almost")


def launch(folder: Path, name: str, num_ranks: int, num_steps: int) -> None:
    """Run one process per rank, as torchrun does on one machine."""
    mp.start_processes(train, (folder, name, num_ranks, num_steps), nprocs=num_ranks, start_method="fork")


def train(rank: int, folder: Path, name: str, num_ranks: int, num_steps: int) -> None:
    """Train for some steps, from the checkpoint if there is one."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meeting = folder / f"{name}-{num_ranks}"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=num_ranks)
    dataset = wids.ShardListDataset(folder, transformations="l").map(to_pair)
    sampler = wids.DistributedChunkedSampler(dataset, chunksize=64, num_canonical_replicas=NUM_LANES, drop_last=True)
    loader = DataLoader(dataset, GLOBAL_BATCH // num_ranks, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    checkpoint = folder / f"{name}.pt"
    seen: list[list[int]] = []
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
        seen = saved["seen"]
    consumed = sampler.state_dict()["place"]
    where = f"epoch {sampler.epoch}, place {consumed}"

    while num_steps:
        for images, labels, indices in islice(loader, num_steps):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_steps -= 1
            consumed += len(indices) * num_ranks
            seen.append(gather(indices.tolist()))
        if num_steps:
            consumed = 0  # the next epoch begins
    state = sampler.state_dict(consumed=consumed)
    if rank == 0:
        print(f"{num_ranks} ranks: from {where} to epoch {state['epoch']}, place {state['place']}")
        model_state, optimizer_state = model.module.state_dict(), optimizer.state_dict()
        torch.save({"model": model_state, "optimizer": optimizer_state, "sampler": state, "seen": seen}, checkpoint)
    dist.destroy_process_group()


def gather(indices: list[int]) -> list[int]:
    """Return the indices of all ranks."""
    everyone: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, indices)
    return [index for part in everyone for index in part]


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
