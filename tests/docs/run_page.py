"""Run one page's blocks in this process and this folder: `python -m tests.docs.run_page PAGE`.

A process of its own for each page, so that what a page imports, forks and leaves behind stays with it.
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
    """Run all blocks that are not marked for elsewhere, nor need other packages than these.

    Raises:
        PageError: Something else came out than the page shows, or a command failed of which it shows no output.
    """
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main  # What blocks define can be pickled, as what a script defines can.
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
            # As many empty lines before it as the page has: tracebacks then name the page's lines.
            code = compile("\n" * block.line + block.text, str(page), "exec")
            printed = capture(code, main.__dict__)
        elif printed is not None:
            compare(where, block.text, printed)


def run_command(where: str, command: str, shown: str) -> None:
    """Run one line of a console block, and compare what it wrote with what is shown."""
    done = subprocess.run(
        ["/bin/sh", "-c", command], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode and not shown:
        raise PageError(f"{where}: `{command}` failed with status {done.returncode}:\n{done.stdout}")
    if shown:
        compare(f"{where}: `{command}`", shown, done.stdout)


def compare(where: str, shown: str, printed: str) -> None:
    """Raise an error that has both in full where they differ."""
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
    # What a block printed before it forked is not printed twice, and what processes print at once stays in whole lines.
    stdout: Any = sys.stdout
    stdout.reconfigure(line_buffering=True)
    run_page(Path(sys.argv[1]), set(os.environ.get("WIDS_PACKAGES", "").split()))
