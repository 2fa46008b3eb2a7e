"""Run what needs no torch on the other Python versions of this machine, each in an environment of its own.

python tests/other_pythons.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
WITHOUT_TORCH = (
    "braceexpand", "filelock>=4", "fsspec", "numpy", "orjson", "pillow", "tqdm", "urllib3>=2", "xxhash", "hypothesis",
    "pytest", "pytest-timeout", "zstandard",
)  # fmt: skip
TESTS = ("tests/tar", "tests/descriptor", "tests/storage", "tests/cli")


def main() -> None:
    """Test each version that is there, but the one that runs this."""
    for version in VERSIONS:
        interpreter = shutil.which(f"python{version}")
        if interpreter is None or not runs(interpreter) or version == f"{sys.version_info[0]}.{sys.version_info[1]}":
            continue
        environment = ROOT / f".venv-{version}"
        python = environment / "bin" / "python"
        if not (environment / ".ready").exists():
            subprocess.run([interpreter, "-m", "venv", "--clear", environment], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *WITHOUT_TORCH], check=True)
            (environment / ".ready").touch()
        print(f"Python {version}, without torch", flush=True)
        subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not needs_torch", *TESTS],
            check=True,
            cwd=ROOT,
        )


def runs(interpreter: str) -> bool:
    """Tell whether an interpreter starts; a shim may stand for a version that is not installed."""
    return subprocess.run([interpreter, "-c", ""], check=False, capture_output=True).returncode == 0


if __name__ == "__main__":
    main()
