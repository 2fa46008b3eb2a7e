"""Train with Accelerate on two processes; the sampler gives each its part, so Accelerate must not split the data again.

    python examples/accelerate_digits.py

Shards and model are those of digits.py. Needs the package accelerate.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import gather_object, set_seed
from digits import make_model, make_shards, measure_accuracy, run, shift, to_pair
from torch import nn
from torch.utils.data import DataLoader

import wids

NUM_EPOCHS = 6
BATCH_SIZE = 32
NUM_RANKS = 2


def main(folder: Path) -> None:
    """Start two training processes, as `accelerate launch` does."""
    make_shards(folder)
    run(
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={NUM_RANKS}",
        __file__,
        str(folder),
    )


def train(folder: Path) -> None:
    """Train on this rank."""
    set_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    dataset = wids.ShardListDataset(folder / "train.json", transformations="l").map(to_pair)
    sampler = wids.DistributedChunkedSampler(dataset, chunksize=256)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, num_workers=1)
    # accelerator.prepare(loader) would split the batches of this rank among all ranks once more.
    loader = prepare_data_loader(loader, accelerator.device, num_processes=1, process_index=0, put_on_device=True)
    network = make_model()
    model, optimizer = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=3e-3))

    for epoch in range(NUM_EPOCHS):
        loader.set_epoch(epoch)
        seen: list[int] = []
        for images, labels, indices in loader:
            loss = nn.functional.cross_entropy(model(shift(images)), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen += indices.tolist()

    everyone = gather_object([seen])
    if accelerator.is_main_process:
        accuracy = measure_accuracy(accelerator.unwrap_model(model), folder / "test.json")
        together = {index for indices in everyone for index in indices}
        print(
            f"in the last epoch the ranks saw {[len(indices) for indices in everyone]} samples, {len(together)} together"
        )
        print(f"accuracy on the shards held out: {accuracy:.3f}")
        if len(together) != len(dataset) or accuracy < 0.9:
            sys.exit("the ranks should see every sample, and learn them")
    accelerator.end_training()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
