"""Array files: false headers are errors before memory is allocated, and no file runs code unless that is allowed."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.decode.files import ARRAY, Trap, npy, npz, pt, same
from wids.decode import default_decoder
from wids.decode.arrays import decode_npz
from wids.errors import DecodeError

if TYPE_CHECKING:
    from pathlib import Path


def decode(field: str, data: bytes, *, allow_pickle: bool = False) -> Any:
    return default_decoder("PIL", allow_pickle=allow_pickle)({field: data})[field]


@settings(max_examples=200)
@given(
    hnp.arrays(
        hnp.scalar_dtypes() | hnp.unicode_string_dtypes() | hnp.byte_string_dtypes(),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    st.booleans(),
)
def test_any_array_is_read_as_numpy_reads_it(array: np.ndarray[Any, Any], fortran: bool) -> None:
    data = npy(np.asfortranarray(array) if fortran else array)
    expected = np.load(io.BytesIO(data))

    found = decode(".npy", data)

    assert (found.dtype, found.shape, found.flags.f_contiguous) == (
        expected.dtype, expected.shape, expected.flags.f_contiguous
    )  # fmt: skip
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)], ids=str)
def test_every_version_of_the_npy_format_is_read(version: tuple[int, int]) -> None:
    assert same(decode(".npy", npy(ARRAY, version)), ARRAY)


def test_an_unknown_version_of_the_npy_format_is_an_error() -> None:
    data = bytearray(npy(ARRAY))
    data[6:8] = b"\4\0"

    with pytest.raises(DecodeError, match=r"version 4\.0"):
        decode(".npy", bytes(data))


def test_record_arrays_with_non_latin_field_names_are_read() -> None:
    with pytest.warns(UserWarning, match=r"format 3\.0"):
        data = npy(np.zeros(3, [("größe", "<f8"), ("日本", ">i2", (2,))]))

    assert decode(".npy", data).dtype.names == ("größe", "日本")


def with_header(header: str, rest: bytes = bytes(24)) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + rest


def header(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    "text",
    [
        header("(7,)"),
        header("(10**10,)"),
        header("(10000000000,)"),
        header("(1000000000000000000000,)"),
        header("(0, 99999999999999999999999)"),
        header("(-1,)"),
        header("(-2, -3)"),
        header("(6, 'x')"),
        header("(2,)", "('<f4', (100000, 100000))"),
        header("(1,)", "'|V2000000000'"),
        header("(6,)", "'nonsense'"),
        header("__import__('os').getcwd()"),
        "-" * 9000 + "1",
        "(" * 9000,
        "{" * 5000 + "\n",
        "x" * 60000,
        "",
    ],
    ids=["one more", "expression", "40 GB", "no memory", "no index", "negative", "negative twice", "text", "subarray", "void",
         "dtype", "call", "signs", "brackets", "braces", "long", "empty"],
)  # fmt: skip
def test_a_false_or_malformed_npy_header_is_a_short_error(text: str) -> None:
    with pytest.raises(DecodeError, match=r"field '\.npy'") as caught:
        decode(".npy", with_header(text))
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
    with pytest.raises(DecodeError, match=r"field '\.npz'"):
        decode(".npz", zipped([("a.npy", with_header(text))]))


def test_the_error_for_missing_array_bytes_states_the_shape_and_the_bytes() -> None:
    with pytest.raises(DecodeError, match=r"shape \(7,\) and dtype float32, but 24 bytes follow"):
        decode(".npy", with_header(header("(7,)")))


@pytest.mark.parametrize("field", [".npy", ".npz"])
def test_object_arrays_run_no_code_unless_pickles_are_allowed(field: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    array = np.array([Trap(str(trap))], object)
    data = npy(array) if field == ".npy" else npz(a=array)

    with pytest.raises(DecodeError, match=r"allow_pickle=True"):
        decode(field, data)

    assert not trap.exists()
    harmless = np.array([{"a": 1}, None], object)
    data = npy(harmless) if field == ".npy" else npz(a=harmless)
    found = decode(field, data, allow_pickle=True)
    assert (found if field == ".npy" else found["a"]).tolist() == [{"a": 1}, None]


def test_a_pickle_in_a_field_for_arrays_runs_no_code(tmp_path: Path) -> None:
    trap = tmp_path / "trap"

    for field in (".npy", ".npz", ".pt", ".pth", ".safetensors", ".ten", ".json"):
        with pytest.raises(DecodeError):
            decode(field, pickle.dumps(Trap(str(trap)), 2))

    assert not trap.exists()


@pytest.mark.parametrize("field", [".pkl", ".pickle", ".pyd", ".PKL", ".x.pkl"])
def test_a_pickle_runs_its_code_only_if_pickles_are_allowed(field: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    data = pickle.dumps(Trap(str(trap)))

    with pytest.raises(DecodeError, match=rf"'\{field}'.*allow_pickle=True"):
        decode(field, data)
    assert not trap.exists()
    decode(field, data, allow_pickle=True).close()
    assert trap.exists()
    assert decode(field, pickle.dumps({"a": (1, 2)}), allow_pickle=True) == {"a": (1, 2)}
    with pytest.raises(DecodeError, match="allow_pickle=True"):
        decode(f"{field}.gz", gzip.compress(data))


@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "old"])
@pytest.mark.parametrize("field", [".pt", ".pth"])
def test_a_torch_file_runs_its_code_only_if_pickles_are_allowed(field: str, as_zip: bool, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    data = pt(Trap(str(trap)), as_zip=as_zip)

    with pytest.raises(DecodeError, match=r"more than tensors and plain containers.*open.*allow_pickle=True") as caught:
        decode(field, data)
    assert "weights_only" not in str(caught.value)
    assert not trap.exists()
    decode(field, data, allow_pickle=True).close()
    assert trap.exists()


def test_a_torch_file_in_the_old_tar_format_is_refused() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("pickle"))

    with pytest.raises(DecodeError, match="2017"):
        decode(".pt", file.getvalue())


def test_torch_files_land_on_the_cpu_with_their_values() -> None:
    value = {"a": torch.arange(6).reshape(2, 3).t(), "b": [torch.tensor(2.5), torch.zeros(0, 3)], "c": "x"}

    assert same(decode(".pt", pt(value)), value)
    assert decode(".pt", pt(value))["a"].device.type == "cpu"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.float64], ids=str)
def test_safetensors_keep_dtype_and_shape(dtype: torch.dtype) -> None:
    tensors = {
        "a": torch.ones(2, 3, dtype=dtype),
        "b": torch.zeros((), dtype=dtype),
        "c": torch.zeros(0, 2, dtype=dtype),
    }

    assert same(decode(".safetensors", safetensors.torch.save(tensors)), tensors)


def zipped(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "packed"])
def test_npz_gives_its_arrays_by_name_as_numpy_does(packed: bool) -> None:
    data = npz(packed=packed, a=ARRAY, **{"b/c.d": np.int64(3)})

    with np.load(io.BytesIO(data)) as expected:
        assert same(decode(".npz", data), dict(expected))


def test_an_npz_entry_that_is_not_an_array_stays_bytes_as_in_numpy() -> None:
    data = zipped([("note.txt", b"text"), ("a.npy", npy(ARRAY))])

    assert same(decode(".npz", data), {"note.txt": b"text", "a": ARRAY})


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_in_an_npz_is_an_error() -> None:
    for second in ("a.npy", "a"):
        with pytest.raises(DecodeError, match="'a' occurs twice"):
            decode(".npz", zipped([("a.npy", npy(ARRAY)), (second, npy(ARRAY))]))


def test_an_npz_that_would_exceed_the_limit_is_an_error_before_it_is_unpacked() -> None:
    bombs = [
        zipped([("a.npy", npy(np.zeros(1_000_000)))]),
        zipped([(f"{n}.npy", npy(np.zeros(100_000))) for n in range(2)]),
    ]

    for bomb in bombs:
        assert len(bomb) < 20_000
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match="more than the 1000000 bytes"):
                decode_npz(bomb, allow_pickle=False, limit=1_000_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 500_000


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["deflate", "bzip2", "lzma"]
)
@pytest.mark.parametrize("stated", [10, 2_000_000], ids=["less", "more"])
def test_an_npz_entry_whose_size_differs_from_the_directory_is_an_error(method: int, stated: int) -> None:
    content = npy(np.zeros(100_000))
    data = zipped([("a.npy", content)], method).replace(struct.pack("<I", len(content)), struct.pack("<I", stated))

    with pytest.raises(DecodeError, match=r"'\.npz'"):
        decode(".npz", data)


def test_damaged_fields_give_the_same_errors_in_optimised_mode(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(Trap(str(trap))))
    (tmp_path / "x.npy").write_bytes(npy(np.array([Trap(str(trap))], object)))
    (tmp_path / "x.cls").write_bytes(b"3.5")
    (tmp_path / "x.json").write_bytes(b"{bad")
    (tmp_path / "x.png").write_bytes(b"no image")
    (tmp_path / "x.ten").write_bytes(b"~TenBin~")
    (tmp_path / "x.txt.gz").write_bytes(b"")
    script = """
import pathlib, sys
from wids.decode import default_decoder
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    field = path.name[1:]
    try:
        print(default_decoder("PIL")({field: path.read_bytes()}))
    except Exception as error:
        print(type(error).__name__, error)
"""

    runs = [
        subprocess.run([sys.executable, *flags, "-c", script, tmp_path], check=True, capture_output=True, text=True)
        for flags in ([], ["-O"])
    ]

    assert [line.split()[0] for line in runs[0].stdout.splitlines()] == ["DecodeError"] * 7
    assert runs[1].stdout == runs[0].stdout
    assert not trap.exists()
