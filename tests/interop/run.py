"""Run the tests with other packages, each package in an environment of its own: all of them, or those named.

python tests/interop/run.py [PACKAGE …]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import read_blocks  # noqa: E402 - a script must first set its path
from tests.other_pythons import make_environment, packages, say  # noqa: E402 - as above

PACKAGES = {
    "plain": [],
    "grain": ["grain"],
    "datasets": ["datasets"],
    "ray": ["ray[data]"],
    "energon": ["megatron-energon"],
    "dali": [
        "nvidia-dali-cuda120",
        "astunparse",
        "dm-tree",
        "gast",
        "libcst",
        "makefun",
        "nvtx",
        "optree",
        "packaging",
        "six",
    ],
}
"""By test, the packages that it needs besides wids, which is installed without torch unless one of them needs it."""
ALONE = {"nvidia-dali-cuda120"}
"""Installed without its dependencies: gigabytes of CUDA, which reading on the CPU does not use."""


def main(names: list[str]) -> None:
    """Test these packages, or all if none are named."""
    unknown = set(names) - PACKAGES.keys()
    if unknown:
        raise SystemExit(f"no such package: {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}")
    for name in names or PACKAGES:
        say(name)
        python = make_environment(
            f"interop-{name}",
            sys.executable,
            sorted({*packages(), *PACKAGES[name]} - ALONE),
            alone=sorted(ALONE.intersection(PACKAGES[name])),
        )
        options = ["-q", "-p", "no:cacheprovider", "--no-header", "--timeout", "300"]
        command = [str(python), "-m", "pytest", *options, f"tests/interop/test_{name}.py", *pages_that_need(name)]
        subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "WIDS_INTEROP": "1", "WIDS_PACKAGES": name})


def pages_that_need(name: str) -> list[str]:
    """Return the tests of documentation pages with blocks that need a package."""
    return [
        f"tests/docs/test_pages.py::test_a_page_does_what_it_shows[{page.relative_to(ROOT)}]"
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if any(name in block.needs for block in read_blocks(page.read_text(encoding="utf-8")))
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
