"""Train with Lightning on two processes; a checkpoint in the middle of an epoch holds the sampler's place in it.

    python examples/lightning_digits.py

The Trainer leaves the sampler alone, since it is a `DistributedSampler`. Shards and model are those of digits.py. Needs
the package lightning.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from digits import make_model, make_shards, measure_accuracy, run, shift, to_pair
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader

import wids

NUM_EPOCHS = 5
STOP_AFTER = 100
"""Steps before the stop, which falls into the last epoch."""
BATCH_SIZE = 32
NUM_RANKS = 2


class Digits(lightning.LightningDataModule):
    """The training shards, and how far training has read them.

    Args:
        descriptor: Path of the descriptor of the training shards.
    """

    def __init__(self, descriptor: Path) -> None:
        super().__init__()
        self.dataset = wids.ShardListDataset(descriptor, transformations="l").map(to_pair)
        self.sampler = wids.DistributedChunkedSampler(self.dataset, chunksize=256)

    def train_dataloader(self) -> DataLoader:
        """Return the loader; the Trainer sets the epoch of its sampler, as that is a `DistributedSampler`."""
        return DataLoader(self.dataset, batch_size=BATCH_SIZE, sampler=self.sampler, num_workers=1)

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state for a checkpoint: the place after the batches that all ranks have trained on."""
        done = self.trainer.fit_loop.epoch_loop.batch_progress.current.processed
        return self.sampler.state_dict(consumed=done * BATCH_SIZE * self.trainer.world_size)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at the place in a checkpoint."""
        self.sampler.load_state_dict(state)


class Classifier(lightning.LightningModule):
    """The network of digits.py."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()
        self.seen: list[int] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss."""
        images, labels, indices = batch
        self.seen += indices.tolist()
        return nn.functional.cross_entropy(self.model(shift(images)), labels)

    def on_train_epoch_start(self) -> None:
        """Forget the samples of the previous epoch."""
        self.seen.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(folder: Path) -> None:
    """Start two training processes with torchrun."""
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
    """Train on this rank, stop in the middle of an epoch, and resume from the checkpoint."""
    warnings.filterwarnings("ignore", module="lightning")  # about few workers and no GPU
    lightning.seed_everything(0, verbose=False)
    keep = ModelCheckpoint(folder, "stopped", every_n_train_steps=STOP_AFTER)
    model, data = Classifier(), Digits(folder / "train.json")
    make_trainer(max_steps=STOP_AFTER, callbacks=[keep]).fit(model, data)
    before = gather(model.seen)

    model, data, trainer = (
        Classifier(),
        Digits(folder / "train.json"),
        make_trainer(max_epochs=NUM_EPOCHS, enable_checkpointing=False),
    )
    trainer.fit(model, data, ckpt_path=folder / "stopped.ckpt")
    after = gather(model.seen)
    if trainer.is_global_zero:
        print(
            f"of the epoch in which it stopped, {len(before)} samples before and {len(after)} after, {len({*before, *after})} in all"
        )
        accuracy = measure_accuracy(model.model, folder / "test.json")
        print(f"accuracy on the shards held out: {accuracy:.3f}")
        if {*before, *after} != set(range(len(data.dataset))) or len(before) + len(after) > len(data.dataset) + 2:
            sys.exit("before and after the stop, the ranks should see each sample of the epoch once")
        if accuracy < 0.9:
            sys.exit("the accuracy should be above 0.9")


def make_trainer(**more: Any) -> lightning.Trainer:
    """Return a trainer for all ranks."""
    return lightning.Trainer(
        accelerator="cpu", devices=NUM_RANKS, strategy="ddp", logger=False,
        enable_progress_bar=False, enable_model_summary=False, **more,
    )  # fmt: skip


def gather(seen: list[int]) -> list[int]:
    """Return the indices that all ranks saw."""
    everyone = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everyone, seen)
    return [index for indices in everyone for index in indices]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
