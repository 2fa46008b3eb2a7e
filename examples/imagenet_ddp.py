"""Image classification on several GPUs with torchrun: random crops, learning rate schedule, checkpoints and validation.

    torchrun --nproc-per-node=8 examples/imagenet_ddp.py --train imagenet/train.json --val imagenet/val.json --out run
    python examples/imagenet_ddp.py

The second command is a trial run: it makes small shards, starts this program in two processes, stops them in the middle
of an epoch, and resumes from the checkpoint. Samples have a `.jpg` and a `.cls`. Augmentation depends only on the
sample and the epoch, so a run that was stopped continues as if it had not been, even on another number of GPUs.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import wids


def main() -> None:
    """Train on this rank, which torchrun has started."""
    options = parse_arguments()
    torch.manual_seed(0)
    device = set_up_rank()
    sampler, loader = make_loader(options)
    model = DistributedDataParallel(make_model(options.num_classes).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    checkpoint = options.out / "checkpoint.pt"
    step = consumed = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
        step, consumed = saved["step"], sampler.state_dict()["place"]
        say(f"resuming in epoch {sampler.epoch} after {consumed} samples of it, step {step}")

    num_steps = options.epochs * len(loader)
    for epoch in range(sampler.epoch, options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:  # all ranks have equally many batches of equal sizes, the last one included
            for group in optimizer.param_groups:
                group["lr"] = options.lr * (1 + math.cos(math.pi * step / num_steps)) / 2
            loss = nn.functional.cross_entropy(model(normalise(images.to(device))), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            consumed += len(labels) * dist.get_world_size()  # by all ranks
            if step % options.checkpoint_every == 0 or consumed == len(sampler) * dist.get_world_size():
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                save({**state, "sampler": sampler.state_dict(consumed=consumed)}, checkpoint)
            if step == options.stop_after:
                say(f"stopped after step {step}")
                sys.exit()
        consumed = 0
        say(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {evaluate(model.module, options, device):.3f}")
    dist.destroy_process_group()


def set_up_rank() -> torch.device:
    """Join the process group; return the device of this rank."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    return device


def make_loader(options: argparse.Namespace) -> tuple[wids.DistributedChunkedSampler, DataLoader]:
    """Return the sampler and the loader of this rank's training samples."""
    dataset = wids.ShardListDataset(options.train).map(Augment(options.size))
    sampler = wids.DistributedChunkedSampler(dataset, sample_seeds=True, drop_last=True, shards_ahead=2)
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=torch.cuda.is_available(),
    )
    return sampler, loader


class Augment:
    """Takes a random part of an image, scales it to the network's input size, and mirrors it or not.

    Args:
        size: Width and height of the result, in pixels.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
        """Return `(3, size, size)` uint8 and the class."""
        rng = random.Random(sample["__seed__"])  # depends on the sample and the epoch, not on where it is read
        image = sample["jpg"].convert("RGB")
        share = rng.uniform(0.35, 1) ** 0.5
        width, height = image.width * share, image.height * share
        left, top = rng.uniform(0, image.width - width), rng.uniform(0, image.height - height)
        box = (left, top, left + width, top + height)
        image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return to_tensor(image), sample["cls"]


class Whole:
    """Scales a whole image to the network's input size.

    Args:
        size: Width and height of the result, in pixels.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
        """Return `(3, size, size)` uint8 and the class."""
        return to_tensor(sample["jpg"].convert("RGB").resize((self.size, self.size))), sample["cls"]


def to_tensor(image: Image.Image) -> torch.Tensor:
    """Return `(3, height, width)` uint8, a quarter of the bytes that floats would take on the way to the GPU."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def normalise(images: torch.Tensor) -> torch.Tensor:
    """Return float32 images with a mean of about 0 and a standard deviation of about 1."""
    return (images.float() - 118) / 64


def evaluate(model: nn.Module, options: argparse.Namespace, device: torch.device) -> float:
    """Return the share of validation samples whose class the model finds; each counts once on any number of ranks."""
    dataset = wids.ShardListDataset(options.val).map(Whole(options.size))
    sampler = wids.DistributedChunkedSampler(dataset, shuffle=False, even=False)
    counts = torch.zeros(2, device=device)
    model.eval()
    with torch.inference_mode():
        for images, labels in DataLoader(dataset, options.batch_size, sampler=sampler, num_workers=options.workers):
            right = model(normalise(images.to(device))).argmax(dim=1) == labels.to(device)
            counts += torch.tensor([right.sum(), len(labels)], device=device)
    model.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def make_model(num_classes: int) -> nn.Module:
    """Return a small network; for ImageNet itself use `torchvision.models.resnet50()`."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


def save(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint on rank 0, whole or not at all."""
    if dist.get_rank() == 0:
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)


def say(text: str) -> None:
    """Print a line on rank 0."""
    if dist.get_rank() == 0:
        print(text, flush=True)


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Train an image classifier on tar shards.")
    parser.add_argument("--train", required=True, help="descriptor of the training shards")
    parser.add_argument("--val", required=True, help="descriptor of the validation shards")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the checkpoint, from which training resumes if there is one"
    )
    parser.add_argument("--num-classes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=224, help="width and height of images, in pixels (%(default)s)")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=128, help="samples per batch and rank (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--workers", type=int, default=8, help="reading processes per rank (%(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=1000, metavar="STEPS")
    parser.add_argument("--stop-after", type=int, metavar="STEPS", help="stop early, to try out resuming")
    return parser.parse_args()


def try_it(folder: Path) -> None:
    """Train on small shards, with a stop in between."""
    for name, num_samples in (("train", 1280), ("val", 200)):
        make_shards(folder, name, num_samples)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__]
    command += ["--train", f"{folder}/train.json", "--val", f"{folder}/val.json", "--out", str(folder)]
    command += ["--num-classes=4", "--size=32", "--epochs=3", "--batch-size=32", "--lr=0.1", "--workers=1"]
    run([*command, "--checkpoint-every=10", "--stop-after=35"])
    output = run(command)
    accuracy = float(output.split()[-1])
    if "resuming in epoch 1 after 640 samples" not in output or accuracy < 0.9:
        sys.exit("it should resume at the checkpoint, and the accuracy should be above 0.9")


def run(command: list[str]) -> str:
    """Run a program, print its output, and return it."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    output = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout
    print(output, end="")
    return output


def make_shards(folder: Path, name: str, num_samples: int) -> None:
    """Write images of four classes: horizontal stripes, vertical stripes, a chessboard, one colour."""
    rng = np.random.default_rng(num_samples)
    with wids.ShardWriter(str(folder / f"{name}-%06d.tar"), max_samples=200) as writer:
        for number in range(num_samples):
            label = number % 4
            height, width = rng.integers(60, 100, 2)
            down, across = (axis // rng.integers(6, 10) for axis in np.ogrid[:height, :width])
            pattern = (down, across, down + across, 0 * down)[label] % 2
            colours = rng.integers(0, 256, (2, 3))
            pixels = colours[np.broadcast_to(pattern, (height, width))] + rng.normal(0, 15, (height, width, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            writer.write({"__key__": f"{number:06d}", ".jpg": image, ".cls": label})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        with tempfile.TemporaryDirectory() as folder:
            try_it(Path(folder))
