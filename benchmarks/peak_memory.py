"""The peak memory of this process, as the kernel counts it: resident pages, those of mapped files among them."""

from __future__ import annotations

from pathlib import Path


def peak_megabytes() -> float:
    """Return the peak since this process started its program, or since `reset_peak`.

    `ru_maxrss` is not used: it begins with the peak of the parent process, and cannot be reset.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def reset_peak() -> None:
    """Make the present memory the peak."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
