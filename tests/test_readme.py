"""The README's lines run in an empty folder, one after the other, and print what it says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PIECES = re.compile(r"^```python\n.*?^```$|(?:^    [^\n]*\n)+", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not README.exists(), reason="an installed package has no README")


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(README.parent),
    }


def test_the_lines_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8").split("## Several GPUs")[0].split("## Ten lines", 1)[1]
    names: dict[str, object] = {}
    printed = None

    for piece in PIECES.findall(text):
        if piece.startswith("```"):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(FENCED.findall(piece)[0], "README.md", "exec"), names)
            printed = output.getvalue()
        elif piece.strip().startswith("$"):
            command, *expected = [line[4:] for line in piece.splitlines()]
            done = subprocess.run(
                command[2:], shell=True, capture_output=True, text=True, env=environment(), check=True
            )
            assert done.stdout.splitlines() == expected
        else:
            assert printed == "".join(f"{line[4:]}\n" for line in piece.splitlines())


def test_the_training_script_runs_on_two_ranks(tmp_path: Path) -> None:
    blocks = FENCED.findall(README.read_text(encoding="utf-8"))
    (tmp_path / "make.py").write_text(blocks[0])
    (tmp_path / "train.py").write_text(next(block for block in blocks if "DistributedChunkedSampler" in block))
    for command in (
        [sys.executable, "make.py"],
        [sys.executable, "-m", "wids", "create", "dataset-{000000..000001}.tar", "-o", "train.json"],
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"],
    ):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**environment(), "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr

    assert sorted(done.stdout.splitlines()) == [
        "rank 0: 5 batches of (10, 3, 48, 64)",
        "rank 1: 5 batches of (10, 3, 48, 64)",
    ]
