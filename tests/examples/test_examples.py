"""Every example runs unchanged, in an empty folder, and its own check at the end holds.

`make demo` runs `digits.py`. `make test-frameworks` runs those that need more than the development environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
WITH_FRAMEWORKS = {"accelerate_digits", "lightning_digits", "video_clips"}
NAMES = sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"digits"})

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="an installed package has no examples")


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example in an empty folder, with a cache of its own."""
    paths = os.pathsep.join([str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "WIDS_CACHE": str(folder / "cache")}
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_and_its_check_holds(name: str, tmp_path: Path) -> None:
    if name in WITH_FRAMEWORKS and not os.environ.get("WIDS_FRAMEWORKS"):
        pytest.skip("make test-frameworks runs these")

    done = run(name, tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr
