"""Count a vocabulary over all shards with several processes, then read batches that are tokenised on the fly.

    python examples/text_vocabulary.py

Each process counts the words of its shards in the mapped files themselves (`dataset.view`): no text is copied, and only the
counts are sent back. With the vocabulary, the workers of a DataLoader then turn texts into numbers.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import wids

WORD = re.compile(rb"\w+")
PADDING, UNKNOWN = 0, 1
NUM_TEXTS = 4000
VOCABULARY_SIZE = 1000


def main(folder: Path) -> None:
    """Count, build the vocabulary, and read batches."""
    make_texts(folder)
    dataset = wids.ShardListDataset(folder / "texts.json")
    print(dataset)

    counts = count_words(dataset, num_processes=2)
    print(f"{counts.total():,} words, {len(counts):,} different; the first: {counts.most_common(3)}")
    tokenizer = Tokenizer(counts, VOCABULARY_SIZE)

    tokens = dataset.map(tokenizer)
    sampler = wids.ChunkedSampler(tokens, chunksize=1000)
    loader = DataLoader(tokens, batch_size=64, sampler=sampler, collate_fn=pad, num_workers=2)
    num_tokens = num_unknown = 0
    for batch in loader:
        num_tokens += int((batch != PADDING).sum())
        num_unknown += int((batch == UNKNOWN).sum())
    print(f"{len(loader)} batches, {num_tokens:,} tokens, {num_unknown / num_tokens:.1%} not in the vocabulary")

    alone = Counter(word for index in range(len(dataset)) for word in dataset[index]["txt"].encode().split())
    known = sum(count for _, count in alone.most_common(VOCABULARY_SIZE))
    if counts != alone or num_tokens != alone.total() or num_unknown != num_tokens - known:
        raise SystemExit("the processes together counted other words than one of them alone")
    print("one process alone counts the same")


def count_words(dataset: wids.ShardListDataset, num_processes: int) -> Counter[bytes]:
    """Return how often each word occurs, one shard at a time in each of several processes."""
    total: Counter[bytes] = Counter()
    # Spawned, because forking a process that has threads may hang. The dataset pickles to a few kB.
    with ProcessPoolExecutor(num_processes, mp_context=get_context("spawn")) as pool:
        for counts in pool.map(partial(count_shard, dataset), range(len(dataset.shards))):
            total += counts
    return total


def count_shard(dataset: wids.ShardListDataset, shard: int) -> Counter[bytes]:
    """Return how often each word occurs in one shard."""
    stop = dataset.cum_lengths[shard]
    counts: Counter[bytes] = Counter()
    for index in range(stop - dataset.lengths[shard], stop):
        text = dataset.view(index)["txt"]  # a memoryview of the mapped shard, which `re` can search without a copy
        counts.update(match[0] for match in WORD.finditer(text))
    return counts


class Tokenizer:
    """Turns a sample into the numbers of its words, `(length,)` int64.

    Args:
        counts: How often each word occurs.
        size: How many of the most frequent words get a number of their own.
    """

    def __init__(self, counts: Counter[bytes], size: int) -> None:
        self.numbers = {word: number for number, (word, _) in enumerate(counts.most_common(size), start=UNKNOWN + 1)}

    def __call__(self, sample: dict[str, str]) -> torch.Tensor:
        """Return the numbers of one sample's words."""
        words = WORD.findall(sample["txt"].encode())
        return torch.tensor([self.numbers.get(word, UNKNOWN) for word in words])


def pad(texts: list[torch.Tensor]) -> torch.Tensor:
    """Return `(batch, longest)` tokens, padded with `PADDING`."""
    return pad_sequence(texts, batch_first=True, padding_value=PADDING)


def make_texts(folder: Path) -> None:
    """Write texts whose word frequencies follow Zipf's law, as those of natural languages do."""
    rng = random.Random(0)
    words = [f"word{number}" for number in range(5000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    with wids.ShardWriter(str(folder / "texts-%06d.tar"), max_samples=500) as writer:
        for number in range(NUM_TEXTS):
            text = " ".join(rng.choices(words, weights, k=rng.randint(5, 200)))
            writer.write({"__key__": f"{number:06d}", ".txt": text})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
