"""Distributions of the columns of a table, and unusual values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, is_table
from uniproto.data.columns import arrow_table, is_numeric
from uniproto.features.column_values import MISSING, as_days, levels_of, plain_column, without
from uniproto.features.preparation import Preparation, PreparedColumn
from uniproto.geometry.distances import L1_DISTANCE, SQUARES
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import is_sparse
from uniproto.problem.problem import Problem
from uniproto.report.words import LONGEST_NAME, cut, figure, percent

UNUSUAL = 4.0  # bits: as rare as one row of sixteen
_BINS = 12
_IN_ONE_BIN = 0.6  # of the weight: from there on, bins grow in width
_ARCS_AT_ONCE = 65_536
_MOST_ABSENT = 5  # levels named in a sentence
_FIRST_YEAR, _LAST_YEAR = 1500, 2200  # whole numbers between these are written like years
_ID = "looks like an id"  # in a preparation's reason
_MOST_LEVELS = 8  # drawn, besides the others together
_MOST_DISTINCT = 60  # beyond, strings are names without a distribution
_MOST_CHARTS = 40
_WIDEST_ARRAY = 24  # features of an array that are shown as columns


@dataclass(frozen=True)
class Bar:
    """A range of values or a level: its share of the target's weight, and of the prototypes."""

    name: str
    target: float
    prototypes: float
    due: bool = False  # a level whose share of the target is above that of one prototype

    @property
    def absent(self) -> bool:
        return self.due and not self.prototypes


@dataclass(frozen=True)
class ColumnChart:
    """The distribution of a column, and how it was prepared."""

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
        prepared: PreparedColumn | None = None,
    ) -> None:
        self.name = name
        self.weights = weights / weights.sum()
        if prepared is None or prepared.kind == "ordered":
            is_date = as_days(target) is not None
            is_number = is_numeric(target.type) and not pa.types.is_boolean(target.type)
            kind = "date" if is_date else "number" if is_number else "category"
            prepared = PreparedColumn(name, kind)
        self.is_date, self.ordered = prepared.kind == "date", prepared.kind != "category"
        if self.ordered:
            read = prepared.numbers
            self.target, self.prototypes = (
                read(without(values, prepared.missing)) for values in (target, prototypes)
            )
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
            # Sums of rounded weights, so that equally frequent levels stay equal.
            shares = np.bincount(places, self.weights, minlength=len(names)).round(12)
            self.shares = dict(zip(names, shares.tolist(), strict=True))

    growing = False  # whether bins grow in width

    @property
    def is_distributed(self) -> bool:
        """Whether the column has a distribution: more than one value, and not names."""
        if self.ordered:
            return len(self.known) > 0 and self.known[0] < self.known[-1]
        return 1 < len(self.shares) <= _MOST_DISTINCT

    def surprise(self, place: int) -> float:
        """How unusual a prototype's value is, in bits; negative if undefined."""
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
        """The weight of the sorted known values before a position."""
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
        if not single and _histogram(self.target, self.weights, edges).max() > _IN_ONE_BIN:
            edges, self.growing = _growing(self.known, low, high, count + 1), True
        self.edges = edges
        equal = np.full(len(self.prototypes), 1 / len(self.prototypes))
        shares = [
            _histogram(self.target, self.weights, edges),
            _histogram(self.prototypes, equal, edges),
        ]
        ends = [self.known[0], *edges[1:-1], self.known[-1]]  # outermost bins are open-ended
        if single:
            ends[-1] += 1
        bars = [
            Bar(self._range(ends[i], ends[i + 1] - single), float(of_targets), float(of_ours))
            for i, (of_targets, of_ours) in enumerate(zip(*shares, strict=True))
        ]
        if self.gaps:
            missing = float(np.isnan(self.prototypes).mean())
            bars.append(Bar("missing", float(self.gaps), missing))
        return bars

    def bars_of(self, targets: NDArray[np.intp]) -> tuple[list[int | None], list[int | None]]:
        """The bar of each of these targets, and of each prototype."""
        found = []
        for values in (self.target[targets], self.prototypes):
            if self.ordered:
                at = np.searchsorted(self.edges, values, "right") - 1
                at = np.clip(at, 0, len(self.edges) - 2)
                gaps = np.isnan(values)
                found.append([None if gap else int(n) for gap, n in zip(gaps, at, strict=True)])
            else:
                place = {name: min(n, _MOST_LEVELS) for n, name in enumerate(self.ranked)}
                found.append([place.get(value) for value in values])
        return found[0], found[1]

    def _range(self, low: float, high: float) -> str:
        return self._shown(low) if low == high else f"{self._shown(low)} – {self._shown(high)}"

    def _levels(self) -> list[Bar]:
        ranked = sorted(self.shares, key=lambda name: (-self.shares[name], name))
        self.ranked, equal = ranked, 1 / len(self.prototypes)
        bars = []
        for name in ranked[:_MOST_LEVELS]:
            share = float((self.prototypes == name).mean())
            bars.append(Bar(cut(name, 28), self.shares[name], share, self.shares[name] > equal))
        if rest := ranked[_MOST_LEVELS:]:
            share = float(np.isin(self.prototypes.astype(str), rest).mean())
            bars.append(Bar(f"{len(rest)} others", sum(self.shares[name] for name in rest), share))
        return bars

    def _words(self) -> str:
        if not self.ordered:
            missing = self.shares.get(MISSING, 0.0)
            gaps = f", {percent(missing)} missing" if missing else ""
            return f"{len(self.shares)} levels{gaps}"
        low, middle, high = (self._shown(each) for each in self._quantiles((0, 0.5, 1)))
        gaps = f", {percent(self.gaps)} missing" if self.gaps else ""
        scale = "; ranges grow to the right" if self.growing else ""
        return f"from {low} to {high}, half below {middle}{gaps}{scale}"

    def _shown(self, value: float) -> str:
        if self.is_date:
            return str(np.datetime64(0, "s") + np.timedelta64(round(value * 86_400), "s"))[:10]
        if self.are_years:
            return f"{value:.0f}"
        return f"{value:,.0f}" if value == round(value) else figure(float(value), 3)


def column_shares(
    problem: Problem, rows: NDArray[np.int64], plan: sp.csr_array, arcs: NDArray[np.float64]
) -> dict[str, float]:
    """The share of each column in the cost; empty if the cost is not a sum over columns."""
    costs: Any = problem.costs
    if not isinstance(costs, FeatureCosts) or is_sparse(costs.source, costs.target):
        return {}
    if costs.distance not in (SQUARES, L1_DISTANCE):
        return {}
    given, width = problem.given, costs.source.shape[1]
    names, widths = [f"column {number}" for number in range(width)], [1] * width
    if len(given.columns) == width:
        names = list(given.columns)
    if isinstance(given.preparation, Preparation):
        names = [column.name for column in given.preparation.columns]
        widths = [column.width for column in given.preparation.columns]
    if sum(widths) != width:
        return {}
    made = np.zeros(width)
    chosen = rows[np.repeat(np.arange(len(rows)), np.diff(plan.indptr))]
    for begin in range(0, len(chosen), _ARCS_AT_ONCE):
        part = slice(begin, begin + _ARCS_AT_ONCE)
        source, target = costs.source[chosen[part]], costs.target[plan.indices[part]]
        apart = np.abs(np.asarray(source, np.float64) - target)
        apart = apart if costs.distance is L1_DISTANCE else apart**2
        whole, paid = apart.sum(axis=1), plan.data[part] * arcs[part]
        made += np.divide(paid, whole, out=np.zeros_like(paid), where=whole > 0) @ apart
    if not made.sum() > 0:
        return {}
    shares = np.add.reduceat(made, np.cumsum([0, *widths[:-1]])) / made.sum()
    return dict(zip(names, shares.tolist(), strict=True))


def absent_levels(problem: Problem, rows: NDArray[np.int64]) -> list[tuple[str, str, float]]:
    """Levels with a share of the target above 1/k and no prototype: column, level and share."""
    prepared, costs = problem.given.preparation, problem.costs
    if not isinstance(prepared, Preparation) or not isinstance(costs, FeatureCosts):
        return []
    weights, begin = problem.target_weights, 0
    found = []
    for column in prepared.columns:
        end = begin + column.width
        if column.kind == "category":
            has = costs.target[:, begin:end] > 0
            shares = has.mean(axis=0) if weights is None else weights @ has
            chosen = (costs.source[rows, begin:end] > 0).any(axis=0)
            found += [
                (column.name, level, float(shares[at]))
                for at, level in enumerate(column.levels)
                if shares[at] > 1 / len(rows) and not chosen[at]
            ]
        begin = end
    return sorted(found, key=lambda each: -each[2])


def absence(levels: Sequence[tuple[str, str, float]]) -> str:
    """A sentence about levels without a prototype, with the remedy."""
    named = [f"{column} {level} ({share:.0%} of the targets)" for column, level, share in levels]
    more = f" and {len(named) - _MOST_ABSENT} more" if len(named) > _MOST_ABSENT else ""
    remedy = f"groups={levels[0][0]!r} gives each level its share"
    return f"{', '.join(named[:_MOST_ABSENT])}{more}; {remedy}"


def columns_of(
    source: Any,
    target: Any,
    rows: NDArray[np.int64],
    weights: NDArray[Any],
    prepared: Preparation | Any = None,
) -> dict[str, ColumnValues]:
    """The columns that both tables can show, by name."""
    known = {}
    if isinstance(prepared, Preparation):
        known = {each.name: each for each in prepared.columns if each.kind != "place"}
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
            known.get(name),
        )
        for name in source.column_names
        if name in target.column_names and _can_be_read(source.schema.field(name).type)
    }


def charts_of(
    columns: Mapping[str, ColumnValues],
    became: Mapping[str, str],
    compared: Sequence[str],
    shares: Mapping[str, float],
) -> list[ColumnChart]:
    """A chart for every column with a distribution, in order of their share in the cost."""
    usual = {name: "compared as it is" for name in compared if name in columns}
    words = {
        name: became.get(name, usual.get(name, "not compared")) for name in {**usual, **columns}
    }
    words |= {
        name: f"makes {percent(share)} of the cost; {words[name]}"
        for name, share in shares.items()
        if name in words
    }
    shown = [name for name in words if columns[name].is_distributed and _ID not in words[name]]
    shown.sort(key=lambda name: -shares.get(name, 0.0))
    return [columns[name].chart(words[name]) for name in shown[:_MOST_CHARTS]]


def are_uneven(weights: NDArray[np.float64]) -> bool:
    """Whether target weights differ by more than rounding."""
    return bool(np.ptp(weights) > 1e-9 * weights.max())


def _histogram(
    values: NDArray[np.float64], weights: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weight in each bin; the outermost bins include values beyond."""
    known = ~np.isnan(values)
    inside = np.clip(values[known], edges[0], edges[-1])
    return np.histogram(inside, edges, weights=weights[known])[0]


def _growing(
    known: NDArray[np.float64], low: float, high: float, count: int
) -> NDArray[np.float64]:
    """Edges of bins that are narrow where most values lie, and grow with the distance."""
    middle = float(np.median(known))
    distances = np.abs(known - middle)
    unit = float(np.median(distances[distances > 0]))
    first, last = np.arcsinh((low - middle) / unit), np.arcsinh((high - middle) / unit)
    return middle + unit * np.sinh(np.linspace(first, last, count))


def shown_table(values: Any) -> pa.Table | None:
    """The given rows as a table, if they have columns to show."""
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
