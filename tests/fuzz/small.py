"""Small questions of every magnitude and type, of which every set of rows can be tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from uniproto import Groups, Limits

from .rational import Matrix, distances, true_costs, true_weights

_FEATURES = ("cosine", "euclidean", "sqeuclidean", "l1", "dot", "rbf", "laplacian")
_TYPES = ("f2", "f4", "f4", "f8", "f8", "i1", "u1", "i4", "i8")
# What puts a solver with an absolute tolerance, or masses of 46 bits, to the test.
HARD = ("far row", "forbidden pairs", "wide weights", "all of these")


@dataclass(frozen=True)
class Small:
    """A question so small that every choice can be tried."""

    source: np.ndarray
    target: np.ndarray | None
    metric: str
    k: int
    weights: np.ndarray | None = None
    table: bool = False  # as a data frame, whose columns are made comparable
    conditions: dict[str, Any] = field(default_factory=dict)

    def given(self) -> tuple[Any, Any, dict[str, Any]]:
        """Source, target and options, as `Problem` takes them."""
        options = {"metric": self.metric, "target_weights": self.weights, **self.conditions}
        source, target = self.source, self.target
        if self.table:
            source, target = (None if side is None else _frame(side) for side in (source, target))
        return source, target, options

    def costs_of(self, problem: Any) -> Matrix:
        """The true costs, of the features that a table was turned into."""
        source, target = self.source, self.source if self.target is None else self.target
        if self.table:
            source, target = problem.costs.given(0), problem.costs.given(1)
        return true_costs(source, target, self.metric, problem.costs.bandwidth)

    @property
    def true_weights(self) -> list[Fraction] | None:
        return true_weights(self.weights)

    def sets(self) -> Iterator[tuple[int, ...]]:
        """Every set of rows that the conditions allow."""
        given = self.conditions.get("include", ())
        free = np.setdiff1d(np.arange(len(self.source)), self.conditions.get("exclude", ()))
        near = self._near()
        for rows in combinations(free.tolist(), self.k):
            pairs = [pair for pair in combinations(rows, 2) if not set(pair) <= set(given)]
            if set(given) <= set(rows) and not near.intersection(pairs) and self._counts(rows):
                yield rows

    def _near(self) -> set[tuple[int, int]]:
        """Pairs of rows that may not be chosen together."""
        least = self.conditions.get("min_distance")
        if least is None:
            return set()
        apart = distances(self.source, self.metric)
        pairs = combinations(range(len(apart)), 2)
        return {(i, j) for i, j in pairs if apart[i][j] <= Fraction(least)}

    def _counts(self, rows: tuple[int, ...]) -> bool:
        """Whether as many rows of each label are chosen as limits and groups ask for."""
        limits, groups = (self.conditions.get(name) for name in ("limits", "groups"))
        fine = True
        if limits is not None:
            counts = np.bincount(limits.labels[list(rows)], minlength=2)
            fine = bool((counts <= limits.at_most).all())
        if groups is not None:
            counts = np.bincount(groups.labels[list(rows)], minlength=2)
            fine = fine and counts.tolist() == [groups.budgets.get(label, 0) for label in (0, 1)]
        return fine


def _frame(rows: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {f"column {name}": values for name, values in zip("abc", rows.T, strict=False)}
    )


@st.composite
def conditioned(draw: st.DrawFn, questions: st.SearchStrategy[Small]) -> Small:
    """A question, often with conditions on the rows that may be chosen."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    question = draw(questions)
    if rng.random() < 0.5:
        return question
    return replace(question, conditions=_conditions(rng, question))


def _conditions(rng: np.random.Generator, question: Small) -> dict[str, Any]:
    m, k = len(question.source), question.k
    n = len(question.target) if question.target is not None else m
    n = question.source.shape[1] if question.metric in ("precomputed", "similarity") else n
    found: dict[str, Any] = {}
    order = rng.permutation(m).tolist()
    if rng.random() < 0.4:
        found["include"] = order[: int(rng.integers(0, k + 1))]
    if rng.random() < 0.4:
        found["exclude"] = order[k:][: int(rng.integers(0, m))]
    which = rng.choice(["limits", "groups", "min_distance", "nothing"])
    if which == "limits":
        found["limits"] = Limits(rng.integers(0, 2, m), at_most=int(rng.integers(1, k + 1)))
    if which == "groups":
        labels = rng.integers(0, 2, m)
        target = rng.integers(0, 2, n) if question.target is not None or n != m else labels
        target = labels if question.metric in _FEATURES and question.target is None else target
        first = int(rng.integers(0, k + 1))
        found["groups"] = Groups(labels, target=target, budgets={0: first, 1: k - first})
    if which == "min_distance" and not question.table and question.source.any(axis=1).all():
        apart = sorted({way for row in distances(question.source, question.metric) for way in row})
        between = [
            float((low + high) / 2)
            for low, high in pairwise(apart)
            if low * Fraction(11, 10) < high < 10**300 and high * 10**290 > 1
        ]
        if between:
            found["min_distance"] = float(rng.choice(between[:4]))
    return found


@st.composite
def small_questions(draw: st.DrawFn) -> Small:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n, width = (draw(st.integers(1, most)) for most in (6, 6, 3))
    kind = draw(st.sampled_from(_TYPES))
    metric = draw(st.sampled_from([*_FEATURES, "precomputed", "similarity"]))
    if metric in _FEATURES:
        source = _numbers(draw, rng, (m, width), kind, signed=True)
        target = _numbers(draw, rng, (n, width), kind, signed=True) if draw(st.booleans()) else None
    else:
        source = _numbers(draw, rng, (m, n), kind, signed=metric == "similarity")
        target = None
    return Small(source, target, metric, draw(st.integers(1, min(m, 3))))


@st.composite
def hard_questions(draw: st.DrawFn) -> Small:
    return hard_question(
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.sampled_from(HARD))
    )


def hard_question(rng: np.random.Generator, family: str) -> Small:
    """Costs or weights of which a few are larger than all others by many orders."""
    m, n, width = (int(rng.integers(*sizes)) for sizes in ((2, 7), (2, 7), (1, 4)))
    k = int(rng.integers(1, min(m, 3) + 1))
    every = family == "all of these"
    huge = 10.0 ** rng.integers(8, 18)
    weights = None
    if family == "wide weights" or (every and rng.random() < 0.7):
        weights = 10.0 ** rng.uniform(-rng.choice([2, 8, 16, 25]), 0, n)
    elif rng.random() < 0.2:  # of which some may add up to just what a prototype takes
        weights = rng.integers(1, 6, n) * 1.0
    if family == "forbidden pairs" or rng.random() < 0.5:
        costs = rng.integers(0, 9, (m, n)) * 1.0 if rng.random() < 0.3 else rng.random((m, n))
        if family != "wide weights" or rng.random() < 0.7:
            costs[rng.random((m, n)) < rng.choice([0.1, 0.3, 0.6])] = huge
        return Small(costs, None, "precomputed", k, weights)
    source, target = rng.normal(size=(m, width)), rng.normal(size=(n, width))
    if family != "wide weights" or rng.random() < 0.5:
        # As a squared distance the cost is then `huge`, which keeps the digits of the others.
        far = rng.choice([1.0, -1.0]) * np.sqrt(huge)
        source[0] = far
        if rng.random() < 0.3:
            target[0] = far
    metric = str(rng.choice(["sqeuclidean", "sqeuclidean", "euclidean", "l1"]))
    same = weights is None and rng.random() < 0.3
    return Small(source, None if same else target, metric, k, weights)


@st.composite
def far_questions(draw: st.DrawFn, most: int = 7, most_chosen: int = 3) -> Small:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return far_question(rng, most, most_chosen)


def far_question(rng: np.random.Generator, most: int = 7, most_chosen: int = 3) -> Small:
    """Any number of rows farther out than the others, whole numbers beyond 2⁵³, any weights."""
    m, n, width = (int(rng.integers(*sizes)) for sizes in ((2, most + 1), (2, most + 1), (1, 4)))
    k = int(rng.integers(1, min(m, most_chosen) + 1))
    metric = str(rng.choice([*_FEATURES, *_FEATURES, "precomputed", "similarity"]))
    same = metric in _FEATURES and bool(rng.random() < 0.5)
    n = m if same else n
    shape = (m, width if metric in _FEATURES else n)
    source, target = (_far_rows(rng, (rows, shape[1])) for rows in (m, n))
    if metric == "precomputed":
        source = np.abs(source) if source.dtype.kind == "f" else source & (2**62 - 1)
    weights = None
    if rng.random() < 0.5:
        weights = 10.0 ** rng.uniform(-rng.choice([1, 30, 290, 320]), rng.choice([0, 0, 290]), n)
        if rng.random() < 0.3:
            weights = rng.integers(1, 6, n) * 1.0
        weights[rng.random(n) < 0.2] = 0.0
        if same and rng.random() < 0.5:  # far rows do not count
            weights[np.abs(source.astype(np.float64)).max(axis=1) > 1e6] = 0.0
        weights = weights if weights.any() else None
    table = metric in _FEATURES and width > 1 and bool(rng.random() < 0.15)
    target = None if metric not in _FEATURES or same else target
    return Small(source, target, metric, k, weights, table)


def _far_rows(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    rows = rng.normal(size=shape) if rng.random() < 0.7 else rng.integers(0, 4, shape) * 1.0
    far = rng.random(shape[0]) < rng.choice([0.15, 0.5, 0.85])
    if rng.random() < 0.25:
        whole = rng.integers(0, 2000, shape) + np.int64(2) ** int(rng.integers(40, 63))
        whole[far] = rng.choice([0, np.iinfo(np.int64).min, 2**53 + 2])
        return whole
    most = rng.choice([9, 17, 60, 160, 300])
    places = (int(far.sum()) if rng.random() < 0.3 else 1, shape[1])  # one of each, or the same
    place = rng.choice([1.0, -1.0], places) * 10.0 ** rng.uniform(6, most, places)
    rows[far] = place + (rows[far] * 10.0 ** rng.uniform(-3, 9) if rng.random() < 0.5 else 0.0)
    if rng.random() < 0.1:
        rows[~far] *= 10.0 ** -rng.uniform(1, 300)
    return rows.astype(np.float32) if most == 17 and rng.random() < 0.5 else rows


def _numbers(
    draw: st.DrawFn, rng: np.random.Generator, shape: tuple[int, int], kind: str, *, signed: bool
) -> np.ndarray:
    """Normal, tied or of all magnitudes at once; floating-point ones scaled and moved."""
    form = draw(st.sampled_from(["normal", "tied", "wild", "one large"]))
    if np.dtype(kind).kind in "iu":
        values = rng.integers(0, 3 if form == "tied" else 120, shape)
        if signed and kind != "u1" and form != "tied":
            values = values - 60
        return values.astype(kind)
    tied = rng.integers(0, 3, shape).astype(float)
    values = tied if form == "tied" else rng.normal(size=shape)
    if form == "wild":
        values = values * 10.0 ** rng.uniform(-12, 12, shape)
    if form == "one large":
        values[0, 0] = 1e12
    most = {"f2": 4, "f4": 30, "f8": 300}[kind]
    magnitude = 10.0 ** draw(st.sampled_from([0, 0, -most, most, -8, 8, -most // 2]))
    with np.errstate(all="ignore"):
        values = values * magnitude
        if signed and draw(st.integers(0, 3)) == 0:
            values = values + 1e6 * np.abs(values).max()
        values = (values if signed else np.abs(values)).astype(kind)
    return values if np.isfinite(values).all() else np.ones(shape, kind)
