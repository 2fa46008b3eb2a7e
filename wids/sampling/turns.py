"""Decide which component takes each place of a mixture, so that in every prefix each has its share, to within one.

This is the chairman assignment problem. With `n` components, item `j` of a component with share `w` may be taken from
time `(j + 1/(2n-2)) / w` on, and must be taken by `(j + 1 - 1/(2n-2)) / w`. Taking at each time the available item with
the earliest deadline meets all deadlines, and no count is then ever more than `1 - 1/(2n-2)` away from its share.

Source: R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980), 323-330.
"""

from __future__ import annotations

import math
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def whole_shares(weights: Sequence[float]) -> list[int]:
    """Return weights as the smallest integers in the same proportion; a float counts as the decimal that it prints as.

    Raises:
        ValueError: A weight is negative or not a number, or all are 0.

    Examples:
        >>> whole_shares([0.3, 0.6, 0]), whole_shares([1, 2.5])
        ([1, 2, 0], [2, 5])
    """
    for place, weight in enumerate(weights):
        if isinstance(weight, bool) or not 0 <= float(weight) < math.inf:
            raise ValueError(f"weights[{place}] is {weight!r}; it must be a number of at least 0")
    exact = [Fraction(repr(weight.item() if hasattr(weight, "item") else weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    common = math.gcd(*whole)
    if common == 0:
        raise ValueError("all weights are 0; at least one must be positive")
    return [number // common for number in whole]


class Turns:
    """Deals out turns to components, in order.

    Args:
        shares: The share of each component: integers, at least 0, not all 0.

    Examples:
        >>> Turns([1, 2, 0]).take(6)
        [1, 0, 1, 1, 0, 1]
    """

    def __init__(self, shares: Sequence[int]) -> None:
        self._shares = list(shares)
        self._total = sum(shares)
        self._parts = max(1, 2 * sum(share > 0 for share in shares) - 2)
        self._place = 0
        self.counts = [0] * len(self._shares)
        self._begin(0)

    def seek(self, place: int) -> None:
        """Advance to a place at or after the present one; whole rounds, which hold exact shares, are skipped."""
        rounds = place // self._total
        if rounds > self._place // self._total:
            self._begin(rounds)
        self.take(place - self._place)

    def take(self, num_turns: int) -> list[int]:
        """Return the components that have the next `num_turns` turns."""
        turns = []
        waiting, ready = self._waiting, self._ready
        for place in range(self._place + 1, self._place + num_turns + 1):
            while waiting and waiting[0][0] <= place:
                heappush(ready, heappop(waiting)[1:])
            component = heappop(ready)[1]
            turns.append(component)
            self.counts[component] += 1
            heappush(waiting, self._window(component))
        self._place += num_turns
        return turns

    def _begin(self, rounds: int) -> None:
        self._place = rounds * self._total
        self.counts = [rounds * share for share in self._shares]
        self._ready: list[tuple[int, int]] = []
        self._waiting = [self._window(component) for component, share in enumerate(self._shares) if share]
        heapify(self._waiting)

    def _window(self, component: int) -> tuple[int, int, int]:
        """Return the earliest and the latest time of a component's next item, and the component."""
        done, unit = self.counts[component] * self._parts, self._parts * self._shares[component]
        if self._parts == 1:  # a single component
            return self.counts[component] + 1, self.counts[component] + 1, component
        return -(-(done + 1) * self._total // unit), (done + self._parts - 1) * self._total // unit, component
