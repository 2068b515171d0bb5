"""Exact rational arithmetic: the true costs of the numbers as given, and the true optimum.

Every element of an input is taken as the real number it is. `sqeuclidean`, `l1`, `dot` and the
matrix metrics are then rational. `euclidean` and `cosine` need roots, which whole-number square
roots give to 60 digits: `_root` is rounded down, by less than anything that is compared here. So
is the exponential function of `rbf` and `laplacian`, by decimal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

Matrix = list[list[Fraction]]
_BITS = 200
_DECIMALS = Context(prec=80, Emax=10**6, Emin=-(10**6))


def true_costs(source: Any, target: Any, metric: str, bandwidth: float | None = None) -> Matrix:
    """All costs; for matrix metrics `target` is unused."""
    rows = _fractions(source)
    if metric == "precomputed":
        return rows
    if metric == "similarity":
        return _below_largest(rows)
    columns = _fractions(target)
    if metric == "dot":
        return _below_largest([[_dot(x, y) for y in columns] for x in rows])
    if bandwidth is not None:
        distance = {"rbf": _square, "laplacian": _l1}[metric]
        width = Fraction(bandwidth) if metric == "laplacian" else 2 * Fraction(bandwidth) ** 2
        return [[_saturated(distance(x, y) / width) for y in columns] for x in rows]
    return [[_COSTS[metric](x, y) for y in columns] for x in rows]


def distances(source: Any, metric: str) -> Matrix:
    """How far rows are apart from each other, which tells near-duplicates."""
    rows = _fractions(source)
    if metric in ("precomputed", "similarity"):
        return [[max(abs(a - b) for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    other = {"dot": "euclidean", "rbf": "euclidean", "laplacian": "l1"}
    apart = _COSTS[other.get(metric, metric)]
    return [[apart(x, y) for y in rows] for x in rows]


def best_transport(
    costs: Matrix, rows: tuple[int, ...], weights: list[Fraction] | None = None
) -> Fraction:
    """The exact optimal-transport cost of these rows, 1/k each, against the targets.

    Without `weights`, which sum to 1, all targets have the same.
    """
    return _Whole(costs, len(rows), weights).cost(rows)


def best_choice(
    costs: Matrix, sets: Iterable[tuple[int, ...]], weights: list[Fraction] | None = None
) -> Fraction:
    """What the best of these sets of rows costs, by trying them all."""
    tried = list(sets)
    whole = _Whole(costs, len(tried[0]), weights)
    return min(map(whole.cost, tried))


def bound_of_prices(
    costs: Matrix, k: int, prices: Any, weights: list[Fraction] | None = None
) -> Fraction:
    """What these prices prove that any k rows cost: weak duality, nothing rounded."""
    n = len(costs[0])
    offer = [Fraction(1, n)] * n if weights is None else weights
    paid = [Fraction(price) for price in np.asarray(prices).tolist()]
    values = sorted(_cheapest_unit(row, paid, [k * mass for mass in offer]) for row in costs)
    return sum(values[:k], Fraction(0)) / k - sum(
        (price * mass for price, mass in zip(paid, offer, strict=True)), Fraction(0)
    )


def _cheapest_unit(row: list[Fraction], paid: list[Fraction], offer: list[Fraction]) -> Fraction:
    left, total = Fraction(1), Fraction(0)
    for cost, mass in sorted(zip(map(Fraction.__add__, row, paid), offer, strict=True)):
        taken = min(mass, left)
        total, left = total + taken * cost, left - taken
        if not left:
            break
    return total


class _Whole:
    """Costs and masses as whole multiples of a unit, so that sums of them take no time."""

    def __init__(self, costs: Matrix, k: int, weights: list[Fraction] | None) -> None:
        n = len(costs[0])
        offer = [Fraction(1, n)] * n if weights is None else weights
        self.cost_unit = math.lcm(*(cost.denominator for row in costs for cost in row))
        self.mass_unit = math.lcm(2 * k, *(mass.denominator for mass in offer))
        self.costs = [[int(cost * self.cost_unit) for cost in row] for row in costs]
        self.offer = [int(mass * self.mass_unit) for mass in offer]
        self.need = self.mass_unit // k

    def cost(self, rows: tuple[int, ...]) -> Fraction:
        """The least cost of a plan, by cheapest augmenting paths: nothing is rounded."""
        costs, n = [self.costs[row] for row in rows], len(self.offer)
        if len(rows) <= 2:
            return self._cost_of_two(costs[0], costs[-1])
        need, offer = [self.need] * len(rows), self.offer.copy()
        flow = [[0] * n for _ in rows]
        total = 0
        while any(need):
            path, length = _shortest_path(costs, flow, need, offer)
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
        return Fraction(total, self.cost_unit * self.mass_unit)

    def _cost_of_two(self, one: list[int], other: list[int]) -> Fraction:
        """The first row takes what it saves most on; for a single row both are the same."""
        pairs = zip(one, other, self.offer, strict=True)
        order = sorted((a - b, mass) for a, b, mass in pairs)
        total = sum(b * mass for b, mass in zip(other, self.offer, strict=True))
        left = self.mass_unit // 2
        for saved, mass in order:
            total += saved * min(mass, left)
            left -= min(mass, left)
        return Fraction(total, self.cost_unit * self.mass_unit)


Step = tuple[int, int, int]  # row, column, and whether mass is added (1) or taken back (−1)


def _shortest_path(
    costs: list[list[int]], flow: list[list[int]], need: list[int], offer: list[int]
) -> tuple[list[Step], int]:
    """The cheapest way for a row in need to reach a target with mass to spare (Bellman, Ford)."""
    k, n = len(costs), len(offer)
    to_row: dict[int, tuple[int, list[Step]]] = {p: (0, []) for p in range(k) if need[p]}
    to_column: dict[int, tuple[int, list[Step]]] = {}
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
    return _rounded(max(1 - _dot(x, y) / _root(_dot(x, x) * _dot(y, y)), Fraction(0)))


def _saturated(value: Fraction) -> Fraction:
    """1 − exp(−value) to some 60 digits of its own."""
    if value > 1000:
        return Fraction(1)
    if value < Fraction(1, 10**20):
        return _rounded(value - value**2 / 2 + value**3 / 6)
    divided = _DECIMALS.divide(Decimal(value.numerator), Decimal(value.denominator))
    return _rounded(1 - Fraction(_DECIMALS.exp(_DECIMALS.minus(divided))))


def _root(value: Fraction) -> Fraction:
    """The square root to 60 digits of its own, rounded down."""
    scale = 1 << (_BITS + max(0, value.denominator.bit_length() - value.numerator.bit_length()))
    return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)


def _rounded(value: Fraction) -> Fraction:
    """60 digits of a number, rounded down, as a multiple of a power of two."""
    scale = 1 << (_BITS + max(0, value.denominator.bit_length() - value.numerator.bit_length()))
    return Fraction(value.numerator * scale // value.denominator, scale)


_COSTS = {"sqeuclidean": _square, "l1": _l1, "euclidean": _distance, "cosine": _angle}
