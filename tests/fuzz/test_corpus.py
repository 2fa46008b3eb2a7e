"""The inputs that fuzzing has found are still handled correctly."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.corpus import CORPUS, read_corpus
from tests.fuzz.law import check_archive
from tests.fuzz.mutate import mutate_archive
from tests.fuzz.seeds import SEEDS

INPUTS = list(read_corpus().items())


@pytest.mark.parametrize("part", range(8))
def test_the_law_holds_for_every_input_that_fuzzing_kept(part: int) -> None:
    assert CORPUS.exists()

    for name, content in INPUTS[part::8]:
        try:
            check_archive(content)
        except Exception as error:
            pytest.fail(f"{name}: {error!r}")


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_read(name: str) -> None:
    members = check_archive(SEEDS[name])

    assert members is not None
    assert b"b.txt" in list(members.names) or len(members.names) > 3 or name in {"two", "global"}


@pytest.mark.parametrize("seed", range(4))
def test_the_law_holds_for_archives_that_are_changed_at_random(seed: int) -> None:
    random = Random(seed)
    inputs = list(SEEDS.values())
    for _ in range(500):
        content = mutate_archive(random.choice(inputs), random)
        try:
            members = check_archive(content)
        except Exception as error:
            pytest.fail(f"{content!r}: {error!r}")
        if members is not None and random.random() < 0.05:
            inputs.append(content)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_the_fuzz_target_runs_from_the_corpus(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    target = [sys.executable, "tests/fuzz/fuzz_archive.py", str(tmp_path / "inputs"), "-runs=50", "-seed=1"]

    run = subprocess.run(
        target, cwd=root, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr[-2000:]
    assert "DONE" in run.stderr
    assert len(list((tmp_path / "inputs").iterdir())) >= len(INPUTS)
