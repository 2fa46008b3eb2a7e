"""The inputs that fuzzing has found worth keeping, in `corpus.zip`, together with the seeds."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from tests.fuzz.seeds import SEEDS

CORPUS = Path(__file__).parent / "corpus.zip"


def read_corpus() -> dict[str, bytes]:
    """Return all inputs by name."""
    inputs = {name.replace(" ", "-").replace(",", ""): content for name, content in SEEDS.items()}
    if CORPUS.exists():
        with zipfile.ZipFile(CORPUS) as kept:
            inputs |= {name: kept.read(name) for name in kept.namelist()}
    return inputs


def write_corpus(inputs: list[bytes]) -> None:
    """Replace the inputs in `corpus.zip` by these; equal inputs make equal files."""
    named = {hashlib.sha256(content).hexdigest()[:16]: content for content in inputs if content}
    with zipfile.ZipFile(CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as kept:
        for name in sorted(named):
            kept.writestr(zipfile.ZipInfo(name), named[name], zipfile.ZIP_DEFLATED, 9)
