"""Coverage-guided fuzzing of the tar reader, with atheris.

    PYTHONPATH=. python tests/fuzz/fuzz_archive.py FOLDER -max_total_time=240

FOLDER keeps the inputs that reach something new; it begins with the seeds and with those of earlier runs (`corpus.zip`).
Half of the changes know what a header is, and make checksums right, so that they reach what lies behind those. The
process grows with the number of inputs, which atheris keeps; a long run is several of some minutes. To keep what they found:

    PYTHONPATH=. python tests/fuzz/fuzz_archive.py SMALL -merge=1 FOLDER
    PYTHONPATH=. python tests/fuzz/keep_corpus.py SMALL
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["wids.tar"]):
    from tests.fuzz.corpus import read_corpus
    from tests.fuzz.law import check_archive
    from tests.fuzz.mutate import mutate_archive

LARGEST_INPUT = 16 << 10


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Return a changed input: by bytes, or as one who knows what a header is."""
    random = Random(seed)
    if random.random() < 0.5:
        return mutate_archive(data, random)[:max_size]
    return bytes(atheris.Mutate(data, max_size))


def main() -> None:
    """Fuzz until told to stop."""
    arguments = sys.argv
    if not any(argument.startswith("-merge") for argument in arguments):
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in read_corpus().items():
            (folder / name).write_bytes(content)
    words = Path(__file__).parent / "tar.dict"
    options = [f"-max_len={LARGEST_INPUT}", f"-dict={words}", "-timeout=10", "-rss_limit_mb=4096"]
    command = f"{sys.executable} {__file__}"  # with which -merge starts processes of its own
    atheris.Setup([command, *arguments[1:], *options], check_archive_as_target, custom_mutator=mutate)
    atheris.Fuzz()


def check_archive_as_target(data: bytes) -> None:
    """Check one input."""
    check_archive(data)


if __name__ == "__main__":
    main()
