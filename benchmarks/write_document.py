"""Write docs/benchmarks.md, its plots and README's figures from the results of the benchmarks; run by `make bench`."""

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

from corpus import KINDS, OUT, ROOT
from document_sections import NAMES, label, number_powers, plain, pyplot, sections
from random_access import ROUNDS
from sides import FLOORS, OURS, PEERS, like

from wids.words import counted

DOCS = ROOT / "docs"
README = ROOT / "README.md"
README_FIGURES = re.compile(r"(<!-- figures:[^\n]*-->\n).*?(<!-- end of figures -->)", re.DOTALL)
PACKAGES = {"mosaicml": "mosaicml-streaming", "energon": "megatron-energon"}
COLUMNS = {
    "random": "one at random, µs",
    "again": "the same again and again, µs",
    "in order": "one in order, µs",
    "batch": "batch of 256, µs a sample",
    "view": "`view` at random, µs",
    "first": "open and read one, ms",
    "next shard": "first of another shard, ms",
}


def main() -> None:
    """Write the page, the plot and README's figures."""
    results = json.loads((OUT / "random_access.json").read_text())
    (DOCS / "images").mkdir(exist_ok=True)
    against_peers = {kind: rows for kind, rows in results.items() if kind != "one"}
    draw(against_peers, DOCS / "images" / "random_access.svg")
    (DOCS / "benchmarks.md").write_text(page(results), encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(README_FIGURES.sub(rf"\1{summary(against_peers)}\2", readme), encoding="utf-8")


def summary(results: dict[str, dict[str, dict[str, float]]]) -> str:
    """Return README's figures: µs for one sample at random, all kinds of data side by side."""
    lines = [
        (
            "Time to read one random sample from memory, in µs. `read(i)` returns bytes, as the peers do; `dataset[i]` returns streams, the key and the place, as wids "
            "0.1.11 does. The floors are loops written by hand that only slice, or make such streams; memory limits all of them. For the method and more figures, see [docs/benchmarks.md](docs/benchmarks.md)."
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
        "# Benchmarks",
        "",
        "`make bench` measures all tables with peers in one run and writes this page; the other sections name their commands. "
        f"On {os.cpu_count()} cores, Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}. Each figure is the median of "
        f"{ROUNDS} fresh processes, in which all sides take turns; files are in memory. The samples are bytes on all sides and were compared "
        "before anything was timed. wids 0.1.11, webshart and Megatron-Energon read the same tars; the others read copies in formats of "
        "their own. Peers: " + ", ".join(describe(side) for side in NAMES if side not in {*OURS, *FLOORS}) + ".",
        "",
        (
            "`read(i)` returns bytes, as the peers do; `dataset[i]` returns streams, the key and the sample's place, as that of wids 0.1.11 does. "
            "The *floor* is a loop that only slices: offsets in a list, one slice of the map per member, a dictionary. "
            "The *floor of streams* makes what `dataset[i]` returns, in one loop without checks or calls to wids. "
            "In brackets: the figure as a multiple of that of wids: of `dataset[i]` for wids 0.1.11 and the floor of streams, of `read(i)` for all others."
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
        parts += [table_row(side, rows[side], rows[like(side)]) for side in NAMES if side in rows]
    parts += ["", *compare(results)]
    return "\n".join([*parts, *sections(DOCS / "images")]) + "\n"


def compare(results: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """Return the section on aims: the ratios aimed at, the ratios measured, and what bounds those that fall short."""
    peers = [*PEERS, "wids 0.1.11"]
    rows: list[tuple[str, list[float], list[float]]] = []
    against_peers = {kind: sides for kind, sides in results.items() if kind != "one"}

    def ask(what: str, figure: str, ours: str, theirs: list[str], *least: float) -> None:
        ratios = [
            min(sides[side][figure] for side in theirs if figure in sides.get(side, {})) / sides[ours][figure]
            for sides in against_peers.values()
        ]
        rows.append((what, ratios, list(least) * (len(ratios) if len(least) == 1 else 1)))

    ask("`read(i)` at random: the best peer's time", "random", "this", peers, 3, 2, 3)
    ask("the floor at random: the best peer's time", "random", "floor", peers, 3, 2, 3)
    ask("`read(i)` in order: LitData's time", "in order", "this", ["litdata"], 1.5)
    ask("a batch of `read(i)`: the best peer's time", "batch", "this", peers, 2)
    ask("`__getitems__`: the best peer's time", "batch", "streams", peers, 2)
    ask("the same, of the floor of streams", "batch", "stream floor", peers, 2)
    ask("`view(i)` at random: the floor's time", "view", "this", ["view floor"], 0.5)
    kinds = list(against_peers)
    lines = [
        "## Aims and limits",
        "",
        "The time of another reader as a multiple of that of wids (in the second row, of the floor's), with the minimum aim in brackets:",
        "",
        "| | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * len(kinds),
        *(
            f"| {what} | "
            + " | ".join(f"{ratio:.2f} ({least:g})" for ratio, least in zip(ratios, leasts, strict=True))
            + " |"
            for what, ratios, leasts in rows
        ),
    ]
    ratio = results["many"]["this"]["random"] / results["one"]["this"]["random"]
    return [
        *lines,
        "",
        (
            "Reading a random sample is limited by memory: the floor, which only slices and makes a dictionary, is no faster, and reading the same 3,000 "
            "samples repeatedly, until the processor's caches hold them, takes considerably less. "
            "`dataset[i]` costs more than `read(i)`, because it makes a stream of each field, decodes the key and adds the sample's place. "
            "`__getitems__` returns such samples, HF datasets dictionaries of bytes. Making the samples is what takes the time: written out by hand, "
            "the loop is not twice as fast as HF datasets either. Each side has pickled one batch before its batches are timed, as "
            "DataLoader workers do to send it: in a process that never freed a large block, malloc returns the memory of each batch to the system "
            "and gets it again, page by page, which costs most for large samples."
        ),
        "",
        f"`one` is `many` in a single shard: a sample of a hundred shards takes {ratio:.2f} times as long (1.5 at most).",
    ]


def table_row(side: str, figures: dict[str, float], ours: dict[str, float]) -> str:
    """Return one side's row."""
    cells = []
    for figure in COLUMNS:
        value = figures.get(figure)
        ratio = "" if value is None or side in OURS or figure not in ours else f" ({value / ours[figure]:.1f}x)"
        cells.append("" if value is None else f"{format_figure(value)}{ratio}")
    return f"| {label(side)} | " + " | ".join(cells) + " |"


def format_figure(value: float) -> str:
    """Return a figure with three digits; from 1,000 on without decimals."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def describe_kind(kind: str) -> str:
    """Return a description of one kind of data."""
    shards, count, fields = KINDS[kind]
    return f"{counted(shards, 'shard')} of {count:,} samples, " + " + ".join(f"{size:,} B" for size in fields.values())


def describe(side: str) -> str:
    """Return a peer's name with its version."""
    if side == "wids 0.1.11":
        return side
    try:
        return f"{NAMES[side]} {version(PACKAGES.get(side, side))}"
    except PackageNotFoundError:
        return f"{NAMES[side]} (not installed)"


def draw(results: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Draw the time for one sample at random, one panel for each kind of data."""
    plt = pyplot()
    # One panel below the other, so that they can be read on a phone.
    figure, panels = plt.subplots(len(results), 1, figsize=(6, 2.8 * len(results)), constrained_layout={"h_pad": 0.1})
    for panel, (kind, rows) in zip(panels, results.items(), strict=True):
        sides = [side for side in reversed(NAMES) if "random" in rows.get(side, {})]
        values = [rows[side]["random"] for side in sides]
        colours = ["#1f77b4" if side in OURS else "#999999" for side in sides]
        bars: Any = panel.barh([plain(side) for side in sides], values, color=colours)
        panel.bar_label(bars, [format_figure(value) for value in values], padding=3)
        panel.set_xscale("log")
        number_powers(panel.xaxis)
        panel.set_xlim(min(values) / 2, max(values) * 6)
        panel.set_title(describe_kind(kind))
    panels[-1].set_xlabel("µs for one sample at random")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
