"""`widsindex reshard` says what it has made, or in one line why not."""

from __future__ import annotations

import io
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wids
from tests.support import write_tar

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


pytestmark = pytest.mark.usefixtures("shards")


def keys(shards: str) -> list[str]:
    with wids.ShardListDataset(shards) as dataset:
        return [dataset.key(index) for index in range(len(dataset))]


def test_reshard_reports_new_and_existing_shards(run: Run) -> None:
    assert run("reshard", ".", "-o", "new/a-%03d.tar", "--max-samples", "2") == (
        0,
        "new/a-%03d.tar: 5 samples in 3 shards\n",
        "",
    )
    Path("new/a-001.tar").unlink()
    again = run("reshard", ".", "-o", "new/a-%03d.tar", "--max-samples", "2", "--resume")

    assert again == (0, "new/a-%03d.tar: 5 samples in 3 shards, of which 2 were there\n", "")
    assert keys("new/a.json") == keys(".")


def test_reshard_takes_samples_keys_or_fields(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("keys.txt").write_bytes(b"\xef\xbb\xbf000004\r\n\n000000\n")

    assert run("reshard", ".", "-o", "a/a-%d.tar", "--samples", "1-3")[0] == 0
    assert run("reshard", ".", "-o", "b/b-%d.tar", "--keys", "keys.txt", "--fields", "txt")[0] == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"000001\n")))
    assert run("reshard", ".", "-o", "c/c-%d.tar.zst", "--keys", "-", "--md5")[0] == 0

    assert [keys(f"{name}/{name}.json") for name in "abc"] == [
        ["000001", "000002", "000003"],
        ["000000", "000004"],
        ["000001"],
    ]


def test_reshard_with_two_processes_writes_the_same_shards(run: Run) -> None:
    options = ("--max-samples", "1", "--shuffle", "--seed", "4")

    assert run("reshard", ".", "-o", "one/a-%d.tar", *options)[0] == 0
    assert run("reshard", ".", "-o", "two/a-%d.tar", *options, "-w", "2")[0] == 0

    one, two = ({path.name: path.read_bytes() for path in Path(name).iterdir()} for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.json",), "missing.json"),
        (("broken.json",), "broken.json: "),
        (("notes.tar",), "notes.tar: not a tar archive"),
        (("empty",), "empty: this folder holds no .tar shards"),
        ((".", "--samples", "3-"), "--samples is '3-'; it must be a number, or the first and last"),
        ((".", "--samples", "3-2"), "is '3-2'; a range is written with its lower number first"),
        ((".", "--samples", "0-5"), "samples 0-5 are out of range for 5 samples"),
        ((".", "--keys", "missing.txt"), "missing.txt: No such file or directory; is the path right?"),
        ((".", "--seed", "1"), "--seed decides the order of --shuffle"),
        (("-", "--keys", "-"), "stdin can be only one of them"),
        ((".", "--keys", "broken.json"), "1 of the keys is in no sample: '{'"),
        ((".", "--max-bytes", "much"), "max_bytes is 'much'"),
        ((".", "--workers", "0"), "--workers is 0"),
        ((".", "-o", "new/a.tar"), "new/a.tar: is not a pattern for shards"),
        ((".", "-o", "https://x.org/a-%d.tar"), "cannot be written to"),
        ((".", "-o", "broken.json/a-%d.tar"), "broken.json"),
        ((".", "-o", "shard-%04d.tar", "--overwrite"), "shard-0000.tar: is one of the inputs, and would be replaced"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_of_reshard_is_a_one_line_error_and_writes_nothing(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    Path("broken.json").write_text("{", encoding="utf-8")
    Path("empty").mkdir()
    if arguments[0] == "notes.tar":
        Path("notes.tar").write_text("no tar " * 200, encoding="utf-8")
    before = sorted(Path().rglob("*"))

    status, output, errors = run("reshard", "-o", "new/a-%d.tar", *arguments)

    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert errors.startswith("widsindex: ")
    assert message in errors
    assert sorted(Path().rglob("*")) == before


def test_a_full_disk_during_reshard_is_one_line_and_leaves_only_whole_shards(start: Any) -> None:
    write_tar(Path("large.tar"), [("0.bin", bytes(100_000)), ("1.bin", bytes(3_000_000))])

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    done = start("reshard", "large.tar", "-o", "new/a-%d.tar", "--max-samples", "1", preexec_fn=limit)

    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1)
    assert done.stderr.endswith(b"new/a-1.tar: cannot be written: File too large; make room, or write elsewhere\n")
    assert [path.name for path in Path("new").iterdir()] == ["a-0.tar"]


def test_reshard_reads_a_descriptor_or_a_shard_from_stdin(shards: list[str], start: Any) -> None:
    start("create", *shards, "-o", "all.json")
    for name, count in (("all.json", 5), (shards[0], 3)):
        done = start("reshard", "-", "-o", f"{count}/a-%d.tar", input=Path(name).read_bytes())

        assert done.stdout == f"{count}/a-%d.tar: {count} samples in 1 shard\n".encode()
