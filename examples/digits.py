"""The whole workflow on real data: scans of handwritten digits are written as shards, indexed, drawn, and trained on.

    python examples/digits.py

The 1,797 scans come with scikit-learn; training runs on two ranks. Everything is written to examples/out: the shards and
their descriptors, a contact sheet (samples.png), the results of training (result.json) and their curves (training.png).
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from tqdm import tqdm

import wids

OUT = Path(__file__).parent / "out"
NUM_SHARDS = 8
NUM_TRAINING_SHARDS = 6
NUM_EPOCHS = 20
BATCH_SIZE = 32


def main() -> None:
    """Run all steps, one after the other."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    make_shards(OUT)

    dataset = wids.ShardListDataset(OUT / "digits.json")
    print(f"{dataset}\ndataset[1700] is {dict(dataset[1700])}")
    draw_samples(dataset)

    run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, "train")
    result = json.loads((OUT / "result.json").read_text())
    draw_curve(result)
    accuracy = result["accuracy"][-1]
    print(f"accuracy on the shards held out: {accuracy:.4f}")
    print(f"pictures: {OUT / 'samples.png'} and {OUT / 'training.png'}")
    if accuracy <= 0.95:
        sys.exit("the accuracy should be above 0.95")


def run(*command: str) -> None:
    """Run a program, and stop if it fails."""
    subprocess.run(command, check=True, env={"OMP_NUM_THREADS": "1", **os.environ})


def make_shards(folder: Path) -> None:
    """Write the scans as shards, with descriptors for all shards, for the training shards, and for those held out."""
    write_shards(folder)
    for name, shards in {
        "digits": f"digits-{{0000..{NUM_SHARDS - 1:04d}}}.tar",
        "train": f"digits-{{0000..{NUM_TRAINING_SHARDS - 1:04d}}}.tar",
        "test": f"digits-{{{NUM_TRAINING_SHARDS:04d}..{NUM_SHARDS - 1:04d}}}.tar",
    }.items():
        run(
            *(sys.executable, "-m", "wids.cli", "create", str(folder / shards)),
            *("-o", str(folder / f"{name}.json"), "-n", name),
        )


def write_shards(folder: Path) -> None:
    """Write each scan as PNG, class and JSON, spread evenly over the shards."""
    digits = load_digits()
    images = (digits.images * 255 / 16).astype(np.uint8)
    for shard, numbers in enumerate(np.array_split(np.arange(len(images)), NUM_SHARDS)):
        with tarfile.open(folder / f"digits-{shard:04d}.tar", "w") as tar:
            for number in numbers.tolist():
                png = io.BytesIO()
                Image.fromarray(images[number]).save(png, "png")
                label = int(digits.target[number])
                fields = {
                    "png": png.getvalue(),
                    "cls": str(label).encode(),
                    "json": json.dumps(
                        {"number": number, "ink": round(float(digits.images[number].mean()), 3)}
                    ).encode(),
                }
                for field, data in fields.items():
                    member = tarfile.TarInfo(f"{number:06d}.{field}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def draw_samples(dataset: wids.ShardListDataset) -> None:
    """Draw samples from all over the dataset, with their labels, as a contact sheet."""
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")
    figure, axes = plt.subplots(4, 8, figsize=(10, 6), layout="constrained")
    indices = np.linspace(0, len(dataset) - 1, axes.size).astype(int).tolist()
    for axis, index in zip(axes.flat, indices, strict=True):
        sample = dataset[index]
        axis.imshow(sample[".png"], cmap="gray_r")
        axis.set_title(f"[{index}] is a {sample['.cls']}", fontsize=9)
        axis.axis("off")
    figure.suptitle(f"{len(dataset):,} digits in {len(dataset.shards)} shards")
    figure.savefig(OUT / "samples.png", dpi=120)
    plt.close(figure)


def draw_curve(result: dict[str, list[float]]) -> None:
    """Draw loss and accuracy against epochs."""
    from matplotlib import pyplot as plt

    plt.switch_backend("Agg")
    epochs = range(1, len(result["loss"]) + 1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    left.plot(epochs, result["loss"], marker="o", color="tab:blue")
    left.set(xlabel="epoch", ylabel="training loss", ylim=(0, None))
    right.plot(epochs, result["accuracy"], marker="o", color="tab:green")
    right.axhline(0.95, color="gray", linestyle=":", label="0.95")
    right.set(xlabel="epoch", ylabel="accuracy on shards held out", ylim=(None, 1))
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Handwritten digits, two ranks")
    figure.savefig(OUT / "training.png", dpi=120)
    plt.close(figure)


def train() -> None:
    """Train on this rank; `torchrun` starts one process per rank."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()

    dataset = wids.ShardListDataset(OUT / "train.json", transformations="l").map(to_pair)
    sampler = wids.DistributedChunkedSampler(dataset, chunksize=256, shuffle=True)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, sampler=sampler, num_workers=2, persistent_workers=True)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_EPOCHS)
    result: dict[str, list[float]] = {"loss": [], "accuracy": []}
    bar = tqdm(range(NUM_EPOCHS), "training", unit="epoch", disable=rank > 0)
    seen: list[int] = []
    for epoch in bar:
        sampler.set_epoch(epoch)
        seen = []
        losses = []
        for images, labels, indices in loader:
            loss = nn.functional.cross_entropy(model(shift(images)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seen += indices.tolist()
        schedule.step()
        result["loss"].append(float(np.mean(losses)))
        result["accuracy"].append(measure_accuracy(model.module, OUT / "test.json"))
        bar.set_postfix(loss=result["loss"][-1], accuracy=result["accuracy"][-1])
    bar.close()

    report_coverage(rank, num_ranks, seen, len(dataset))
    if rank == 0:
        (OUT / "result.json").write_text(json.dumps(result))
    dist.destroy_process_group()


def to_pair(sample: dict[str, object]) -> tuple[torch.Tensor, int, int]:
    """Return image `(1, 8, 8)` float32 in [0, 1], class, and index."""
    return torch.from_numpy(sample[".png"])[None], sample[".cls"], sample["__index__"]


def shift(images: torch.Tensor) -> torch.Tensor:
    """Return the images shifted by up to one pixel, as handwriting varies."""
    down, right = torch.randint(-1, 2, (2,)).tolist()
    return images.roll((down, right), (2, 3))


def make_model() -> nn.Module:
    """Return a small convolutional network for images of 8 by 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10),
    )  # fmt: skip


def measure_accuracy(model: nn.Module, descriptor: Path) -> float:
    """Return the share of samples in the held-out shards whose class the model finds."""
    dataset = wids.ShardListDataset(descriptor, transformations="l").map(to_pair)
    images, labels, _ = next(iter(DataLoader(dataset, batch_size=len(dataset))))
    model.eval()
    with torch.inference_mode():
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return accuracy


def report_coverage(rank: int, num_ranks: int, seen: list[int], num_samples: int) -> None:
    """Print how many samples each rank saw in the last epoch, and check that together they saw all."""
    everyone: list[list[int]] = [[] for _ in range(num_ranks)]
    dist.all_gather_object(everyone, seen)
    counts = [len(indices) for indices in everyone]
    # One write per line, so that the lines of two ranks do not mix.
    sys.stdout.write(f"rank {rank} of {num_ranks} saw {counts[rank]} samples in the last epoch\n")
    sys.stdout.flush()
    dist.barrier()
    together = sorted(index for indices in everyone for index in indices)
    if len(set(counts)) != 1 or set(together) != set(range(num_samples)):
        sys.exit(f"the ranks saw {counts} samples and together {len(set(together))} of {num_samples}")
    if rank == 0:
        repeated = len(together) - num_samples
        print(
            f"together they saw each of the {num_samples} samples once ({repeated} repeated to make ranks equal)",
            flush=True,
        )


if __name__ == "__main__":
    train() if sys.argv[1:] == ["train"] else main()
