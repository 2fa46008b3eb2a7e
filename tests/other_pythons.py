"""Run the tests that need no torch on the other Python versions of this machine, each in an environment of its own.

python tests/other_pythons.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "pyarrow", "zstandard")
TESTS = ("tests/tar", "tests/descriptor", "tests/storage", "tests/cli", "tests/tools", "tests/test_indexed.py")
LONG = (
    "tests/tar/test_properties.py", "tests/tar/test_limits.py", "tests/storage/test_disk_cache.py",
    "tests/storage/test_space.py", "tests/storage/test_kill.py", "tests/storage/test_ranges.py",
    "tests/storage/test_compression.py", "tests/tools/test_writer_kill.py", "tests/tools/test_reshard.py", "tests/cli/test_bad_input.py",
    "tests/cli/test_commands.py",
)  # fmt: skip
"""Long tests that are left out, because their results do not depend on the Python version."""
FEW = ("tests/tar", "tests/descriptor", "tests/test_indexed.py")
"""Tests for the versions between the oldest and the newest one installed."""
OPTIONS = (
    "-q", "-n", "3", "-p", "no:cacheprovider", "--no-header", "-m", "not needs_torch", *(f"--ignore={path}" for path in LONG)
)  # fmt: skip


def main() -> None:
    """Test each installed version except the one that runs this script."""
    there = {version: find(version) for version in VERSIONS}
    tested = [
        version for version in VERSIONS if there[version] and version != f"{sys.version_info[0]}.{sys.version_info[1]}"
    ]
    for version in VERSIONS:
        interpreter = there[version]
        if interpreter is None:
            say(f"Python {version} is not installed here, and not tested")
        elif version in tested:
            say(f"Python {version}, without torch")
            tests = TESTS if version in {tested[0], tested[-1]} else FEW
            command = [str(environment(version, interpreter)), "-m", "pytest", *OPTIONS, *tests]
            subprocess.run(command, check=True, cwd=ROOT)


def environment(version: str, interpreter: str) -> Path:
    """Return the interpreter of an environment with what the tests need, which is made unless it exists."""
    return make_environment(version, interpreter, packages())


def make_environment(name: str, interpreter: str, wanted: list[str], alone: Iterable[str] = ()) -> Path:
    """Return the interpreter of the environment `.venv-NAME`, which is made anew if it was made for other packages.

    Args:
        name: Name of the environment.
        interpreter: Python interpreter to make it with.
        wanted: Packages to install with their dependencies.
        alone: Packages to install without their dependencies.
    """
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    content = "\n".join([*wanted, *alone])
    if not ready.exists() or ready.read_text(encoding="utf-8") != content:
        subprocess.run([interpreter, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), *wanted], check=True)
        subprocess.run([*pip, "--no-deps", *alone, "--editable", str(ROOT)], check=True)
        ready.write_text(content, encoding="utf-8")
    return python


def packages() -> list[str]:
    """Return the package's dependencies without torch, and those of the tests, as requirements."""
    requirements = requires("wids") or []
    needed = {line for line in requirements if "extra ==" not in line and name_of(line) != "torch"}
    return sorted(needed | {line.partition(";")[0].strip() for line in requirements if name_of(line) in TOOLS})


def name_of(requirement: str) -> str:
    """Return the name in a requirement, without version or extras."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0]


def find(version: str) -> str | None:
    """Return a working interpreter of this version, from the path or from pyenv's folder; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}.*/bin/python{version}"))]
    return next((place for place in places if place is not None and runs(place)), None)


def runs(interpreter: str) -> bool:
    """Tell whether an interpreter starts; pyenv may have a shim for a version that is not active."""
    return subprocess.run([interpreter, "-c", ""], check=False, capture_output=True).returncode == 0


def say(line: str) -> None:
    """Print a line at once, so that it precedes the output of child processes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
