"""Exact rational arithmetic: the true costs of the numbers as given, and the true optimum.

Every element of an input is taken as the real number it is. `sqeuclidean`, `l1`, `dot` and the
matrix metrics are then rational. `euclidean` and `cosine` need roots, which whole-number square
roots give to 60 digits: `_root` is rounded down, by less than anything that is compared here.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

Matrix = list[list[Fraction]]
_DIGITS = 10**60


def true_costs(source: Any, target: Any, metric: str) -> Matrix:
    """All costs; for matrix metrics `target` is unused."""
    rows = _fractions(source)
    if metric == "precomputed":
        return rows
    if metric == "similarity":
        return _below_largest(rows)
    columns = _fractions(target)
    if metric == "dot":
        return _below_largest([[_dot(x, y) for y in columns] for x in rows])
    cost = {"sqeuclidean": _square, "l1": _l1, "euclidean": _distance, "cosine": _angle}[metric]
    return [[cost(x, y) for y in columns] for x in rows]


def best_transport(
    costs: Matrix, rows: tuple[int, ...], weights: list[Fraction] | None = None
) -> Fraction:
    """The exact optimal-transport cost of these rows, 1/k each, against the targets.

    Successive shortest paths, in fractions: nothing is rounded. Without `weights`, which sum to
    1, all targets have the same.
    """
    k, n = len(rows), len(costs[0])
    need = [Fraction(1, k)] * k
    offer = [Fraction(1, n)] * n if weights is None else list(weights)
    flow = [[Fraction(0)] * n for _ in range(k)]
    total = Fraction(0)
    while any(need):
        path, length = _shortest_path([costs[row] for row in rows], flow, need, offer)
        amount = min(
            need[path[0][0]],
            offer[path[-1][1]],
            *(flow[p][j] for p, j, way in path if way < 0),
        )
        for p, j, way in path:
            flow[p][j] += way * amount
        need[path[0][0]] -= amount
        offer[path[-1][1]] -= amount
        total += amount * length
    return total


Step = tuple[int, int, int]  # row, column, and whether mass is added (1) or taken back (−1)


def _shortest_path(
    costs: Matrix, flow: Matrix, need: list[Fraction], offer: list[Fraction]
) -> tuple[list[Step], Fraction]:
    """The cheapest way for a row in need to reach a target with mass to spare (Bellman, Ford)."""
    k, n = len(costs), len(costs[0])
    to_row: dict[int, tuple[Fraction, list[Step]]] = {
        p: (Fraction(0), []) for p in range(k) if need[p]
    }
    to_column: dict[int, tuple[Fraction, list[Step]]] = {}
    changed = True
    while changed:
        changed = False
        for p, (length, path) in list(to_row.items()):
            for j in range(n):
                reach = length + costs[p][j]
                if j not in to_column or reach < to_column[j][0]:
                    to_column[j], changed = (reach, [*path, (p, j, 1)]), True
        for j, (length, path) in list(to_column.items()):
            for p in range(k):
                reach = length - costs[p][j]
                if flow[p][j] and (p not in to_row or reach < to_row[p][0]):
                    to_row[p], changed = (reach, [*path, (p, j, -1)]), True
    length, path = min((to_column[j] for j in range(n) if offer[j]), key=lambda found: found[0])
    return path, length


def best_choice(costs: Matrix, k: int, weights: list[Fraction] | None = None) -> Fraction:
    """What the best k rows cost, by trying them all."""
    sets = combinations(range(len(costs)), k)
    return min(best_transport(costs, rows, weights) for rows in sets)


def true_weights(weights: Any) -> list[Fraction] | None:
    """Weights as given, divided by their sum."""
    if weights is None:
        return None
    exact = [Fraction(weight) for weight in np.asarray(weights).tolist()]
    return [weight / sum(exact) for weight in exact]


def _fractions(values: Any) -> Matrix:
    return [[Fraction(value) for value in row] for row in np.asarray(values).tolist()]


def _below_largest(values: Matrix) -> Matrix:
    largest = max(map(max, values))
    return [[largest - value for value in row] for row in values]


def _dot(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def _square(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum(((a - b) ** 2 for a, b in zip(x, y, strict=True)), Fraction(0))


def _l1(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return sum((abs(a - b) for a, b in zip(x, y, strict=True)), Fraction(0))


def _distance(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return _root(_square(x, y))


def _angle(x: list[Fraction], y: list[Fraction]) -> Fraction:
    return max(1 - _dot(x, y) / _root(_dot(x, x) * _dot(y, y)), Fraction(0))


def _root(value: Fraction) -> Fraction:
    """The square root to 60 digits of its own, rounded down."""
    if value == 0:
        return Fraction(0)
    tenfold = 10 ** max(0, round(math.log10(value.denominator) - math.log10(value.numerator)))
    scale = _DIGITS * (math.isqrt(tenfold) + 1)
    return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)
