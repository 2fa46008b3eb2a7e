"""A missing package is named together with the command that installs it, and never taken for damage."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.decode.files import AUDIO, IMAGES, TONE, VALUES, audio
from tests.support import write_tar

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import importlib.abc, json, sys

blocked, how, path, spec = sys.argv[1:]

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == blocked:
            raise OSError("sndfile library not found") if how == "OSError" else ModuleNotFoundError(
                f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
import wids
for on_error in ("raise", "replace"):
    dataset = wids.ShardListDataset([(path, 2)], transformations=spec, on_error=on_error)
    try:
        dataset[0]
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error), str(error.__cause__.__cause__)]))
    else:
        print(json.dumps(["nothing", "", ""]))
"""


def read_without(package: str, field: str, data: bytes, folder: Path, *, how: str = "", spec: str = "PIL") -> list[str]:
    path = write_tar(folder / "a.tar", [(f"a{field}", data), ("b.txt", b"readable")])
    command: list[str | Path] = [sys.executable, "-c", SCRIPT, package, how, path, spec]

    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout

    raised, replaced = map(json.loads, output.splitlines())
    assert raised == replaced
    return list(map(str, raised))


@pytest.mark.parametrize(
    ("package", "field", "command"),
    [
        ("msgpack", ".mp", "pip install 'wids[msgpack]'"),
        ("soundfile", ".wav", "pip install 'wids[audio]'"),
        ("soundfile", ".opus.gz", "pip install 'wids[audio]'"),
        ("torch", ".flac", "pip install 'torch'"),
        ("torch", ".pt", "pip install 'torch'"),
        ("torch", ".safetensors", "pip install 'torch'"),
        ("PIL", ".png", "pip install 'pillow'"),
    ],
)
def test_a_missing_package_is_an_error_that_says_how_to_install_it(
    package: str, field: str, command: str, tmp_path: Path
) -> None:
    extension = field.split(".")[1]
    data = {**AUDIO, **IMAGES}.get(extension) or VALUES[extension][0]
    if field.endswith(".gz"):
        data = gzip.compress(data)

    name, message, cause = read_without(package, field, data, tmp_path)

    assert name == "ModuleNotFoundError"
    assert f"key 'a', field {field!r}" in message
    assert f"the package {package!r}" in message
    assert message.endswith(command)
    assert f"No module named '{package}" in cause


def test_images_as_tensors_without_torch_are_an_error_that_names_torch(tmp_path: Path) -> None:
    name, message, _ = read_without("torch", ".png", IMAGES["png"], tmp_path, spec="torchrgb")

    assert (name, message.rpartition("; ")[2]) == ("ModuleNotFoundError", "pip install 'torch'")


def test_images_arrays_and_classes_are_decoded_without_torch(tmp_path: Path) -> None:
    for field, data in (
        (".png", IMAGES["png"]),
        (".npy", VALUES["npy"][0]),
        (".ten", VALUES["ten"][0]),
        (".cls", b"3"),
    ):
        assert read_without("torch", field, data, tmp_path, spec="rgb")[0] == "nothing"


def test_a_missing_shared_library_counts_as_a_missing_package(tmp_path: Path) -> None:
    name, message, cause = read_without("soundfile", ".wav", audio(TONE, "WAV"), tmp_path, how="OSError")

    assert name == "ModuleNotFoundError"
    assert message.endswith("pip install 'wids[audio]'")
    assert "sndfile library not found" in cause


CODEC = """
import PIL.features, PIL.Image, sys
from wids.decode import default_decoder

feature, plugin, field, path = sys.argv[1:]
PIL.Image.init()
PIL.Image.OPEN.pop(plugin)  # as when Pillow is built without it
if feature in PIL.features.modules:
    del PIL.features.modules[feature]
else:
    PIL.features.codecs[feature] = ("absent", None)
try:
    default_decoder("PIL")({field: open(path, "rb").read()})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("feature", "plugin", "field", "name"),
    [
        ("avif", "AVIF", ".avif", "AVIF"),
        ("webp", "WEBP", ".webp", "WebP"),
        ("jpg_2000", "JPEG2000", ".jp2", "JPEG 2000"),
    ],
    ids=["avif", "webp", "jp2"],
)
def test_an_image_format_that_pillow_is_built_without_is_a_missing_package(
    feature: str, plugin: str, field: str, name: str, tmp_path: Path
) -> None:
    for data, expected in ((IMAGES[field[1:]], "ModuleNotFoundError"), (b"no image", "DecodeError")):
        (tmp_path / "image").write_bytes(data)
        command: list[str | Path] = [sys.executable, "-c", CODEC, feature, plugin, field, tmp_path / "image"]

        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout

        assert output.startswith(expected)
        assert (f"without {name}; pip install --upgrade pillow" in output) == (expected == "ModuleNotFoundError")
