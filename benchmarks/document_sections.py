"""Sections of docs/benchmarks.md, each made from the results of one benchmark; one that was not run gets no section."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from corpus import OUT, SCALES
from sides import OURS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = {
    "this": "wids, `read(i)`",
    "streams": "wids, `dataset[i]`",
    "floor": "floor",
    "stream floor": "floor of streams",
    "view floor": "floor of views",
    "copy": "copy of the bytes",
    "wids 0.1.11": "wids 0.1.11",
    "webshart": "webshart",
    "datasets": "HF datasets (Arrow)",
    "array_record": "ArrayRecord",
    "mosaicml": "MosaicML MDS",
    "litdata": "LitData",
    "energon": "Megatron-Energon",
}
COLOURS = {
    "this": "#1f77b4",
    "floor": "#999999",
    "wids 0.1.11": "#ff7f0e",
    "webshart": "#2ca02c",
    "array_record": "#d62728",
    "webdataset": "#2ca02c",
}
"""Colours of lines in plots."""


def sections(images: Path) -> list[str]:
    """Return the lines of all sections that there are results for; draw their plots into the folder `images`."""
    makers: dict[str, Callable[[Any, Path], list[str]]] = {
        "data_size": sizes,
        "dataloader": loader,
        "cold_files": cold,
        "decode_images": decoding,
        "memory": memory,
    }
    lines: list[str] = []
    for name, make in makers.items():
        found = OUT / f"{name}.json"
        if found.exists():
            lines += ["", *make(json.loads(found.read_text()), images)]
    return lines


def label(side: str) -> str:
    """Return a side's name in a table."""
    return f"**{NAMES[side]}**" if side in OURS else NAMES[side]


def plain(side: str) -> str:
    """Return a side's name in a plot."""
    return NAMES[side].replace("`", "")


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table whose first column holds text and whose others hold numbers."""
    return [
        "| " + " | ".join(head) + " |",
        "|---|" + "---:|" * (len(head) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def sizes(results: dict[str, dict[str, dict[str, float]]], images: Path) -> list[str]:
    """Time for one sample at random against the size of the data (`make bench-size`)."""
    draw_sizes(results, images / "data_size.svg")
    lines = [
        "## Against the size of the data",
        "",
        (
            "`make bench-size`: µs for one random sample, from shards of 100 samples of 2,000 B each, and from a single shard of "
            "samples of 100 B."
        ),
        "",
        "![Time for one sample against the number of shards and of samples in a shard](images/data_size.svg)",
    ]
    for what, kinds in SCALES.items():
        sides = [side for side in NAMES if side in results[next(iter(kinds.values()))]]
        rows = [
            [
                label(side),
                *(f"{results[kind][side]['random']:.3g}" if side in results[kind] else "" for kind in kinds.values()),
            ]
            for side in sides
            if "random" in results[next(iter(kinds.values()))][side]
        ]
        lines += ["", *table([what, *(f"{number:,}" for number in kinds)], rows)]
    return lines


def draw_sizes(results: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the time for one sample against what grows, one panel each."""
    plt = pyplot()
    figure, panels = plt.subplots(len(SCALES), 1, figsize=(6, 6.6), constrained_layout=True)
    for panel, (what, kinds) in zip(panels, SCALES.items(), strict=True):
        for side in ("this", "floor", "wids 0.1.11", "webshart", "array_record"):
            points = [
                (number, results[kind][side]["random"])
                for number, kind in kinds.items()
                if side in results[kind] and "random" in results[kind][side]
            ]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=plain(side), **line(side))
        panel.set_xscale("log")
        panel.set_yscale("log")
        number_powers(panel.xaxis)
        number_powers(panel.yaxis, 1, 2, 5)
        panel.set_xlabel({"shards": "shards", "members": "samples in the shard"}[what])
        panel.set_ylabel("µs for one sample")
        panel.grid(alpha=0.3)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, metadata={"Date": None})


def loader(found: dict[str, dict[str, dict[str, float]]], images: Path) -> list[str]:
    """Samples per second through a DataLoader (`make bench-loader`)."""
    results, by_number = found["kinds"], found["workers"]
    draw_workers(by_number, images / "workers.svg")
    kinds = {"raw": "raw, 14 kB", "large": "raw, 1 MB", "decoded": "decoded to 224 x 224"}
    sides = list(dict.fromkeys(side for rows in results.values() for side in rows))
    rows = [
        [
            side.replace("this", "wids"),
            *(
                f"{results[kind][side]:,.0f} ({results[kind][side] / results[kind]['this']:.2f}x)"
                if side in results[kind]
                else ""
                for kind in kinds
            ),
        ]
        for side in sides
    ]
    return [
        "## Through a DataLoader",
        "",
        (
            "`make bench-loader`: samples per second with two workers, chunk-shuffled, in batches of 64, with the files in memory. webdataset "
            "streams the same shards and shuffles in a buffer of 1,000. The bare loop runs the same decoding on bytes in memory, in two processes. "
            "As tensors (`dataset.map(...)`), large samples reach the main process through shared memory instead of a pipe."
        ),
        "",
        *table(["", *kinds.values()], rows),
        "",
        "Raw samples of 14 kB by the number of workers:",
        "",
        "![Samples per second against the number of workers](images/workers.svg)",
        "",
        *table(
            ["workers", *next(iter(by_number.values()))],
            [
                [side.replace("this", "wids"), *(f"{rate:,.0f}" for rate in rates.values())]
                for side, rates in by_number.items()
            ],
        ),
    ]


def draw_workers(by_number: dict[str, dict[str, float]], path: Path) -> None:
    """Draw samples per second against the number of workers."""
    plt = pyplot()
    figure, panel = plt.subplots(figsize=(6, 3), constrained_layout=True)
    for side, rates in by_number.items():
        numbers = [int(number) for number in rates]
        panel.plot(numbers, list(rates.values()), marker="o", label=side.replace("this", "wids"), **line(side))
    panel.set_xlabel("workers")
    panel.set_ylabel("samples per second")
    panel.set_ylim(0)
    panel.set_xticks(numbers)
    panel.yaxis.set_major_formatter("{x:,.0f}")
    panel.grid(alpha=0.3)
    panel.legend()
    figure.savefig(path, metadata={"Date": None})


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up so that equal results give equal files."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "wids"
    from matplotlib import pyplot as plt

    return plt


def number_powers(axis: Any, *digits: int) -> None:
    """Write plain numbers along a logarithmic axis, at these multiples of each power of ten (the power alone if none are given)."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=digits or (1,), numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def line(side: str) -> dict[str, Any]:
    """Return the style of a side's line."""
    return {"linewidth": 2.5 if side == "this" else 1, "color": COLOURS[side]}


def cold(results: dict[str, dict[str, dict[str, list[float]]]], _: Path) -> list[str]:
    """Files that are not in the page cache (`make bench-cold`)."""
    lines = [
        "## Files that are not in memory",
        "",
        (
            "`make bench-cold`: µs per sample, and in brackets the bytes read from disk per byte of the pages that hold the samples. Batches, and "
            "samples of 64 KiB and more, are requested with `MADV_WILLNEED` before they are touched. Small samples that are read one at a time are "
            "left to the system's readahead, which also reads what is around each, as much as `read_ahead_kb` says. So a DataLoader should read "
            "whole batches, as torch's does."
        ),
    ]
    for size, orders in results.items():
        sides = list(next(iter(orders.values())))
        rows = [
            [order, *(f"{found[side][0]:,.0f} ({found[side][1]:.2f}&nbsp;B)" for side in sides)]
            for order, found in orders.items()
        ]
        lines += ["", f"Samples of {int(size):,} B:", "", *table(["", *sides], rows)]
    return lines


def decoding(results: dict[str, dict[str, dict[str, float]]], _: Path) -> list[str]:
    """JPEGs by decoder, form and size (`make bench-decode`)."""
    ways = list(next(iter(results.values())))
    rows = []
    for way in ways:
        cells = []
        for found in results.values():
            difference = f", differs by {found[way]['difference']:.2f}" if "difference" in found[way] else ""
            cells.append(f"{found[way]['us']:,.0f} ({found[way]['us'] / found['load']['us']:.2f}x{difference})")
        rows.append([way, *cells])
    return [
        "## Decoding JPEGs",
        "",
        (
            "`make bench-decode`: µs per image, in brackets as a multiple of Pillow's own loading. Where the image is scaled, the mean difference from "
            "the whole image decoded and then scaled is added, in levels of 256. `simplejpeg` gives the same pixels as Pillow. torchvision's decoder "
            "took longer than simplejpeg when it was tried, and its makers have deprecated it, so it is not offered."
        ),
        "",
        *table(["", *results], rows),
    ]


def memory(results: dict[str, dict[str, int]], _: Path) -> list[str]:
    """Memory that belongs to one worker alone (`make bench-memory`)."""
    rows = [
        [
            context,
            f"{found['bare'] / 1e6:.1f}",
            f"{found['own'] / 1e6:.1f}",
            f"{(found['own'] - found['bare']) / 1e6:.1f}",
            f"{found['mapped'] / 1e6:,.0f}",
        ]
        for context, found in results.items()
    ]
    return [
        "## Memory of a worker",
        "",
        (
            "`make bench-memory`: a DataLoader worker's private memory without files, in MB, after 10,000 samples from 100 shards of 50,000 "
            "members, against a worker that reads no files; and the size of the shards that it maps, in MB, whose pages all workers share."
        ),
        "",
        *table(["start method", "without reading", "reading", "difference", "mapped"], rows),
    ]
