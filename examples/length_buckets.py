"""Batches of texts of similar length, the same number on both of two ranks, with a limit on the cost of a batch.

    python examples/length_buckets.py

The lengths come from the index, so no text is read to sort them. Random batches are padded to their longest text;
batches from buckets need hardly any padding. Limiting a batch's padded tokens instead of its texts keeps its memory
even.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import wids

NUM_TEXTS = 4000
NUM_RANKS = 2
MAX_TOKENS = 4096


def main(folder: Path) -> None:
    """Compare padding with and without buckets."""
    make_texts(folder)
    dataset = wids.ShardListDataset(folder / "texts.json").map(to_tokens)
    lengths = dataset.sizes("txt")
    buckets = np.ceil(np.log2(lengths) * 4)  # the longest of a bucket is at most 19 % longer than the shortest
    padded = 2 ** (buckets / 4)  # the longest text that the bucket allows; with it as cost, padded batches are bounded
    print(f"{len(dataset)} texts of {lengths.min()} to {lengths.max()} bytes in {len(np.unique(buckets))} buckets")

    at_random = DataLoader(dataset, batch_size=16, sampler=wids.ChunkedSampler(dataset), collate_fn=pad)
    random_padding = padding_share(at_random)[0]
    print(f"batches of 16 at random: {random_padding:.0%} of their tokens are padding")

    seen: list[int] = []
    num_batches = []
    for rank in range(NUM_RANKS):  # in a real job each rank is a process of its own
        sampler = wids.DistributedChunkedSampler(dataset, rank=rank, num_replicas=NUM_RANKS)
        batches = wids.BucketBatchSampler(sampler, None, buckets, cost=padded, max_cost=MAX_TOKENS)
        loader = DataLoader(dataset, batch_sampler=batches, collate_fn=pad, num_workers=1)
        padding, indices, largest = padding_share(loader)
        print(f"rank {rank}: {len(loader)} batches from buckets: {padding:.0%} padding, at most {largest:,} tokens")
        seen += indices
        num_batches.append(len(loader))

    repeated = len(seen) - len(dataset)
    print(f"together the ranks saw each of the {len(set(seen))} texts once ({repeated} repeated to make ranks equal)")
    if (
        set(seen) != set(range(len(dataset)))
        or len(set(num_batches)) != 1
        or padding > random_padding / 3
        or largest > MAX_TOKENS
    ):
        raise SystemExit("ranks should be equal, see every text, keep to the limit, and pad little")


def padding_share(loader: DataLoader) -> tuple[float, list[int], int]:
    """Return the share of tokens that are padding, the indices seen, and the number of tokens in the largest batch."""
    num_tokens = largest = num_padding = 0
    seen: list[int] = []
    for tokens, indices in loader:
        num_tokens += tokens.numel()
        num_padding += int((tokens == 0).sum())
        largest = max(largest, tokens.numel())
        seen += indices
    return num_padding / num_tokens, seen, largest


def to_tokens(sample: dict[str, str]) -> tuple[torch.Tensor, int]:
    """Return a text's bytes as tokens, `(length,)` uint8, and its index."""
    return torch.frombuffer(bytearray(sample["txt"], "utf-8"), dtype=torch.uint8), sample["__index__"]


def pad(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, list[int]]:
    """Return `(batch, longest)` tokens, padded with zeros, and the indices."""
    texts, indices = zip(*samples, strict=True)
    return pad_sequence(texts, batch_first=True), list(indices)


def make_texts(folder: Path) -> None:
    """Write texts of 20 to about 2,000 letters, short ones more often."""
    rng = random.Random(0)
    with wids.ShardWriter(str(folder / "texts-%06d.tar"), max_samples=500) as writer:
        for number in range(NUM_TEXTS):
            length = min(int(20 * rng.paretovariate(0.8)), 2000)
            writer.write({"__key__": f"{number:06d}", ".txt": "x" * length})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
