"""`widsindex sample`: one sample of a dataset, on the screen or as files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wids.cli.terminal import printable

_WIDTH = 100


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "sample",
        help="show one sample",
        description="Show one sample: its fields, their sizes and values.",
        epilog="examples:\n"
        "  widsindex sample train.json 1900\n"
        "  widsindex sample train.json -- -1\n"
        "  widsindex sample train.json 1900 --cat jpg > sample.jpg\n"
        "  widsindex sample train.json 1900 --save out/\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", help="descriptor, folder, pattern or shard")
    parser.add_argument("index", nargs="?", type=int, default=0, help="number of the sample, from 0 (%(default)s)")
    parser.add_argument("-c", "--cat", metavar="FIELD", help="write this field's bytes to stdout")
    parser.add_argument("-r", "--raw", action="store_true", help="show the fields' bytes, not their decoded values")
    parser.add_argument("-s", "--save", metavar="FOLDER", help="write the fields as files, named by key and field")
    parser.add_argument("-w", "--width", type=int, default=_WIDTH, help="columns of a value (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Show a sample."""
    from wids.dataset import ShardListDataset

    with ShardListDataset(options.file, transformations=None) as dataset:
        if options.cat is not None:
            (data,) = dataset.read(options.index, [options.cat]).values()
            sys.stdout.buffer.write(data)
            return
        if options.save is not None:
            _save(dataset.read(options.index), dataset.key(options.index), Path(options.save))
            return
        print("dataset size:", len(dataset), file=sys.stderr)
        sizes = {field: len(view) for field, view in dataset.view(options.index).items()}
        shown = dataset if options.raw else dataset.decode("PIL")
        for name, value in shown[options.index].items():
            content = value.getvalue() if hasattr(value, "getvalue") else value
            size = f"{sizes[name]:>10} B" if name in sizes else ""
            print(f"{printable(name):<16} {size:>12}  {_shorten(content, options.width)}")


def _shorten(value: object, width: int) -> str:
    # repr() keeps control characters of names and texts away from the terminal.
    text = repr(value if not isinstance(value, bytes) else value[: 2 * width])
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _save(fields: dict[str, bytes], key: str, folder: Path) -> None:
    # A key may hold slashes or "..": its parts are joined by a character that makes no path.
    stem = key.replace("/", "_").replace("\\", "_").lstrip(".") or "sample"
    folder.mkdir(parents=True, exist_ok=True)
    for field, data in fields.items():
        path = folder / f"{stem}{field.replace('/', '_')}"
        path.write_bytes(data)
        print(printable(str(path)))
