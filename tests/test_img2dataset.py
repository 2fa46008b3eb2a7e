"""From a folder of img2dataset to batches of one shape on two ranks: the code of docs/selection.md, run by torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet
import pytest

import wids
from tests.docs.blocks import read_blocks

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "selection.md"
SHOW = """
import os
with open(f"rank{os.environ['RANK']}.jsonl", "w") as seen:
    for epoch in range(2):
        batches.set_epoch(epoch)
        for batch in loader:
            print(json.dumps([epoch, [[key, picture.size] for key, picture in batch]]), file=seen)
"""

pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.skipif(not PAGE.exists(), reason="an installed package has no documentation"),
]


@pytest.fixture(scope="module")
def laion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("img2dataset")
    made = next(block.text for block in read_blocks(PAGE.read_text(encoding="utf-8")) if 'mkdir("laion")' in block.text)
    subprocess.run([sys.executable, "-c", made], cwd=folder, check=True)
    return folder / "laion"


def samples(folder: Path) -> dict[str, dict[str, object]]:
    """Return the content of the JSON members of the tars, by key, as CPython's `tarfile` reads them."""
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if member.name.endswith(".json") and file is not None:
                    found[member.name.removesuffix(".json")] = json.loads(file.read())
    return found


def test_a_script_of_fifteen_lines_filters_and_buckets_on_two_ranks(laion: Path) -> None:
    blocks = read_blocks(PAGE.read_text(encoding="utf-8"))
    (script,) = (block.text for block in blocks if block.title == "train.py" and "laion" in block.text)
    assert len([line for line in script.splitlines() if line]) <= 15
    (laion.parent / "train.py").write_text(f"import json\n{script}{SHOW}")
    facts = samples(laion)
    expected = {
        key
        for key, fact in facts.items()
        if min(fact["width"], fact["height"]) >= 64 and fact["similarity"] > 0.3  # type: ignore[operator, call-overload]
    }

    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"],
        cwd=laion.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    logs = [(laion.parent / f"rank{rank}.jsonl").read_text() for rank in (0, 1)]
    seen = [[json.loads(line) for line in log.splitlines()] for log in logs]
    assert done.stdout.count(f"{len(expected)} pictures, ") == 2
    for epoch in (0, 1):
        mine = [[batch for of, batch in batches if of == epoch] for batches in seen]
        assert len(mine[0]) == len(mine[1]) > 5
        assert {key for rank in mine for batch in rank for key, _ in batch} == expected
        for batch in (*mine[0], *mine[1]):
            assert len({tuple(size) for _, size in batch}) == 1
            assert [size for _, size in batch] == [[facts[key]["width"], facts[key]["height"]] for key, _ in batch]


def test_rows_of_failed_downloads_are_refused_unless_they_are_ignored(laion: Path) -> None:
    keys = {key for path in laion.glob("*.parquet") for key in pyarrow.parquet.read_table(path)["key"].to_pylist()}
    dataset = wids.ShardListDataset(str(laion))

    assert keys > set(dataset.keys())
    with pytest.raises(ValueError, match=r"15 rows have keys that no sample has: '000000007', .*extra='ignore'"):
        dataset.add_columns(f"{laion}/{{shard}}.parquet")
    named = dataset.add_columns(f"{laion}/{{shard}}.parquet", extra="ignore")
    facts = samples(laion)
    for name in ("width", "caption", "similarity", "sha256", "error_message"):
        assert list(named.column(name)) == [facts[key][name] for key in dataset.keys()]  # noqa: SIM118
