"""`widsindex sample`: one sample of a dataset, printed or saved as files."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.cli.arguments import add_command, add_data_set
from wids.cli.terminal import paint, printable, rename, terminal_width
from wids.errors import DecodeError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_TITLES = 31
"""Columns of the screen before a value."""
_WIDTH = 100
"""Columns of a value where there is no terminal."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = add_command(
        commands,
        "sample",
        run,
        title="show one sample",
        description="Show one sample: its fields, their sizes and their values, or the stored bytes of a field that cannot be decoded.",
        examples="""
widsindex sample train.json 1900
widsindex sample train.json -- -1
widsindex sample train.json 1900 --cat jpg > sample.jpg
widsindex sample train.json 000000-0003 --save out/
""",
    )
    add_data_set(parser)
    parser.add_argument(
        "sample", nargs="?", default="0", help="its index from 0, or a key that is not a plain number (%(default)s)"
    )
    parser.add_argument("-c", "--cat", metavar="FIELD", help="write this field's bytes to stdout")
    parser.add_argument("-r", "--raw", action="store_true", help="show the fields' bytes, not their decoded values")
    parser.add_argument("-s", "--save", metavar="FOLDER", help="write the fields as files, named by key and field")
    parser.add_argument("-w", "--width", type=int, help="columns of a value (what the terminal has left, or 100)")


def run(options: argparse.Namespace) -> None:
    """Show a sample."""
    from wids.cli.inputs import data_set
    from wids.dataset import ShardListDataset
    from wids.tools.contents import index_in

    if options.width is not None and options.width < 1:
        raise ValueError(f"--width is {options.width}; it must be at least 1")

    with data_set(options.file) as shards, ShardListDataset(shards, transformations=None) as dataset:
        given = index_in(options.sample)
        index = dataset.index_of(options.sample) if given is None else given
        if options.cat is not None:
            with dataset.open(index, options.cat) as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            return
        if options.save is not None:
            _save(dataset.read(index), dataset.key(index), Path(options.save))
            return
        print("dataset size:", len(dataset), file=sys.stderr)
        width = options.width or (terminal_width() or _TITLES + _WIDTH) - _TITLES
        stored = dataset[index]
        if options.raw:
            _show(stored, stored, width)
            return
        try:
            _show(dataset.decode("PIL")[index], stored, width)
        except DecodeError:
            _show(_decode_each(stored, dataset.read(index)), stored, width)
            raise


def _decode_each(stored: Mapping[str, Any], fields: Mapping[str, bytes]) -> dict[str, Any]:
    """Return a sample with those of its fields decoded that can be."""
    from wids.decode import default_decoder

    decode = default_decoder("PIL")
    sample = dict(stored)
    for field, data in fields.items():
        with suppress(DecodeError):
            sample |= decode({"__key__": sample["__key__"], field: data})
    return sample


def _show(sample: Mapping[str, Any], stored: Mapping[str, Any], width: int) -> None:
    """Print a sample, and how many bytes of each field are stored."""
    for name, value in sample.items():
        content = value.getvalue() if hasattr(value, "getvalue") else value
        size = f"{len(stored[name].getvalue()):>10} B" if name.startswith(".") else ""
        title = paint(f"{printable(name):<16}", "bold")
        print(f"{title} {size:>12}  {_shorten(content, width)}")


def _shorten(value: object, width: int) -> str:
    # repr() keeps control characters of names and texts away from the terminal.
    text = rename(repr(value if not isinstance(value, bytes) else value[: 2 * width]))
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _save(fields: dict[str, bytes], key: str, folder: Path) -> None:
    # A key may hold slashes or "..": its parts are joined by a character that makes no path.
    stem = key.replace("/", "_").replace("\\", "_").lstrip(".") or "sample"
    from wids.tools.files import make_folder, writing

    make_folder(folder)
    for field, data in fields.items():
        path = folder / f"{stem}{field.replace('/', '_')}"
        with writing(path) as file:
            file.write(data)
        print(printable(str(path)))
