"""Two methods on the same draws: differences draw by draw, and whether they are more than chance.

Every method of an experiment sees the same draws of the data, so that what makes one draw harder
than another cancels in the difference. Intervals are Student's, at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

# Accuracies that several experiments compare, with the words of their tables.
ACCURACIES = {
    "minority_accuracy": "minority",
    "balanced_accuracy": "balanced",
    "accuracy": "overall",
}
STARS = "* the 95 % interval of the mean leaves 0 out"
_CONFIDENCE = 0.95
_SAME = 1e-9  # relative: costs closer than this are the same


@dataclass(frozen=True)
class Difference:
    """Ours − theirs over paired draws: the mean, its standard error, and how often we are above."""

    mean: float
    error: float | None  # None where there is one draw only
    draws: int
    above: float  # the share of draws where ours is larger
    equal: float

    @property
    def verdict(self) -> str:
        """`above` or `below` where the 95 % interval of the mean leaves 0 out, else `open`."""
        if self.error is None:
            return "open"
        reach = _students(self.draws) * self.error
        if abs(self.mean) <= reach:
            return "open"
        return "above" if self.mean > 0 else "below"

    def starred(self, scale: float = 1.0, places: int = 4) -> str:
        """Mean ± standard error, with a star unless the verdict is open."""
        star = " " if self.verdict == "open" else "*"
        return f"{scale * self.mean:+.{places}f} ± {scale * (self.error or 0):.{places}f}{star}"


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Difference:
    """The paired difference; both hold one value per draw, in the same order.

    >>> found = difference([0.9, 0.8, 0.8, 0.9], [0.5, 0.5, 0.4, 0.4])
    >>> round(found.mean, 3), round(found.error, 3), found.above, found.verdict
    (0.4, 0.041, 1.0, 'above')
    """
    apart = [mine - other for mine, other in zip(ours, theirs, strict=True)]
    mean, spread = mean_and_spread(apart)
    assert mean is not None
    count = len(apart)
    return Difference(
        mean=mean,
        error=None if spread is None else spread / math.sqrt(count),
        draws=count,
        above=sum(value > 0 for value in apart) / count,
        equal=sum(value == 0 for value in apart) / count,
    )


def differences_table(
    title: str,
    pairs: Mapping[str, Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]],
    columns: Iterable[str],
) -> str:
    """Each way less its reference: pairs of rows of the same draw, two or more; else "".

    >>> rows = [({"cost": 2.0}, {"cost": 1.0}), ({"cost": 3.0}, {"cost": 1.0})]
    >>> print(differences_table("way − random", {"greedy": rows, "other": rows[:1]}, ["cost"]))
    way − random  seeds              cost
    greedy            2  +1.5000 ± 0.5000
    """
    shown = {way: both for way, both in pairs.items() if len(both) > 1}
    if not shown:
        return ""
    table = {title: list(shown), "seeds": [str(len(both)) for both in shown.values()]}
    for column in columns:
        table[column] = [
            difference(
                [ours[column] for ours, _ in both], [row[column] for _, row in both]
            ).starred()
            for both in shown.values()
        ]
    return aligned(table)


def mean_text(values: Sequence[float]) -> str:
    """Mean ± standard deviation, to four places; one value has blanks for the latter."""
    mean, spread = mean_and_spread(values)
    return f"{mean:.4f}" + (" " * 9 if spread is None else f" ± {spread:.4f}")


def mean_and_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and the ends of its 95 % interval; with one value, all three are that value.

    >>> [round(value, 3) for value in mean_and_interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    mean, spread = mean_and_spread(values)
    assert mean is not None
    reach = 0.0 if spread is None else _students(len(values)) * spread / math.sqrt(len(values))
    return mean, mean - reach, mean + reach


def by(rows: Iterable[Mapping[str, Any]], *columns: str) -> dict[tuple[Any, ...], list[Any]]:
    """Rows that agree in these columns, together; groups in the order of their first row.

    >>> by([{"k": 1, "cost": 3}, {"k": 2, "cost": 2}, {"k": 1, "cost": 1}], "k")[(1,)]
    [{'k': 1, 'cost': 3}, {'k': 1, 'cost': 1}]
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


def not_lowest(
    rows: Iterable[Mapping[str, Any]], method: Hashable, *unit: str, column: str = "cost"
) -> list[tuple[tuple[Any, ...], str, float]]:
    """Units in which another method has a lower value: the unit, the lowest one, by which share.

    >>> rows = [{"seed": 0, "method": name, "cost": cost} for name, cost in (("a", 2), ("b", 1.9))]
    >>> not_lowest(rows, "a", "seed")
    [((0,), 'b', 0.050000000000000044)]
    """
    found = []
    for key, together in by(rows, *unit).items():
        own = min(row[column] for row in together if row["method"] == method)
        best = min(together, key=lambda row: row[column])
        if best[column] < own * (1 - _SAME):
            found.append((key, str(best["method"]), 1 - best[column] / own))
    return found


def _students(count: int) -> float:
    from scipy.special import stdtrit  # which loads in a blink, unlike scipy.stats

    return float(stdtrit(count - 1, 0.5 + _CONFIDENCE / 2))
