"""The guide's blocks for frameworks run with the real packages on two processes: each rank sees its half.

Only `make test-frameworks` runs these, since it installs the packages.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import write_descriptor, write_shards

GUIDE = Path(__file__).parents[2] / "docs" / "samplers.md"

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WIDS_FRAMEWORKS"), reason="make test-frameworks runs these"),
    pytest.mark.timeout(600),
]

BEFORE = """
import json, os, sys, warnings
import torch
from torch.utils.data import DataLoader
import wids

def as_tensors(sample):
    return {"x": torch.tensor([float(sample[".cls"])]), "index": sample["__index__"]}

dataset = wids.ShardListDataset(sys.argv[1]).map(as_tensors)
seen = []
"""

LIGHTNING = """
import lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        seen.extend([self.current_epoch, index] for index in batch["index"].tolist())
        return self.layer(batch["x"]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

model = Model()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
"""

ACCELERATE = """
import accelerate

accelerator = accelerate.Accelerator(cpu=True)
epoch = 0

def train_step(batch):
    seen.extend([epoch, index] for index in batch["index"].tolist())
"""

PREPARED = """
loader = accelerator.prepare(DataLoader(dataset, batch_size=4, sampler=SAMPLER))
for epoch in range(2):
    loader.set_epoch(epoch)
    for batch in loader:
        train_step(batch)
"""

TRANSFORMERS = """
import transformers
from accelerate.data_loader import prepare_data_loader

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.calls = 0
    def forward(self, x, index):
        seen.extend([self.calls // 8, number] for number in index.tolist())
        self.calls += 1
        return {"loss": self.layer(x).sum()}

model = Model()
arguments = transformers.TrainingArguments(
    output_dir=os.path.join(sys.argv[2], "run"), num_train_epochs=2, per_device_train_batch_size=4, use_cpu=True,
    save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False, ddp_backend="gloo",
)
"""

AFTER = """
with open(os.path.join(sys.argv[2], os.environ["RANK"] + ".json"), "w") as file:
    json.dump(seen, file)
"""


def block(name: str) -> str:
    found = re.search(rf"<!-- runs: {name} -->\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def run(folder: Path, code: str) -> list[list[list[int]]]:
    """Return what each rank saw: for each of two epochs, the indices in order."""
    shards = [{"url": url, "nsamples": count} for url, count in write_shards(folder, [8] * 8)]
    descriptor = write_descriptor(folder / "train.json", shards)
    script = folder / "train.py"
    script.write_text(BEFORE + code + AFTER)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(descriptor),
        str(folder),
    ]  # fmt: skip
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return [[[index for number, index in log if number == epoch] for epoch in range(2)] for log in logs]


@pytest.mark.parametrize(
    ("before", "name"),
    [(LIGHTNING, "lightning"), (ACCELERATE, "accelerate"), (TRANSFORMERS, "transformers")],
    ids=["Lightning", "Accelerate", "Trainer"],
)
def test_each_of_two_ranks_sees_its_own_half_in_a_new_order_each_epoch(tmp_path: Path, before: str, name: str) -> None:
    ranks = run(tmp_path, before + block(name))

    for epoch in range(2):
        assert [len(rank[epoch]) for rank in ranks] == [32, 32]
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == list(range(64))
        assert set(ranks[0][epoch]) == set(range(32)), "a rank walks its own lane"
    assert ranks[0][0] != ranks[0][1], "each epoch has its own order"


def test_lightning_does_not_replace_a_bucket_batch_sampler(tmp_path: Path) -> None:
    code = block("lightning-buckets")

    ranks = run(tmp_path, LIGHTNING + "buckets = [number % 3 for number in range(64)]\n" + code)

    for epoch in range(2):
        assert set(ranks[0][epoch]) | set(ranks[1][epoch]) == set(range(64))
        assert len(ranks[0][epoch]) + len(ranks[1][epoch]) <= 64 + 3


def test_lightning_does_not_replace_a_mixture_sampler(tmp_path: Path) -> None:
    code = block("lightning").replace(
        "wids.DistributedChunkedSampler(dataset)", "wids.MixtureSampler(dataset, weights=[1])"
    )

    ranks = run(tmp_path, LIGHTNING + code)

    for epoch in range(2):
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == list(range(64))


def test_accelerate_prepare_divides_a_distributed_sampler_a_second_time(tmp_path: Path) -> None:
    sampler = "wids.DistributedChunkedSampler(dataset)"

    ranks = run(tmp_path, ACCELERATE + PREPARED.replace("SAMPLER", sampler))

    assert [len(rank[0]) for rank in ranks] == [16, 16]


def test_accelerate_prepare_divides_a_chunked_sampler_between_ranks(tmp_path: Path) -> None:
    sampler = "wids.ChunkedSampler(dataset, chunksize=16)"

    ranks = run(tmp_path, ACCELERATE + PREPARED.replace("SAMPLER", sampler))

    for epoch in range(2):
        assert [len(rank[epoch]) for rank in ranks] == [32, 32]
        assert sorted(ranks[0][epoch] + ranks[1][epoch]) == list(range(64))
    assert ranks[0][0] != ranks[0][1]
