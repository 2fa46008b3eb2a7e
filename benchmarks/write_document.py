"""Write docs/benchmarks.md, its plot and README's figures from what the benchmarks measured; run by `make bench`."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import random_access
from document_sections import sections

DOCS = random_access.ROOT / "docs"
README = random_access.ROOT / "README.md"
README_FIGURES = re.compile(r"(<!-- figures:[^\n]*-->\n).*?(<!-- end of figures -->)", re.DOTALL)
NAMES = {
    "this": "wids",
    "floor": "floor",
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
PACKAGES = {"mosaicml": "mosaicml-streaming", "energon": "megatron-energon"}
COLUMNS = {
    "random": "one at random, µs",
    "in order": "one in order, µs",
    "batch": "batch of 256, µs a sample",
    "view": "`view` at random, µs",
    "first": "open and read one, ms",
    "next shard": "first of another shard, ms",
}


def main() -> None:
    """Write the page, the plot and README's figures."""
    results = json.loads((random_access.OUT / "random_access.json").read_text())
    (DOCS / "images").mkdir(exist_ok=True)
    against_peers = {kind: rows for kind, rows in results.items() if kind != "one"}
    draw(against_peers, DOCS / "images" / "random_access.svg")
    (DOCS / "benchmarks.md").write_text(page(results), encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(README_FIGURES.sub(rf"\1{summary(against_peers)}\2", readme), encoding="utf-8")


def summary(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return README's figures: one sample at random, µs, all kinds side by side."""
    lines = [
        (
            "One sample at random, as bytes, from memory, in µs. The floor is the slices alone, made by hand. How it was measured, and "
            "the other figures: [docs/benchmarks.md](docs/benchmarks.md)."
        ),
        "",
        "| | " + " | ".join(describe_kind(kind) for kind in results) + " |",
        "|---|" + "---:|" * len(results),
    ]
    for side in NAMES:
        if not all("random" in rows.get(side, {}) for rows in results.values()):
            continue
        cells = [format_figure(rows[side]["random"]) for rows in results.values()]
        lines.append(f"| {label(side)} | " + " | ".join(cells) + " |")
    return "\n".join(["", *lines, "", ""])


def page(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return the whole page."""
    parts = [
        "# Figures",
        "",
        "Written by `make bench`; every figure on this page comes from one run of it, on "
        f"{os.cpu_count()} cores, Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}. Each is the median of "
        f"{random_access.ROUNDS} fresh processes, all sides in turn; files are in memory. The samples are bytes on all sides and were compared "
        "before anything was timed. wids 0.1.11 and webshart read the same tars; the others read copies in formats of "
        "their own. Peers: "
        + ", ".join(describe(side) for side in NAMES if side not in {"this", *random_access.FLOORS})
        + ".",
        "",
        (
            "The *floor* is what is left when everything but the slices and the dictionary is left out: offsets in a list, one slice of the map "
            "per member. Behind each figure stands how many times as much it is as that of wids."
        ),
        "",
        "![Cost of one sample at random](images/random_access.svg)",
    ]
    for kind, rows in results.items():
        parts += [
            "",
            f"## {kind}: {describe_kind(kind)}",
            "",
            "| | " + " | ".join(COLUMNS.values()) + " |",
            "|---|" + "---:|" * len(COLUMNS),
        ]
        parts += [table_row(side, rows[side], rows["this"]) for side in NAMES if side in rows]
    parts += [
        "",
        "## What bounds them, and what is not reached",
        "",
        (
            "A sample at random is bound by the memory, not by this package: the floor, which does nothing but slice and make a dictionary, is "
            f"{floor_ratio(results, 'webshart')} times as fast as webshart on the same tars, so that three times its speed cannot be had by "
            "slicing maps in Python. In order the floor bounds the distance to LitData in the same way "
            f"({floor_ratio(results, 'litdata', 'in order')} times). A batch of samples is as fast as the samples one by one: each is an object of its "
            "own, where HF datasets gives columns. Large samples take longer in a batch than alone, because malloc gives the memory of the last batch "
            "back to the system and gets it anew, page by page; `MALLOC_TRIM_THRESHOLD_=268435456 MALLOC_TOP_PAD_=67108864 make bench` shows the same "
            "without it. `one` is `many` in a single shard: a hundred shards cost hardly more than one."
        ),
    ]
    return "\n".join([*parts, *sections(DOCS / "images")]) + "\n"


def floor_ratio(results: dict[str, dict[str, dict[str, float]]], peer: str, figure: str = "random") -> str:
    """Return how many times as fast as a peer the floor is, over the kinds of data: the least and the most."""
    ratios = [rows[peer][figure] / rows["floor"][figure] for rows in results.values() if peer in rows]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def table_row(side: str, figures: dict[str, float], ours: dict[str, float]) -> str:
    """Return one side's row."""
    cells = []
    for figure in COLUMNS:
        value = figures.get(figure)
        ratio = "" if value is None or side == "this" or figure not in ours else f" ({value / ours[figure]:.1f}x)"
        cells.append("" if value is None else f"{format_figure(value)}{ratio}")
    return f"| {label(side)} | " + " | ".join(cells) + " |"


def label(side: str) -> str:
    """Return a side's name in a table."""
    return f"**{NAMES[side]}**" if side == "this" else NAMES[side]


def format_figure(value: float) -> str:
    """Return a figure with three digits, or without decimals."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def describe_kind(kind: str) -> str:
    """Return what one kind of data is."""
    shards, count, fields = random_access.KINDS[kind]
    return f"{shards} shards of {count:,} samples, " + " + ".join(f"{size:,} B" for size in fields.values())


def describe(side: str) -> str:
    """Return a peer's name with its version."""
    if side == "wids 0.1.11":
        return side
    try:
        return f"{NAMES[side]} {version(PACKAGES.get(side, side))}"
    except PackageNotFoundError:
        return f"{NAMES[side]} (not installed)"


def draw(results: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the cost of one sample at random, a panel for each kind."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "wids"  # equal results give equal files
    from matplotlib import pyplot as plt

    # One below the other, so that they can be read on a phone.
    figure, panels = plt.subplots(len(results), 1, figsize=(6, 2.6 * len(results)), constrained_layout=True)
    for panel, (kind, rows) in zip(panels, results.items(), strict=True):
        sides = [side for side in reversed(NAMES) if "random" in rows.get(side, {})]
        values = [rows[side]["random"] for side in sides]
        colours = ["#1f77b4" if side == "this" else "#999999" for side in sides]
        bars: Any = panel.barh([NAMES[side] for side in sides], values, color=colours)
        panel.bar_label(bars, [format_figure(value) for value in values], padding=3)
        panel.set_xscale("log")
        panel.set_xlim(1, max(values) * 6)
        panel.set_title(describe_kind(kind))
    panels[-1].set_xlabel("µs for one sample at random")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
