"""Columns of a table on the page: how each is distributed, and which values are unusual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, is_table
from uniproto.data.columns import arrow_table, is_numeric
from uniproto.features.column_values import (
    MISSING,
    as_days,
    day_numbers,
    levels_of,
    plain_column,
    plain_numbers,
)
from uniproto.report.words import LONGEST_NAME, cut, figure

UNUSUAL = 4.0  # bits: as rare as one row of sixteen
_BINS = 12
_FIRST_YEAR, _LAST_YEAR = 1500, 2200  # whole numbers between these are written like years
_ID = "looks like an id"  # what a preparation says of such columns
_MOST_LEVELS = 8  # drawn, besides the others together
_MOST_DISTINCT = 60  # texts beyond are names, which have no distribution to look at
_MOST_CHARTS = 40
_WIDEST_ARRAY = 24  # features of an array that are looked at one by one


@dataclass(frozen=True)
class Bar:
    """A range of values or a level: its share of the target's weight, and of the prototypes."""

    name: str
    target: float
    prototypes: float


@dataclass(frozen=True)
class ColumnChart:
    """How a column is distributed, and what became of it when rows were compared."""

    name: str
    became: str
    bars: list[Bar]
    words: str
    ordered: bool  # ranges of numbers or dates, rather than levels


class ColumnValues:
    """The values of one column: numbers, or texts, of all targets and of the prototypes.

    A target counts with its weight; prototypes are equal.
    """

    def __init__(
        self,
        target: pa.ChunkedArray,
        prototypes: pa.ChunkedArray,
        name: str,
        weights: NDArray[np.float64],
    ) -> None:
        self.name = name
        self.weights = weights / weights.sum()
        self.is_date = as_days(target) is not None
        self.ordered = self.is_date or (
            is_numeric(target.type) and not pa.types.is_boolean(target.type)
        )
        if self.ordered:
            read = day_numbers if self.is_date else lambda values: plain_numbers(values, name)
            self.target, self.prototypes = read(target), read(prototypes)
            missing = np.isnan(self.target)
            order = np.argsort(self.target[~missing], kind="stable")
            self.known = self.target[~missing][order]
            self.up_to = np.cumsum(self.weights[~missing][order])
            self.gaps = float(self.weights[missing].sum())
            self.are_years = len(self.known) > 0 and bool(
                (self.known == np.round(self.known)).all()
                and self.known[0] >= _FIRST_YEAR
                and self.known[-1] <= _LAST_YEAR
            )
        else:
            names, places = levels_of(target, name)
            self.target = np.array(names, object)[places]
            levels, chosen = levels_of(prototypes, name)
            self.prototypes = np.array(levels, object)[chosen]
            # Sums of rounded weights: levels that are as frequent stay so.
            shares = np.bincount(places, self.weights, minlength=len(names)).round(12)
            self.shares = dict(zip(names, shares.tolist(), strict=True))

    @property
    def is_distributed(self) -> bool:
        """Whether there is something to look at: not names, and not one value."""
        if self.ordered:
            return len(self.known) > 0 and self.known[0] < self.known[-1]
        return 1 < len(self.shares) <= _MOST_DISTINCT

    def surprise(self, place: int) -> float:
        """How unusual a prototype's value is, in bits; negative where that has no meaning."""
        if not self.is_distributed:
            return -1.0
        least = 1 / (len(self.target) + 1)
        value = self.prototypes[place]
        if not self.ordered:
            share = self.shares.get(value, 0.0)
        elif np.isnan(value):
            share = self.gaps
        else:
            below = self._share_before(np.searchsorted(self.known, value, "right"))
            above = 1 - self._share_before(np.searchsorted(self.known, value, "left"))
            share = min(1.0, 2 * min(below, above))
        return float(-np.log2(max(share, least)))

    def _share_before(self, place: np.intp) -> float:
        """The share of the known values that come before a place of their order."""
        return 0.0 if place == 0 else float(self.up_to[place - 1] / self.up_to[-1])

    def _quantiles(self, shares: Sequence[float]) -> NDArray[np.float64]:
        if not are_uneven(self.weights):
            return np.asarray(np.quantile(self.known, shares))
        places = np.searchsorted(self.up_to, np.asarray(shares) * self.up_to[-1])
        return self.known[np.minimum(places, len(self.known) - 1)]

    def chart(self, became: str) -> ColumnChart:
        bars = self._ranges() if self.ordered else self._levels()
        return ColumnChart(cut(self.name, LONGEST_NAME), became, bars, self._words(), self.ordered)

    def _ranges(self) -> list[Bar]:
        low, high = self._quantiles((0.005, 0.995))
        if low == high:
            low, high = self.known[0], self.known[-1]
        whole = bool((self.known == np.round(self.known)).all()) and not self.is_date
        single = bool(whole and high - low < _BINS)  # a bar for every number
        count = min(_BINS, int(high - low) + 1) if whole else _BINS
        edges = np.linspace(low, high + single, count + 1)
        equal = np.full(len(self.prototypes), 1 / len(self.prototypes))
        shares = [
            _histogram(self.target, self.weights, edges),
            _histogram(self.prototypes, equal, edges),
        ]
        ends = [self.known[0], *edges[1:-1], self.known[-1]]  # what lies beyond counts there, too
        if single:
            ends[-1] += 1
        bars = [
            Bar(self._range(ends[i], ends[i + 1] - single), *map(float, pair))
            for i, pair in enumerate(zip(*shares, strict=True))
        ]
        if self.gaps:
            missing = float(np.isnan(self.prototypes).mean())
            bars.append(Bar("missing", float(self.gaps), missing))
        return bars

    def _range(self, low: float, high: float) -> str:
        return self._shown(low) if low == high else f"{self._shown(low)} – {self._shown(high)}"

    def _levels(self) -> list[Bar]:
        ranked = sorted(self.shares, key=lambda name: (-self.shares[name], name))
        bars = [
            Bar(cut(name, 28), self.shares[name], float((self.prototypes == name).mean()))
            for name in ranked[:_MOST_LEVELS]
        ]
        if rest := ranked[_MOST_LEVELS:]:
            share = float(np.isin(self.prototypes.astype(str), rest).mean())
            bars.append(Bar(f"{len(rest)} others", sum(self.shares[name] for name in rest), share))
        return bars

    def _words(self) -> str:
        if not self.ordered:
            missing = self.shares.get(MISSING, 0.0)
            return f"{len(self.shares)} levels" + (f", {missing:.0%} missing" if missing else "")
        low, middle, high = (self._shown(each) for each in self._quantiles((0, 0.5, 1)))
        gaps = f", {self.gaps:.0%} missing" if self.gaps else ""
        return f"from {low} to {high}, half below {middle}{gaps}"

    def _shown(self, value: float) -> str:
        if self.is_date:
            return str(np.datetime64(0, "s") + np.timedelta64(round(value * 86_400), "s"))[:10]
        if self.are_years:
            return f"{value:.0f}"
        return f"{value:,.0f}" if value == round(value) else figure(float(value), 3)


def columns_of(
    source: Any, target: Any, rows: NDArray[np.int64], weights: NDArray[Any]
) -> dict[str, ColumnValues]:
    """The columns of both tables by name, as far as they can be looked at."""
    if not isinstance(source, pa.Table) or not isinstance(target, pa.Table):
        return {}
    counted = np.flatnonzero(weights > 0)
    chosen = source.take(rows)
    return {
        name: ColumnValues(
            plain_column(target.column(name)).take(counted),
            plain_column(chosen.column(name)),
            name,
            weights[counted],
        )
        for name in source.column_names
        if name in target.column_names and _can_be_read(source.schema.field(name).type)
    }


def charts_of(
    columns: Mapping[str, ColumnValues], became: Mapping[str, str], compared: Sequence[str]
) -> list[ColumnChart]:
    """A chart for every column that has a distribution, the compared ones first."""
    usual = {name: "compared as it is" for name in compared if name in columns}
    said = {
        name: became.get(name, usual.get(name, "not compared")) for name in {**usual, **columns}
    }
    shown = [name for name in said if columns[name].is_distributed and _ID not in said[name]]
    return [columns[name].chart(said[name]) for name in shown[:_MOST_CHARTS]]


def are_uneven(weights: NDArray[np.float64]) -> bool:
    """Whether some targets weigh more than others, by more than rounding."""
    return bool(np.ptp(weights) > 1e-9 * weights.max())


def _histogram(
    values: NDArray[np.float64], weights: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weight in each range; what lies beyond counts with the outermost."""
    known = ~np.isnan(values)
    inside = np.clip(values[known], edges[0], edges[-1])
    return np.histogram(inside, edges, weights=weights[known])[0]


def shown_table(values: Any) -> pa.Table | None:
    """A table of what was given, where it has columns that can be looked at one by one."""
    if is_table(values) and hasattr(values, "columns"):
        return arrow_table(values, "source")
    shape: Any = getattr(values, "shape", ())
    if len(shape) != 2 or shape[1] > _WIDEST_ARRAY or hasattr(values, "tocsr"):
        return None
    rows = as_matrix(values, "source")
    return pa.table({f"x{place}": np.asarray(rows[:, place]) for place in range(rows.shape[1])})


def _can_be_read(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    plain = not pa.types.is_nested(kind) and "binary" not in str(kind)
    return bool(plain and not pa.types.is_null(kind))
