"""Whether new rows are still like those that a selection represents, and where they differ.

Each number is given with what it is without drift, which halves of the old rows show: prototypes of
one half cost the other half more than their own. The test permutes old and new rows. Its level is
exact because nothing it looks at knows which rows are new: columns are prepared again on both
together, and the prototypes are of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import dense, take_rows
from uniproto.data.columns import arrow_table
from uniproto.errors import InvalidInputError
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import refitted
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.greedy import Greedy
from uniproto.problem.problem import Problem
from uniproto.report.columns import column_shares
from uniproto.report.targets import arc_costs
from uniproto.report.words import counted, figure
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import transport

if TYPE_CHECKING:
    from uniproto.features.compared_rows import Given
    from uniproto.selection.selection import Selection

LEVEL = 0.05  # of the test
_SAMPLED = 5_000  # rows of either set that are compared
_SPLITS = 10  # into halves
_PERMUTATIONS = 499
_FAR = 0.99  # of the old rows are nearer
_CLEAR = 3.0  # standard deviations beyond which a part is named
_MOST_NAMED = 5
_FEWEST = 20  # rows of either set
_COARSE = 8  # cells of the test, next to one per prototype
_SINGULAR = 1e-6  # of the largest: directions in which distances hardly vary

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Compared:
    """A number for the old rows and for the new ones, and what it is without drift.

    `usual` is the mean of what `new` is for one half of the old rows, when the other half takes the
    place of all of them, and `spread` the standard deviation.
    """

    old: float
    new: float
    usual: float
    spread: float

    @property
    def is_clear(self) -> bool:
        """Whether the new number lies beyond what halves of the old rows explain."""
        return abs(self.new - self.usual) > _CLEAR * self.spread


@dataclass(frozen=True)
class Drift:
    """What `Selection.drift` found.

    `p_value` is that of a test by permutations of old and new rows; below 0.05 is an `alarm`.
    `cost` is what the prototypes cost a row of either set, `far` the share of rows farther from
    their nearest prototype than 99 % of the old rows are. `shares` are the shares of rows nearest
    to each prototype, by its row of the source, and `columns` what each column makes of the cost.
    """

    p_value: float
    cost: Compared
    far: Compared
    shares: Mapping[int, Compared]
    columns: Mapping[str, Compared]
    rows: tuple[int, int]

    @property
    def alarm(self) -> bool:
        """Whether the new rows differ from the old ones, at a level of 5 %."""
        return self.p_value <= LEVEL

    def __str__(self) -> str:
        old, new = self.rows
        cost, far = self.cost, self.far
        answer = "drift" if self.alarm else "no drift found"
        lines = [
            f"{answer} (p = {self.p_value:.3f} by {_PERMUTATIONS} permutations of {old:,} old and "
            f"{new:,} new rows)",
            f"  cost        {figure(cost.new)} for the new rows, {figure(cost.old)} for the old "
            f"ones; without drift {figure(cost.usual)} ± {figure(cost.spread, 2)}",
            f"  far rows    {far.new:.1%} are farther from their prototype than 99% of the old "
            f"ones; without drift {far.usual:.1%} ± {far.spread:.1%}",
        ]
        lines += self._parts("prototypes", {f"row {row}": of for row, of in self.shares.items()})
        if self.columns:
            lines += self._parts("columns", self.columns)
        return "\n".join(lines)

    def _parts(self, title: str, parts: Mapping[str, Compared]) -> Iterator[str]:
        """The parts that differ most, as far as that is clear."""
        shares = title == "prototypes"
        clear = [name for name in parts if parts[name].is_clear]
        clear.sort(key=lambda name: -abs(parts[name].new - parts[name].usual))
        if not clear:
            what = "share of the rows" if shares else "part of the cost"
            yield f"  {title:12}no {what} differs by more than {_CLEAR:g} standard deviations"
        for place, name in enumerate(clear[:_MOST_NAMED]):
            of, before, now = parts[name], "of the cost before", "now"
            old, new, usual, spread = (
                figure(each, 3) for each in (of.old, of.new, of.usual, of.spread)
            )
            if shares:
                before, now = "of the old rows", "of the new ones"
                old, new, usual, spread = (
                    f"{each:.1%}" for each in (of.old, of.new, of.usual, of.spread)
                )
            words = f"{old} {before}, {new} {now} (without drift {usual} ± {spread})"
            yield f"  {'' if place else title:12}{name}: {words}"
        if (more := len(clear) - _MOST_NAMED) > 0:
            yield f"  {'':12}and {counted(more, 'other')}"


def drift(selection: Selection, problem: Problem, new: Problem, *, seed: int = 0) -> Drift:
    """How the target of a new problem differs from that of the selection's own."""
    both, metric = (problem, new), selection.details.measure
    if not all(isinstance(each.costs, FeatureCosts) for each in both):
        raise InvalidInputError(
            f"Rows of metric={selection.details.metric!r} have no features to compare them by."
        )
    if min(problem.n, new.n) < _FEWEST:
        raise InvalidInputError(
            f"must have at least {_FEWEST} rows, and so must the target so far (got {new.n} and "
            f"{problem.n}).",
            parameter="source",
        )
    draw = np.random.default_rng([selection.details.seed, seed, 8])
    parts = [np.sort(draw.permutation(each.n)[:_SAMPLED]) for each in both]
    old, rows = (
        dense(each.costs.originals[1][part], np.float64)  # type: ignore[attr-defined]
        for each, part in zip(both, parts, strict=True)
    )
    costs: Any = problem.costs
    ask = _Costs(metric, problem.given, dense(costs.originals[0][selection.indices], np.float64))
    found = _compared(ask, selection.indices, old, rows, draw)
    first, second = _prepared_together(both, parts) or (old, rows)
    return replace(found, p_value=p_value(first, second, metric, selection.k, draw))


def _compared(
    ask: _Costs, indices: NDArray[np.int64], old: Numbers, new: Numbers, draw: np.random.Generator
) -> Drift:
    """Everything but the test."""
    k, before, after = len(indices), ask.measured(old), ask.measured(new)
    names, ratios, fars, apart = list(before.columns), [], [], []
    for _ in range(_SPLITS):
        order, half = draw.permutation(len(old)), len(old) // 2
        first, second = old[order[:half]], old[order[half:][: len(new)]]
        of_first = replace(ask, prototypes=_chosen(first, max(1, k // 2), ask.metric))
        own, other = of_first.measured(first), of_first.measured(second)
        ratios.append(other.cost / own.cost if own.cost > 0 else 1.0)
        fars.append(float((other.nearest > np.quantile(own.nearest, _FAR)).mean()))
        one, two = ask.measured(first), ask.measured(second)
        apart.append([two.columns.get(name, 0.0) - one.columns.get(name, 0.0) for name in names])
    usual, limit = float(np.mean(ratios)), float(np.quantile(before.nearest, _FAR))
    spreads = dict(zip(names, np.std(apart, axis=0, ddof=1).tolist(), strict=True))
    due = before.shares
    spread = np.sqrt(np.maximum(due * (1 - due), 0) * (1 / len(old) + 1 / len(new)))
    spread = np.maximum(spread, np.sqrt(1 / len(old) / len(new)))  # where none of the old are near
    shares = zip(due.tolist(), after.shares.tolist(), due.tolist(), spread.tolist(), strict=True)
    return Drift(
        p_value=1.0,
        cost=Compared(
            before.cost,
            after.cost,
            before.cost * usual,
            before.cost * float(np.std(ratios, ddof=1)),
        ),
        far=Compared(
            float((before.nearest > limit).mean()),
            float((after.nearest > limit).mean()),
            float(np.mean(fars)),
            float(np.std(fars, ddof=1)),
        ),
        shares={int(row): Compared(*share) for row, share in zip(indices, shares, strict=True)},
        columns={
            name: Compared(part, after.columns.get(name, 0.0), part * usual, spreads[name])
            for name, part in before.columns.items()
        },
        rows=(len(old), len(new)),
    )


@dataclass(frozen=True)
class _Measured:
    """What prototypes cost some rows: by the plan, and by the nearest one."""

    cost: float
    columns: dict[str, float]
    nearest: Numbers
    shares: Numbers


@dataclass(frozen=True)
class _Costs:
    """Some prototypes, and how rows are compared with them."""

    metric: Any
    given: Given
    prototypes: Numbers

    def measured(self, rows: Numbers) -> _Measured:
        k = len(self.prototypes)
        problem = Problem(self.prototypes, rows, metric=self.metric, features=False).with_k(k)
        problem = problem.changed(given=replace(self.given, source=None, target=None))
        solved = transport(problem, np.arange(k))
        arcs = arc_costs(problem, np.arange(k), solved.plan)
        parts = column_shares(problem, np.arange(k), solved.plan, arcs)
        block = problem.costs.exact_block(slice(None))
        return _Measured(
            solved.cost,
            {name: share * solved.cost for name, share in parts.items()},
            block.min(axis=0),
            np.bincount(block.argmin(axis=0), minlength=k) / len(rows),
        )


def _chosen(rows: Numbers, k: int, metric: Any) -> Numbers:
    """Prototypes of rows among themselves, by the greedy algorithm."""
    problem = Problem(rows, metric=metric, features=False).with_k(min(k, len(rows)))
    return np.asarray(rows[Greedy().pick(problem, Progress(False)).rows])


def _prepared_together(
    both: tuple[Problem, Problem], parts: Sequence[NDArray[np.intp]]
) -> tuple[Numbers, Numbers] | None:
    """Old and new rows of a table, prepared as if they were one; None for rows as they are.

    What was fitted to the old rows alone knows which rows are new: levels that only these have
    would all be the same.
    """
    preparation = both[0].given.preparation
    targets = [each.given.target for each in both]
    if not isinstance(preparation, Preparation) or any(target is None for target in targets):
        return None
    old, new = (
        arrow_table(take_rows(target, part), "source")
        for target, part in zip(targets, parts, strict=True)
    )
    again = refitted(preparation, old, new)
    return again.matrix(old), again.matrix(new)


def p_value(old: Numbers, new: Numbers, metric: Any, k: int, draw: np.random.Generator) -> float:
    """The share of permutations in which old and new rows differ as much as they do.

    Rows differ by how many of them are nearest to each of k prototypes of all rows together and to
    each of a few, by how far the nearest is, and by how far each of the few is. The least of these
    p-values counts, compared with the least of those of every permutation.
    """
    rows = np.concatenate([old, new])
    order = draw.permutation(len(rows))  # on which the greedy algorithm may depend
    rows, is_new = rows[order], (order >= len(old)).astype(np.float32)
    drawn = np.array([is_new, *(draw.permutation(is_new) for _ in range(_PERMUTATIONS))])
    found = []
    for count in sorted({k, min(_COARSE, k)}):
        prototypes = _chosen(rows, count, metric)
        problem = Problem(prototypes, rows, metric=metric, features=False)
        block = problem.costs.exact_block(slice(None))
        cell = block.argmin(axis=0)
        by_cell = np.argsort(cell, kind="stable")
        starts = np.flatnonzero(np.diff(cell[by_cell], prepend=-1))
        held = np.add.reduceat(drawn[:, by_cell], starts, axis=1)
        due = np.diff(starts, append=len(rows)) * len(new) / len(rows)
        found.append(((held - due) ** 2 / due).sum(axis=1))
        if not count > _COARSE:
            means = (block - block.mean(axis=1, keepdims=True)).T
            scatter = np.linalg.pinv(means.T @ means, rcond=_SINGULAR, hermitian=True)
            apart = drawn @ means
            found.append(((apart @ scatter) * apart).sum(axis=1))
    nearest = block.min(axis=0)
    found.append(np.abs(drawn @ (nearest - nearest.mean())))
    ranks = [(values[:, None] <= values).mean(axis=1) for values in found]
    least = np.min(ranks, axis=0)
    return float((least <= least[0]).mean())
