"""Every page does what it shows: its blocks run in an empty folder, and print the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import read_blocks
from tests.interop.run import PACKAGES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

pytestmark = [
    pytest.mark.skipif(not PAGES[0].exists(), reason="an installed package has no pages"),
    pytest.mark.timeout(600 if os.environ.get("WIDS_PACKAGES") else 180),
]


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "",  # unbuffered ranks that print at the same time would mix parts of lines
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.docs.run_page", str(page)]
    return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page_does_what_it_shows(tmp_path: Path, page: Path) -> None:
    done = run(page, tmp_path / "empty")

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_block_marked_runs_is_used_by_a_test() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    names = {block.marks["runs"] for page in PAGES for block in read_blocks(page.read_text()) if "runs" in block.marks}

    assert {name for name in names if f'"{name}"' not in tests} == set()


GOOD = """\
# A page

```python title="say.py"
print("word")
```

```console
$ python say.py
word
```

- In a list:

    ```python
    import os

    os.system("echo from a child")
    print(1 / 3)
    ```

    ```text
    from a child
    0.333...
    ```
"""
BAD = {
    "other output": ("from a child\n", "from nobody\n", "what came out is\n\nfrom a child"),
    "less output": ("    from a child\n", "", "what came out is\n\nfrom a child"),
    "other output of a command": ("word\n```\n\n-", "words\n```\n\n-", "what came out is\n\nword"),
    "a command that fails": ("$ python say.py\nword", "$ python say.py; false", "failed with status 1"),
    "a script that no block uses": ("$ python say.py\nword", "$ true", "line 3: no later block uses say.py"),
    "an exception": ("print(1 / 3)", "print(1 / 0)", 'page.md", line 18, in <module>'),
    "output without code before it": (
        "```console\n$ python say.py\nword",
        "```text\nsay",
        "line 7: no block of Python",
    ),
    "a language that is not run": ("```console", "```sh", "line 7: a block in sh is not run"),
    "no language": ("```console", "```", "line 7: a block in no language is not run"),
    "indented code": ("- In a list:", "Not in a list:\n\n    code", "line 14: indented code is not run"),
    "a mark without a block": ("- In", "<!-- not run: nobody -->\n\n- In", "line 14: the mark before this"),
    "a block without end": ("0.333...\n    ```", "0.333...", "line 21: this block has no end"),
}


@pytest.mark.parametrize(("old", "new", "message"), BAD.values(), ids=BAD.keys())
def test_a_page_with_a_wrong_or_unused_block_fails(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    (tmp_path / "page.md").write_text(GOOD.replace(old, new))

    done = run(tmp_path / "page.md", tmp_path / "empty")

    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize(("packages", "status"), [("", 0), ("grain", 0), ("lightning grain av", 3)])
@pytest.mark.parametrize("place", ["# A page", "```python\n"], ids=["page", "block"])
def test_blocks_run_only_if_the_packages_that_they_need_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: str, status: int, place: str
) -> None:
    monkeypatch.setenv("WIDS_PACKAGES", packages)
    page = "# A page\n\n```python\nraise SystemExit(3)\n```\n".replace(place, f"<!-- needs: av lightning -->\n{place}")
    (tmp_path / "page.md").write_text(page)

    assert run(tmp_path / "page.md", tmp_path / "empty").returncode == status


def test_the_packages_of_each_block_are_installed_by_a_make_target() -> None:
    together = re.search(r'WIDS_PACKAGES="([^"]*)"', (ROOT / "Makefile").read_text())
    assert together is not None
    places = [set(together[1].split()), *({name} for name in PACKAGES)]

    needs = [block.needs for page in PAGES for block in read_blocks(page.read_text()) if block.needs]

    assert [names for names in needs if not any(names <= place for place in places)] == []
    assert needs


def test_a_page_with_correct_output_passes(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(GOOD)

    done = run(tmp_path / "page.md", tmp_path / "empty")

    assert done.returncode == 0, done.stdout + done.stderr
