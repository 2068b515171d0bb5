"""Whether new rows are still like those that a selection represents, and where they differ.

Everything rests on what prototypes pay for the rows nearest to them. How much that differs between
two halves of the same rows says what is no news: prototypes chosen from one half serve the other
half worse, too. The test permutes old and new rows, so it needs prototypes that favour neither:
those of both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.greedy import Greedy
from uniproto.problem.problem import Problem
from uniproto.problem.values import RBF, Laplacian
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
_COARSE = 8  # cells of the test, beside as many as there are prototypes
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

    def _parts(self, title: str, parts: Mapping[str, Compared]) -> list[str]:
        """The parts that differ most, as far as that is clear."""
        shares = title == "prototypes"
        clear = [name for name in parts if parts[name].is_clear]
        clear.sort(key=lambda name: -abs(parts[name].new - parts[name].usual))
        if not clear:
            what = "share of the rows" if shares else "part of the cost"
            return [f"  {title:12}no {what} differs by more than {_CLEAR:g} standard deviations"]
        lines: list[str] = []
        for name in clear[:_MOST_NAMED]:
            of = parts[name]
            if shares:
                words = f"{of.old:.1%} of the old rows, {of.new:.1%} of the new ones (without "
                words += f"drift {of.usual:.1%} ± {of.spread:.1%})"
            else:
                words = f"{figure(of.old, 3)} of the cost before, {figure(of.new, 3)} now (without "
                words += f"drift {figure(of.usual, 3)} ± {figure(of.spread, 2)})"
            lines.append(f"  {'' if lines else title:12}{name}: {words}")
        if (more := len(clear) - _MOST_NAMED) > 0:
            lines.append(f"  {'':12}and {counted(more, 'other')}")
        return lines


def drift(selection: Selection, problem: Problem, new: Problem, *, seed: int = 0) -> Drift:
    """How the target of a new problem differs from that of the selection's own."""
    costs, other = problem.costs, new.costs
    if not (isinstance(costs, FeatureCosts) and isinstance(other, FeatureCosts)):
        raise InvalidInputError(
            f"Rows of metric={selection.details.metric!r} have no features to compare them by."
        )
    draw = np.random.default_rng([selection.details.seed, seed, 8])
    prototypes = _dense(costs.originals[0][selection.indices])
    old, new_rows = (_some(each.originals[1], draw) for each in (costs, other))
    fewest = min(len(old), len(new_rows))
    if fewest < _FEWEST:
        raise InvalidInputError(
            f"must have at least {_FEWEST} rows, and so must the target so far (got "
            f"{len(new_rows)} and {len(old)}).",
            parameter="source",
        )
    return _found(selection, _Question(selection, problem.given), prototypes, old, new_rows, draw)


def _found(
    selection: Selection,
    ask: _Question,
    prototypes: Numbers,
    old: Numbers,
    new: Numbers,
    draw: np.random.Generator,
) -> Drift:
    before, after = ask.measured(prototypes, old), ask.measured(prototypes, new)
    limit = float(np.quantile(before.nearest, _FAR))
    halves = [ask.halves(old, len(new), draw) for _ in range(_SPLITS)]
    splits = [ask.between(prototypes, old, len(new), draw) for _ in range(_SPLITS)]
    optimism = float(np.mean([each.cost for each in halves]))
    columns = {
        name: Compared(
            before.columns[name],
            after.columns.get(name, 0.0),
            before.columns[name] * optimism,
            float(np.std([each.columns[name] for each in splits], ddof=1)),
        )
        for name in before.columns
    }
    expected = before.shares
    spread = np.sqrt(np.maximum(expected * (1 - expected), 0) * (1 / len(old) + 1 / len(new)))
    spread = np.maximum(spread, np.sqrt(1 / len(old) / len(new)))  # where none of the old are near
    shares = {
        int(row): Compared(*map(float, (expected[p], after.shares[p], expected[p], spread[p])))
        for p, row in enumerate(selection.indices)
    }
    ratios = [each.cost for each in halves]
    fars = [each.far for each in halves]
    return Drift(
        p_value=p_value(old, new, ask, selection.k, draw),
        cost=Compared(
            before.cost,
            after.cost,
            before.cost * float(np.mean(ratios)),
            before.cost * float(np.std(ratios, ddof=1)),
        ),
        far=Compared(
            float((before.nearest > limit).mean()),
            float((after.nearest > limit).mean()),
            float(np.mean(fars)),
            float(np.std(fars, ddof=1)),
        ),
        shares=shares,
        columns=columns,
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
class _Split:
    """One half of the rows beside the other."""

    cost: float
    far: float
    columns: dict[str, float]


class _Question:
    """Rows are compared as the selection compares them."""

    def __init__(self, selection: Selection, given: Given) -> None:
        details, kernels = selection.details, {"rbf": RBF, "laplacian": Laplacian}
        self.metric: Any = details.metric
        if details.metric in kernels and details.bandwidth is not None:
            self.metric = kernels[details.metric](details.bandwidth)
        self.given = replace(given, source=None, target=None)
        self.k = selection.k

    def problem(self, source: Numbers, target: Numbers) -> Problem:
        found = Problem(source, target, metric=self.metric, features=False)
        return found.changed(given=self.given)

    def measured(self, prototypes: Numbers, rows: Numbers) -> _Measured:
        k = len(prototypes)
        problem = self.problem(prototypes, rows).with_k(k)
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

    def chosen(self, rows: Numbers, k: int) -> Numbers:
        """Prototypes of rows among themselves, by the greedy algorithm."""
        problem = self.problem(rows, rows).with_k(min(k, len(rows)))
        return np.asarray(rows[Greedy().pick(problem, Progress(False)).rows])

    def halves(self, rows: Numbers, most: int, draw: np.random.Generator) -> _Split:
        """Prototypes of one half, and what the other half costs beside it."""
        first, second = _halves(rows, most, draw)
        prototypes = self.chosen(first, max(1, self.k // 2))
        own, other = (self.measured(prototypes, half) for half in (first, second))
        far = float((other.nearest > np.quantile(own.nearest, _FAR)).mean())
        return _Split(other.cost / own.cost if own.cost > 0 else 1.0, far, {})

    def between(
        self, prototypes: Numbers, rows: Numbers, most: int, draw: np.random.Generator
    ) -> _Split:
        """How what columns make of the cost differs between halves."""
        own, other = (self.measured(prototypes, half) for half in _halves(rows, most, draw))
        names = own.columns.keys() | other.columns.keys()
        parts = {n: other.columns.get(n, 0.0) - own.columns.get(n, 0.0) for n in names}
        return _Split(other.cost - own.cost, 0.0, parts)


def p_value(old: Numbers, new: Numbers, ask: _Question, k: int, draw: np.random.Generator) -> float:
    """The share of permutations in which old and new rows differ as much as they do.

    Rows differ by how many of them are nearest to each of k prototypes of all rows together and to
    each of a few, by how far the nearest is, and by how far each of the few is. The least of these
    p-values counts, compared with the least of those of every permutation.
    """
    rows = np.concatenate([old, new])
    is_new = np.zeros(len(rows), np.float32)
    is_new[len(old) :] = 1
    labels = [is_new, *(draw.permutation(is_new) for _ in range(_PERMUTATIONS))]
    drawn = np.array(labels)
    found = []
    for count in sorted({k, min(_COARSE, k)}):
        prototypes = ask.chosen(rows, count)
        block = ask.problem(prototypes, rows).costs.exact_block(slice(None))
        cell = block.argmin(axis=0)
        order = np.argsort(cell, kind="stable")
        starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
        held = np.add.reduceat(drawn[:, order], starts, axis=1)
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


def _halves(rows: Numbers, most: int, draw: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Two random halves, the second of as many rows as are new, at most."""
    order, half = draw.permutation(len(rows)), len(rows) // 2
    return rows[order[:half]], rows[order[half:][:most]]


def _some(rows: Any, draw: np.random.Generator) -> Numbers:
    if rows.shape[0] > _SAMPLED:
        rows = rows[np.sort(draw.choice(rows.shape[0], _SAMPLED, replace=False))]
    return _dense(rows)


def _dense(rows: Any) -> Numbers:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)
