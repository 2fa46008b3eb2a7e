"""Coverage-guided fuzzing of the tar reader, with atheris.

    PYTHONPATH=. python tests/fuzz/fuzz_archive.py FOLDER -max_total_time=240

FOLDER collects the inputs that reach new code; it starts with the seeds and the inputs of earlier runs (`corpus.zip`).
Half of the mutations know the layout of headers and correct their checksums, so that they get past the checksum test.
Atheris keeps all inputs in memory, so instead of one long run do several of a few minutes each. To keep what they
found:

    PYTHONPATH=. python tests/fuzz/fuzz_archive.py SMALL -merge=1 FOLDER
    PYTHONPATH=. python tests/fuzz/keep_corpus.py SMALL
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

LARGEST_INPUT = 16 << 10


def main(arguments: list[str]) -> None:
    """Fuzz for as long as the arguments say."""
    import atheris

    # Only what is first imported here is instrumented, so nothing of wids.tar may be imported before.
    with atheris.instrument_imports(include=["wids.tar"]):
        from tests.fuzz.corpus import read_corpus
        from tests.fuzz.law import check_archive
        from tests.fuzz.mutate import mutate_archive

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        """Return a mutated input: by atheris, or by changes that know the layout of headers."""
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
    command = f"{sys.executable} {__file__}"  # -merge starts child processes with this
    words = Path(__file__).parent / "tar.dict"
    options = [f"-max_len={LARGEST_INPUT}", f"-dict={words}", "-timeout=10", "-rss_limit_mb=4096"]
    atheris.Setup([command, *arguments, *options], check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
