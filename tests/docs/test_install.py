"""README's way from an empty machine to `dataset[0]`, in a new environment: two commands and four lines.

Only `make test-frameworks` runs this, since pip downloads torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import read_blocks, split_console

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WIDS_FRAMEWORKS"), reason="make test-frameworks runs these"),
    pytest.mark.timeout(600),
]


def test_two_commands_and_four_lines_lead_to_the_first_sample(tmp_path: Path) -> None:
    install, shards, lines, output, *_ = read_blocks((ROOT / "README.md").read_text())
    commands = [command for command, _ in split_console(install.text)]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{tmp_path / 'venv/bin'}:{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
        # git clones this checkout where the README says REPOSITORY.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{ROOT.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://REPOSITORY",
    }

    for command in commands:
        subprocess.run(command, shell=True, cwd=tmp_path, env=environment, check=True)
    (tmp_path / "first.py").write_text(shards.text + lines.text)
    done = subprocess.run(
        ["python", "first.py"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )

    assert install.marks == {"runs": "install"}
    assert len(commands) == 2
    assert len([line for line in lines.text.splitlines() if line]) == 4
    assert done.stdout.splitlines()[0] == output.text.splitlines()[0]
