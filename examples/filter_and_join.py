"""Select samples by columns, hold out a validation set, and join new captions from other shards; no shard is rewritten.

    python examples/filter_and_join.py

The first shards are what a crawl produces: pictures of all sizes, each with a caption and a JSON. Later, new captions
for some of the pictures were written into shards of their own.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from PIL import Image
from torch.utils.data import DataLoader

import wids

NUM_SAMPLES = 2000


def main(folder: Path) -> None:
    """Filter, split, join, and read batches."""
    make_crawl(folder)
    crawl = wids.ShardListDataset(folder / "crawl.json")
    captions = wids.ShardListDataset(folder / "captions.json")

    # Columns hold values beside the samples. Here they come from the samples' own JSON; they can be Parquet or CSV
    # files.
    facts = [sample["json"] for sample in crawl.select_fields("json")]
    table = {name: [fact[name] for fact in facts] for name in ("width", "height", "similarity")}
    crawl = crawl.add_columns(table, on="index")

    large = crawl.select(where="width >= 64 and height >= 64 and similarity > 0.3")
    print(f"{len(large)} of {len(crawl)} are large enough and fit their caption")

    joined = large.join(captions, on="key", prefix="new.")
    print(f"{len(joined)} of them have a new caption: {joined[0]['new.txt']!r} instead of {joined[0]['txt']!r}")

    parts = joined.split({"train": 0.9, "val": 0.1}, by="key")
    print(", ".join(f"{name}: {len(part)}" for name, part in parts.items()))

    train = parts["train"].to_tuple("jpg", "new.txt")
    loader = DataLoader(train, batch_size=32, sampler=wids.ChunkedSampler(train), collate_fn=list, num_workers=2)
    seen = {caption for batch in loader for _, caption in batch}
    print(f"an epoch of {len(loader)} batches has {len(seen)} captions")
    check(facts, joined, parts, seen)


def check(facts: list[dict], joined: wids.ShardListDataset, parts: dict, seen: set[str]) -> None:
    """Compare with the result of a plain loop over the samples' JSON."""
    expected = [
        number
        for number, fact in enumerate(facts)
        if min(fact["width"], fact["height"]) >= 64 and fact["similarity"] > 0.3 and number % 3 == 0
    ]
    found = [sample["json"]["number"] for sample in joined.select_fields("json")]
    sides = {name: {sample["json"]["number"] for sample in part.select_fields("json")} for name, part in parts.items()}
    if found != expected or sides["train"] | sides["val"] != set(expected) or sides["train"] & sides["val"]:
        sys.exit("other samples were chosen than a loop chooses")
    if seen != {f"a new caption of {number}" for number in sides["train"]}:
        sys.exit("the batches should have the new captions of the training samples")


def make_crawl(folder: Path) -> None:
    """Write pictures with captions, and new captions for a third of them, in another order."""
    rng = random.Random(0)
    numbers = range(NUM_SAMPLES)
    with wids.ShardWriter(str(folder / "crawl-%06d.tar"), max_samples=250) as writer:
        for number in numbers:
            width, height = rng.randint(32, 128), rng.randint(32, 128)
            fact = {"number": number, "width": width, "height": height, "similarity": round(rng.random(), 3)}
            image = Image.new("RGB", (width, height), (number % 256, 0, 0))
            writer.write({"__key__": f"{number:06d}", ".jpg": image, ".txt": f"caption {number}", ".json": fact})
    with wids.ShardWriter(str(folder / "captions-%06d.tar"), max_samples=400) as writer:
        for number in rng.sample(numbers[::3], len(numbers[::3])):
            writer.write({"__key__": f"{number:06d}", ".txt": f"a new caption of {number}"})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
