"""`widsindex ls`, `cat`, `sample` and `info --fields` say what is in the shards; `completion` what the program takes."""

from __future__ import annotations

import fnmatch
import gzip
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import ROOT, subcommands
from tests.storage.web_server import web_server
from tests.support import write_descriptor, write_shards, write_tar
from wids.tools import write_selection
from wids.tools.contents import Contents
from wids.tools.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]
    Start = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def samples(folder: Path, run: Run) -> list[dict[str, Any]]:
    """`train.json` and its shards; what `ls --json` must say of them, as `tarfile` sees it."""
    rng = random.Random(0)
    for shard in range(3):
        keys = [f"{shard}/n{rng.randrange(3)}-{sample:02d}" for sample in range(5)]
        members = [
            (f"{key}.{name}", rng.randbytes(rng.randrange(2000)))
            for key in keys
            for name in ("jpg", "cls", "seg.png")[: rng.randrange(1, 4)]
        ]
        write_tar(folder / f"train-{shard}.tar", members)
    run("create", ".", "-o", "train.json", "--index")
    rows: list[dict[str, Any]] = []
    for shard in range(3):
        with tarfile.open(f"train-{shard}.tar") as tar:
            for member in tar:
                key, _, name = member.name.partition(".")
                if not rows or rows[-1]["key"] != key:
                    rows.append({"index": len(rows), "key": key, "shard": f"train-{shard}.tar", "fields": {}})
                rows[-1]["fields"][f".{name}"] = member.size
    return rows


def parse(output: str) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in output.splitlines()]


# ls


@pytest.mark.parametrize("given", ["train.json", ".", "train-*.tar", "train-{0..2}.tar"])
def test_ls_lists_the_samples_that_tarfile_finds(samples: list[dict[str, Any]], run: Run, given: str) -> None:
    status, output, errors = run("ls", given, "--json")

    assert (status, errors) == (0, "")
    found = parse(output)
    assert [{**row, "shard": Path(row["shard"]).name} for row in found] == samples


@pytest.mark.parametrize("pattern", ["1/*", "*/n0-*", "*-0[24]", "none", "2/n1-01"])
@pytest.mark.parametrize("shard", [None, "1", "1-2", "train-[02].tar"])
def test_ls_filters_by_key_and_shard(samples: list[dict[str, Any]], run: Run, pattern: str, shard: str | None) -> None:
    chosen = {None: "012", "1": "1", "1-2": "12", "train-[02].tar": "02"}[shard]

    output = run("ls", "train.json", "--json", "--keys", pattern, *([] if shard is None else ["--shard", shard]))[1]

    assert parse(output) == [
        row for row in samples if fnmatch.fnmatchcase(row["key"], pattern) and row["shard"][6] in chosen
    ]


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        ("3", "shard 3 is out of range for 3 shards, numbered from 0"),
        ("2-1", "is '2-1'; a range is written with its lower number first"),
        ("other*", "'other*': no shard has this name"),
        ("-1", "'-1': no shard has this name"),
    ],
)
@pytest.mark.usefixtures("samples")
def test_ls_of_an_unknown_shard_is_an_error(run: Run, shard: str, message: str) -> None:
    status, output, errors = run("ls", "train.json", "--shard", shard)

    assert (status, output) == (1, "")
    assert message in errors


def test_samples_beyond_the_count_of_the_descriptor_are_not_listed(samples: list[dict[str, Any]], run: Run) -> None:
    write_descriptor(Path("few.json"), [{"url": "train-0.tar", "nsamples": 2}, {"url": "train-1.tar", "nsamples": 5}])

    found = parse(run("ls", "few.json", "--json")[1])

    assert [row["key"] for row in found] == [row["key"] for row in samples[:2] + samples[5:10]]
    assert [row["index"] for row in found] == list(range(7))


def test_commands_number_the_samples_of_a_selection_by_its_own_indices(
    samples: list[dict[str, Any]], run: Run, start: Start
) -> None:
    rows = [12, 3, 3, 7, 0]
    write_selection("train.json", rows, "selected.json")
    expected = [{**samples[row], "index": index} for index, row in enumerate(rows)]
    sizes = [size for row in rows for field, size in samples[row]["fields"].items() if field == ".jpg"]

    assert parse(run("ls", "selected.json", "--json")[1]) == expected
    assert parse(run("ls", "selected.json", "--json", "--shard", "0")[1]) == [expected[1], expected[2], expected[4]]
    assert parse(run("ls", "selected.json", "--json", "--keys", samples[7]["key"])[1]) == [expected[3]]
    for name, row in (("0", 12), ("-2", 7), (samples[3]["key"], 3)):
        assert start("cat", "selected.json", name, "jpg").stdout == start("cat", "train.json", str(row), "jpg").stdout
    assert "index 5 is out of range for 5 samples" in run("cat", "selected.json", "5", "jpg")[2]
    assert "no sample has this key" in run("cat", "selected.json", samples[1]["key"], "jpg")[2]
    found = orjson.loads(run("info", "selected.json", "--fields", "--json")[1])["fields"][".jpg"]
    assert (found["count"], found["bytes"], found["median"]) == (len(sizes), sum(sizes), sorted(sizes)[len(sizes) // 2])


def test_stdin_may_be_a_descriptor_or_a_shard(samples: list[dict[str, Any]], start: Start) -> None:
    whole = parse(start("ls", "-", "--json", input=Path("train.json").read_bytes()).stdout.decode())
    for data in (Path("train-1.tar").read_bytes(), subprocess.check_output(["gzip", "-c", "train-1.tar"])):
        one = parse(start("ls", "-", "--json", input=data).stdout.decode())

        assert [(row["key"], row["fields"]) for row in one] == [(row["key"], row["fields"]) for row in samples[5:10]]
        assert {row["shard"] for row in one} == {"-"}
    assert whole == samples
    assert start("cat", "-", "1", "jpg", input=Path("train-1.tar").read_bytes()).stdout == field("train-1.tar", 1)


@pytest.mark.parametrize(
    ("arguments", "kind", "called"),
    [
        ("ls --json", "packed", b'"shard":"-"'),
        ("info --fields", "plain", b" file: -\n"),
        ("info --json", "plain", b'"file":"-"'),
        ("verify", "damaged", b"\n-: 0 samples in 1 shard"),
        ("sample --raw", "plain", b"'-'\n"),
    ],
)
@pytest.mark.usefixtures("samples")
def test_data_on_stdin_is_called_a_dash_in_the_output(start: Start, arguments: str, kind: str, called: bytes) -> None:
    data = Path("train-1.tar").read_bytes()
    data = {"plain": data, "packed": gzip.compress(data), "damaged": data[:1000]}[kind]
    command, *options = arguments.split()

    done = start(command, "-", *options, input=data)

    shown = done.stdout + done.stderr
    assert called in shown
    assert b"stdin" not in shown
    assert tempfile.gettempdir().encode() not in shown


def test_a_compressed_shard_on_stdin_is_not_cached(samples: list[dict[str, Any]], start: Start) -> None:
    start("ls", "-", input=gzip.compress(Path(samples[0]["shard"]).read_bytes()))

    assert start("cache", "ls").stdout.startswith(b"0 shards")


def field(shard: str, position: int) -> bytes:
    """Return the `.jpg` of a sample, as `tarfile` reads it."""
    with tarfile.open(shard) as tar:
        members = [member for member in tar if member.name.endswith(".jpg")]
        return tar.extractfile(members[position]).read()  # type: ignore[union-attr]


@pytest.mark.usefixtures("folder")
def test_ls_json_escapes_keys_that_are_not_utf8(start: Start) -> None:
    with tarfile.open("a.tar", "w", encoding="utf-8", errors="surrogateescape") as tar:
        tar.addfile(tarfile.TarInfo("k\udcff.txt"))

    done = start("ls", "a.tar", "--json")

    assert (done.returncode, done.stderr) == (0, b"")
    assert rb'"key": "k\udcff"' in done.stdout


@pytest.mark.parametrize("name", [b"\xff.tar", b"\xff.tar.gz"])
def test_shards_with_names_that_are_not_utf8_are_read(folder: Path, start: Start, name: bytes) -> None:
    path = folder / os.fsdecode(name)
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        tar.addfile(tarfile.TarInfo("k.txt"))

    listed, shown, sizes = (
        start(command, path, *more).stdout for command, *more in (["ls"], ["sample"], ["info", "-f"])
    )

    assert listed == b"index\tkey\tbytes\tfields\n0\tk\t0\t.txt=0\n"
    assert b"'k'" in shown
    assert b"\n.txt\t1\t0\t" in sizes


def test_ls_and_cat_fetch_no_whole_shard(folder: Path, run: Run) -> None:
    data = write_tar(
        folder / "a.tar",
        [(f"{n}.{name}", b"x" * size) for n in range(8) for name, size in (("bin", 1 << 22), ("txt", 3))],
    ).read_bytes()
    with web_server() as server:
        server.has_ranges = True
        server.objects["a.tar"] = data

        listed = run("ls", server.url("a.tar"), "--json")[1]
        text = run("cat", server.url("a.tar"), "5", "txt")[1]

    assert (len(listed.splitlines()), text) == (8, "xxx")
    assert server.num_bytes < len(data) / 10


@pytest.mark.usefixtures("samples")
def test_ls_cat_and_info_import_no_torch() -> None:
    for arguments in (["ls", "train.json"], ["cat", "train.json", "0", "jpg"], ["info", "-f", "train.json"]):
        code = f"import sys\nfrom wids.cli import main\nsys.exit(main({arguments}) or 'torch' in sys.modules)"
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=True
        )


# cat


def test_cat_writes_the_bytes_of_one_or_of_many_samples(samples: list[dict[str, Any]], start: Start) -> None:
    assert start("cat", "train.json", "6", "jpg").stdout == field("train-1.tar", 1)
    assert start("cat", "train.json", samples[6]["key"], ".JPG").stdout == field("train-1.tar", 1)
    assert start("cat", "train.json", "-1", "jpg").stdout == field("train-2.tar", 4)
    several = start("cat", "train.json", "12", samples[0]["key"], "-2", "jpg", "--lines").stdout
    assert several == b"".join(
        field(shard, position) + b"\n"
        for shard, position in (("train-2.tar", 2), ("train-0.tar", 0), ("train-2.tar", 3))
    )
    named = start("cat", "train.json", "-", "jpg", input=f"\ufeff1\r\n\n{samples[3]['key']}\n".encode()).stdout
    assert named == field("train-0.tar", 1) + field("train-0.tar", 3)
    every = start("cat", "train.json", "jpg", "--shard", "1").stdout
    assert every == b"".join(field("train-1.tar", position) for position in range(5))


def test_cat_of_all_samples_leaves_out_those_without_the_field(samples: list[dict[str, Any]], start: Start) -> None:
    done = start("cat", "train.json", "cls")

    assert done.returncode == 0
    assert len(done.stdout) == sum(row["fields"].get(".cls", 0) for row in samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["15", "jpg"], "index 15 is out of range for 15 samples"),
        (["-16", "jpg"], "index -16 is out of range for 15 samples"),
        (["007", "jpg"], "'007': no sample has this key"),
        (["0", "gif"], "'gif': sample "),
        (["gif"], "none of the chosen samples has the field 'gif'"),
        (["0", "jpg", "--keys", "*"], "give one or the other"),
    ],
)
@pytest.mark.usefixtures("samples")
def test_cat_of_a_missing_sample_or_field_is_a_one_line_error(run: Run, arguments: list[str], message: str) -> None:
    status, output, errors = run("cat", "train.json", *arguments)

    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors


def test_a_repeated_key_means_its_first_sample(folder: Path, run: Run) -> None:
    write_tar(folder / "a.tar", [("x.txt", b"1"), ("y.txt", b"2"), ("x.txt", b"3")])

    assert run("cat", "a.tar", "x", "txt")[1] == "1"


# Arguments


@pytest.mark.usefixtures("folder")
def test_a_shard_whose_name_is_also_a_pattern_is_found_by_its_exact_name(run: Run) -> None:
    for name in ("a[1]?.tar", "a1x.tar"):
        write_tar(Path(name), [("k.txt", name.encode())])
    run("create", ".", "-o", "a.json")

    assert run("cat", "a.json", "txt", "--shard", "a[1]?.tar")[1] == "a[1]?.tar"
    assert run("cat", "a.json", "txt", "--shard", "a[1]x*")[1] == "a1x.tar"


@pytest.mark.parametrize(
    "arguments", ["--lines train.json 1 jpg", "train.json --lines 1 jpg", "train.json 1 --lines jpg"]
)
@pytest.mark.usefixtures("samples")
def test_options_may_stand_before_or_between_arguments(run: Run, arguments: str) -> None:
    assert run("cat", *arguments.split()) == run("cat", "train.json", "1", "jpg", "--lines")


@pytest.mark.usefixtures("samples")
def test_an_option_may_stand_before_an_optional_argument(run: Run) -> None:
    assert run("sample", "train.json", "--raw", "3") == run("sample", "train.json", "3", "--raw")
    assert run("sample", "train.json", "--raw", "--", "-1") == run("sample", "train.json", "14", "--raw")


# sample


def test_a_field_that_cannot_be_decoded_is_shown_as_it_is_stored(folder: Path, run: Run) -> None:
    fields = {
        "txt": "Grüße".encode(),
        "jpg": b"no image",
        "cls": b"7",
        "npy": b"no array",
        "json.gz": gzip.compress(b"[1]"),
    }
    write_tar(folder / "it's.tar", [(f"k.{field}", data) for field, data in fields.items()])

    status, output, errors = run("sample", "it's.tar")

    assert status == 1
    values = [line.split(maxsplit=3) for line in output.splitlines()[: len(fields)]]
    assert {name: value for name, _, _, value in values} == {
        ".txt": "'Grüße'",
        ".jpg": "b'no image'",
        ".cls": "7",
        ".npy": "b'no array'",
        ".json.gz": "[1]",
    }
    assert errors.endswith("see it with: widsindex sample 'it'\"'\"'s.tar' 0\n")


def test_sample_takes_a_key(samples: list[dict[str, Any]], run: Run) -> None:
    by_key = run("sample", "train.json", samples[7]["key"], "--raw")

    assert by_key == run("sample", "train.json", "7", "--raw")
    assert run("sample", "train.json", "nobody")[0] == 1


def test_a_field_too_large_for_memory_is_written_piece_by_piece(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wids.tar.reader.MAX_SPARSE_BYTES", 1000)  # as if its 300 kB were gigabytes
    with (folder / "k.bin").open("wb") as file:
        file.truncate(300_000)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    subprocess.run(["tar", "--sparse", "-cf", "sparse.tar", "k.bin"], check=True)

    assert run("sample", "sparse.tar", "--cat", "bin") == (0, "\0" * 300_000 + "end", "")


# info


def test_info_fields_gives_the_statistics_of_member_sizes(samples: list[dict[str, Any]], run: Run) -> None:
    (facts,) = parse(run("info", "--json", "--fields", ".")[1])

    assert facts["samples"] == 15
    for name in (".jpg", ".cls", ".seg.png"):
        sizes = [row["fields"][name] for row in samples if name in row["fields"]]
        assert facts["fields"][name] == {
            "count": len(sizes),
            "bytes": sum(sizes),
            "min": min(sizes),
            "median": statistics.median_low(sizes),
            "max": max(sizes),
        }


@given(parts=st.lists(st.lists(st.integers(0, 1 << 40)), min_size=1).filter(any), bins=st.integers(1, 30))
def test_statistics_of_sizes_equal_those_of_a_list(parts: list[list[int]], bins: int) -> None:
    sizes = Sizes()
    for part in parts:
        sizes.add(np.array(part, np.int64))
        together = [size for part in parts for size in part]

    assert (sizes.count, sizes.total) == (len(together), sum(together))
    assert (sizes.least, sizes.most) == (min(together), max(together))
    assert sizes.median == statistics.median_low(together)
    histogram = sizes.histogram(bins)
    assert (len(histogram), sum(histogram)) == (bins, len(together))
    assert histogram[0] >= together.count(min(together)) > 0


@pytest.mark.usefixtures("samples")
def test_histograms_are_ascii_in_a_terminal_without_unicode(start: Start) -> None:
    output = start("info", "-f", "train.json", env={"PYTHONIOENCODING": "ascii"}).stdout

    assert output.isascii()
    assert b"\\u" not in output
    assert b"@" in output


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_every_command_and_option(run: Run, shell: str) -> None:
    status, script, _ = run("completion", shell)

    assert status == 0
    for name, parser in subcommands():
        assert name in script
        options = {word for action in parser._actions for word in action.option_strings if word.startswith("--")}
        assert [word for word in options if word[2 if shell == "fish" else 0 :] not in script] == []


@pytest.mark.usefixtures("samples")
def test_bash_completes_commands_options_and_files(run: Run) -> None:
    Path("script").write_text(run("completion", "bash")[1], encoding="utf-8")
    shell = shutil.which("bash")
    assert shell is not None

    def complete(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        program = (
            f'source ./script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; COMP_LINE="{" ".join(words)}"; '
            "_shtab_widsindex; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run([shell, "-c", program], capture_output=True, text=True, check=True)
        return {word.strip() for word in done.stdout.split()}

    assert complete("widsindex", "c") >= {"cat", "create", "cache", "completion"}
    assert complete("widsindex", "ls", "--k") == {"--keys"}
    assert "train.json" in complete("widsindex", "ls", "tr")


def test_indices_are_found_across_empty_shards(folder: Path) -> None:
    shards = [str(path) for path, _ in write_shards(folder, [0, 3, 0, 2, 0])]
    contents = Contents(shards)
    names = [str(index) for index in [4, -5, 0, *range(-5, 5)]]

    found = contents.find(names)

    assert [row.index for row in found] == [int(name) % 5 for name in names]
    assert [(row.shard, row.position) for row in contents.find(["2", "3"])] == [(1, 2), (3, 0)]
    for name in ("5", "-6"):
        with pytest.raises(IndexError, match=f"index {name} is out of range for 5 samples"):
            contents.find([name])
