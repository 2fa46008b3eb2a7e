"""Make the inputs in a folder the corpus: `PYTHONPATH=. python tests/fuzz/keep_corpus.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.corpus import write_corpus

if __name__ == "__main__":
    write_corpus([path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())])
