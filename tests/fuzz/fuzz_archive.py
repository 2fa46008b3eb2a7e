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

LARGEST_INPUT = 16 << 10


def main(arguments: list[str]) -> None:
    """Fuzz until told to stop."""
    import atheris

    # What is imported here is instrumented, so nothing of it may have been imported before.
    with atheris.instrument_imports(include=["wids.tar"]):
        from tests.fuzz.corpus import read_corpus
        from tests.fuzz.law import check_archive
        from tests.fuzz.mutate import mutate_archive

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """Return a changed input: by bytes, or as one who knows what a header is."""
        random = Random(seed)
        if random.random() < 0.5:
            return mutate_archive(data, random)[:max_size]
        return bytes(atheris.Mutate(data, max_size))

    def check(data: bytes) -> None:
        check_archive(data)

    if not any(argument.startswith("-merge") for argument in arguments):
        folder = Path(arguments[0])
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in read_corpus().items():
            (folder / name).write_bytes(content)
    command = f"{sys.executable} {__file__}"  # with which -merge starts processes of its own
    words = Path(__file__).parent / "tar.dict"
    options = [f"-max_len={LARGEST_INPUT}", f"-dict={words}", "-timeout=10", "-rss_limit_mb=4096"]
    atheris.Setup([command, *arguments, *options], check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
