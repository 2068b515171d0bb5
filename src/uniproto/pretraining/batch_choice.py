"""Which sequences of the pool to keep: every method, with fixed shapes, inside a compiled step.

Masses *and* costs are whole numbers here: a sum of them is the same in any order, on any device,
and the picks with plan `extend` are those of `uniproto.algorithm.uniprot` on the same costs, ties
included. With usable examples i of the pool (see `usable_rows`), each offers `keep` units of mass
and each pick needs as many units as there are usable examples. Among equals the lowest row wins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from uniproto.pretraining.entropic_lax import entropic_claims

_LARGEST = 2**31 - 1  # of int32


class Picks(NamedTuple):
    """Rows in the order picked, and the mean of what their fills cost (NaN: it was not asked)."""

    rows: Array
    cost: Array


class SortedCosts(NamedTuple):
    """Each row's costs from near to far, the columns they belong to, and each column's place."""

    costs: Array
    columns: Array
    places: Array


def cosine_costs(products: Array) -> Array:
    """1 − cos of all pairs from their inner products: symmetric, in [0, 2], 0 with itself.

    Two examples nearest to each other have equal fills. Were their costs equal only up to
    rounding, the pick between them would hang on the order of additions of a device.
    """
    lengths = jnp.sqrt(jnp.diagonal(products))
    cosines = (products + products.T) / 2 / (lengths[:, None] * lengths)
    return jnp.where(jnp.eye(len(products), dtype=bool), 0.0, jnp.clip(1 - cosines, 0.0, 2.0))


def usable_rows(losses: Array, comparison: Array | None = None, direction: bool = False) -> Array:
    """Which examples may be chosen and stand as targets: those whose scores are finite.

    A gradient with NaN or infinity shows on the diagonal of inner products and of distances.
    `direction` asks for a gradient other than 0 too, without which there is no cosine.
    """
    usable = jnp.isfinite(losses)
    if comparison is not None:
        own = jnp.diagonal(comparison)
        usable &= jnp.isfinite(own)
        if direction:
            usable &= own > 0
    return usable


def whole_costs(costs: Array, usable: Array) -> tuple[Array, Array]:
    """(costs as int32, their unit), so fine that a sum of one per example just fits.

    Entries of examples that are not usable become 0: no mass lies there.

    >>> whole, unit = whole_costs(jnp.array([[0.0, 0.5], [0.5, 0.0]]), jnp.ones(2, bool))
    >>> (whole * unit).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    both = usable[:, None] & usable
    largest = jnp.max(costs, where=both, initial=0.0)
    steps = 2 ** int(math.log2(_LARGEST / len(costs)))
    unit = jnp.where(largest > 0, largest, 1.0) / steps
    return jnp.where(both, jnp.round(costs / unit), 0).astype(jnp.int32), unit


def pick_by_fills(costs: Array, usable: Array, keep: int) -> Picks:
    """UniPROT with plan `extend`: the fills of Eq. 8 in whole masses.

    `costs` are whole (see `whole_costs`); the cost returned is in their unit.

    >>> costs = jnp.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 2], [9, 9, 2, 0]])
    >>> picks = pick_by_fills(costs, jnp.ones(4, bool), keep=2)
    >>> picks.rows.tolist(), float(picks.cost)
    ([0, 2], 0.75)
    """
    need = usable.sum(dtype=jnp.int32)
    near_to_far = sort_costs(costs)

    def pick(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Picks]:
        free, unclaimed = carried
        taken = fills(near_to_far, unclaimed, need)
        fill_costs = (near_to_far.costs * taken).sum(axis=1)
        row = jnp.argmin(jnp.where(free, fill_costs, _LARGEST)).astype(jnp.int32)
        claimed = taken[row][near_to_far.places[row]]
        return (_without(free, row), unclaimed - claimed), Picks(row, fill_costs[row])

    unclaimed = jnp.where(usable, keep, 0).astype(jnp.int32)
    _, picks = lax.scan(pick, (usable, unclaimed), length=keep)
    return Picks(picks.rows, picks.cost.astype(jnp.float32).mean() / need)


def pick_by_entropic_fills(
    costs: Array, usable: Array, keep: int, reg: float, iterations: int
) -> Picks:
    """UniPROT as printed: before each pick the entropic plan of all picks is solved anew.

    `costs` are plain numbers in float32; those of examples that are not usable are not read.
    """
    costs = jnp.where(usable[:, None] & usable, costs, 0.0)
    capacity = jnp.where(usable, keep / usable.sum(), 0.0).astype(jnp.float32)
    near_to_far = sort_costs(costs)

    def pick(position: int, carried: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, total, free = carried
        claims = entropic_claims(
            costs[rows], jnp.arange(keep) < position, capacity, reg, iterations
        )
        taken = fills(near_to_far, jnp.maximum(capacity - claims, 0.0), 1.0)
        fill_costs = (near_to_far.costs * taken).sum(axis=1)
        row = jnp.argmin(jnp.where(free, fill_costs, jnp.inf)).astype(jnp.int32)
        rows = jnp.where(jnp.arange(keep) == position, row, rows)
        return rows, total + fill_costs[row], _without(free, row)

    start = (jnp.zeros(keep, jnp.int32), jnp.zeros((), jnp.float32), usable)
    rows, total, _ = lax.fori_loop(0, keep, pick, start)
    return Picks(rows, total / keep)


def sort_costs(costs: Array) -> SortedCosts:
    """Sort each row once; equal costs stay in the order of the columns."""
    columns = jnp.argsort(costs, axis=1, stable=True)
    places = jnp.argsort(columns, axis=1)
    return SortedCosts(jnp.take_along_axis(costs, columns, axis=1), columns, places)


def fills(near_to_far: SortedCosts, unclaimed: Array, need: Array | float) -> Array:
    """What each row would take, from near to far, until its need is met."""
    available = unclaimed[near_to_far.columns]
    before = _sums_before(available)
    return jnp.clip(need - before, 0, available).astype(unclaimed.dtype)


def _sums_before(masses: Array) -> Array:
    """Each row's sum of what comes before a place.

    As a product with a triangle of ones, which is one kernel on a GPU, where a cumulative sum
    would be several; at full precision, exact for whole masses below 2^24.
    """
    triangle = jnp.triu(jnp.ones((masses.shape[1],) * 2, jnp.float32), 1)
    sums = jnp.matmul(masses.astype(jnp.float32), triangle, precision=lax.Precision.HIGHEST)
    return sums.astype(masses.dtype)


def pick_medoids(costs: Array, usable: Array, keep: int) -> Array:
    """Greedy facility location with similarity max(C) − C; `costs` are whole."""

    def pick(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        free, served_at = carried
        gains = jnp.maximum(served_at - costs, 0).sum(axis=1)
        row = jnp.argmax(jnp.where(free, gains, -1)).astype(jnp.int32)
        return (_without(free, row), jnp.minimum(served_at, costs[row])), row

    served_at = jnp.where(usable, costs.max(), 0)
    return lax.scan(pick, (usable, served_at), length=keep)[1]


def pick_falls(
    products: Array, anchors: Array, usable: Array, keep: int, learning_rate: Array
) -> Array:
    """GREATS: the largest expected fall of the anchors' loss, corrected after every pick.

    s_i = mean over anchors v of ⟨g_i, g_v⟩; take the largest, then s ← s − η⟨g_taken, ·⟩. An
    anchor counts for all but itself: it stands for data the model is not trained on in this step.
    At a tiny learning rate η the correction vanishes, and these are the `keep` largest s_i.
    """
    products = jnp.where(usable[:, None] & usable, products, 0.0)
    counts = jnp.zeros(len(usable)).at[anchors].set(1.0) * usable
    others = counts.sum() - counts
    weighted = jnp.matmul(products, counts, precision=lax.Precision.HIGHEST)
    falls = (weighted - counts * jnp.diagonal(products)) / jnp.maximum(others, 1.0)

    def pick(carried: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        free, falls = carried
        row = jnp.argmax(jnp.where(free, falls, -jnp.inf)).astype(jnp.int32)
        return (_without(free, row), falls - learning_rate * products[row]), row

    return lax.scan(pick, (usable, falls), length=keep)[1]


def _without(free: Array, row: Array) -> Array:
    """Take a row out; as a comparison, which melts into its neighbours where a write would not."""
    return free & (jnp.arange(len(free)) != row)


def pick_largest(values: Array, usable: Array, keep: int) -> Array:
    """The rows of the largest values, from large to small."""
    order = jnp.argsort(jnp.where(usable, -values, jnp.inf), stable=True)
    return order[:keep].astype(jnp.int32)


def pick_random(key: Array, pool: int, keep: int) -> Array:
    """Rows drawn without replacement."""
    return jax.random.permutation(key, pool)[:keep].astype(jnp.int32)
