"""The bar that every tool shows of its work: on a terminal only, and only when the work takes more than a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")

_DELAY_SECONDS = 1
_FORMAT = "{l_bar}{bar}| {elapsed}<{remaining}, {n_fmt}/{total_fmt} {unit}s{postfix}"
"""What matters least comes last: a narrow terminal cuts the end off."""


def show_progress(
    things: Iterable[T],
    label: str,
    total: int | None = None,
    *,
    unit: str = "shard",
    num_done: int = 0,
    is_shown: bool,
) -> Iterable[T]:
    """Return the same things, with a bar that counts them as they are taken.

    Args:
        things: Taken one by one.
        label: What is done with them, as `"indexing"`.
        total: Number of things, those that were done before included; None for the length of `things`.
        unit: What one of them is called.
        num_done: Things that were done before; the bar begins there.
        is_shown: Show the bar, where stderr is a terminal.
    """
    bar: Iterable[T] = make_bar(label, total, unit=unit, num_done=num_done, is_shown=is_shown, things=things)
    return bar


def make_bar(
    label: str, total: int | None, *, unit: str = "shard", num_done: int = 0, is_shown: bool, things: Any = None
) -> Any:
    """Return a tqdm bar that its caller moves on and closes; arguments are those of `show_progress`."""
    return tqdm(
        things,
        label,
        total,
        unit=unit,
        bar_format=_FORMAT,
        initial=num_done,
        delay=_DELAY_SECONDS,
        dynamic_ncols=True,
        disable=None if is_shown else True,  # None has tqdm ask whether stderr is a terminal
    )
