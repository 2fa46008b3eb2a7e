"""Run one page's blocks in this process and this folder: `python -m tests.docs.run_page PAGE`.

Each page gets its own process, so that its imports, forks and leftovers do not affect other pages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from tests.docs.blocks import PageError, fits, read_blocks, split_console


def run_page(page: Path, packages: set[str]) -> None:
    """Run all blocks that are not run elsewhere and need only these packages.

    Raises:
        PageError: The output is not what the page shows, or a command without shown output failed.
    """
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main  # so that what blocks define can be pickled, as in a script
    printed = None
    for block in read_blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {block.line}"
        if block.is_run_elsewhere or not block.needs <= packages:
            printed = None
        elif block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, shown in split_console(block.text):
                run_command(where, command, shown)
        elif block.language == "python":
            # Empty lines before the code make the line numbers in tracebacks those of the page.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            printed = capture(code, main.__dict__)
        elif printed is not None:
            compare(where, block.text, printed)


def run_command(where: str, command: str, shown: str) -> None:
    """Run one command of a console block, and compare its output with what is shown."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode and not shown:
        raise PageError(f"{where}: `{command}` failed with status {done.returncode}:\n{done.stdout}")
    if shown:
        compare(f"{where}: `{command}`", shown, done.stdout)


def compare(where: str, shown: str, printed: str) -> None:
    """Compare output with what a page shows.

    Raises:
        PageError: They differ; the message has both in full.
    """
    if not fits(shown, printed):
        raise PageError(f"{where}: the page shows\n\n{shown}\nbut what came out is\n\n{printed}")


def capture(code: types.CodeType, names: dict[str, object]) -> str:
    """Run code and return what it and its child processes wrote to stdout."""
    with tempfile.TemporaryFile() as file:
        stdout = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            exec(code, names)
        finally:
            sys.stdout.flush()
            os.dup2(stdout, 1)
            os.close(stdout)
        file.seek(0)
        return file.read().decode()


if __name__ == "__main__":
    # Line buffering keeps forked children from printing buffered output again, and parallel processes from mixing
    # lines.
    stdout: Any = sys.stdout
    stdout.reconfigure(line_buffering=True)
    run_page(Path(sys.argv[1]), set(os.environ.get("WIDS_PACKAGES", "").split()))
