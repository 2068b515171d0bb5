"""Which sequences of the pool to train on: every method, with fixed shapes, inside a compiled step.

`choose` scores the pool as far as the method needs it, then picks. Masses *and* costs are integers
here: a sum of them is the same in any order, on any device, and the picks with plan `extend` are
those of `uniproto.algorithm.uniprot` on the same costs, ties included. With usable examples i of
the pool (see `usable_rows`), each offers `keep` units of mass and each pick needs as many units as
there are usable examples. Among equals the lowest row wins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from uniproto.lm.pretraining.gradients import (
    exact_distances,
    exact_products,
    inner_products,
    l1_distances,
    largest_gradients,
    sketched_gradients,
    token_losses,
)
from uniproto.lm.pretraining.model import ModelConfig, Params, hidden_states
from uniproto.lm.pretraining.pretrain_settings import COLM_WIDTH, StepSettings

_LARGEST = 2**31 - 1  # of int32


class BatchChoice(NamedTuple):
    """The rows chosen, and what the step reports about the choice."""

    rows: Array
    cost: Array
    pool_loss: Array
    left_out: Array
    violation: Array  # of the entropic plans, the largest share of mass above capacity


def choose(
    config: ModelConfig,
    settings: StepSettings,
    params: Params,
    pool: Array,
    key: Array,
    learning_rate: Array,
    axis: str | None = None,
) -> BatchChoice:
    """Choose `settings.keep` rows of the pool; on several devices `pool` is this one's share.

    Scoring is a forward pass that is not differentiated. The rows returned count through the
    whole pool and are the same on every device.
    """
    if not settings.scores:
        rows = jnp.arange(settings.pool, dtype=jnp.int32)
        if settings.method == "random":
            rows = pick_random(key, settings.pool, settings.keep)
        nothing, none = _not_computed(), jnp.zeros((), jnp.int32)
        return BatchChoice(rows, nothing, nothing, none, nothing)
    for_features, for_anchors = jax.random.split(key)
    losses, comparison = scores(config, settings, params, pool, for_features, axis)
    usable = usable_rows(losses, comparison, direction=settings.method == "uniproto")
    picks = _pick(settings, losses, comparison, usable, for_anchors, learning_rate)
    count = usable.sum(dtype=jnp.int32)
    pool_loss = jnp.where(usable, losses, 0.0).sum() / count
    violation = jnp.asarray(picks.violation, jnp.float32)
    return BatchChoice(picks.rows, picks.cost, pool_loss, settings.pool - count, violation)


def scores(
    config: ModelConfig,
    settings: StepSettings,
    params: Params,
    pool: Array,
    key: Array,
    axis: str | None = None,
) -> tuple[Array, Array | None]:
    """(every sequence's mean loss, how all pairs compare): what a method's choice is made from.

    Pairs compare by the L1 distance of their gradients for `colm`, by inner products otherwise;
    `maxloss` compares nothing.
    """
    hidden = hidden_states(params, pool[:, :-1], config, dtype=jnp.dtype(settings.dtype))
    head, targets, tokens = params["head"], pool[:, 1:], settings.tokens_per_slice
    by_distance = settings.method == "colm"
    if not settings.compares:
        losses, _ = token_losses(hidden, head, targets, tokens)
        return _gathered(losses.mean(axis=1), axis), None
    if settings.features == "exact":
        exact = exact_distances if by_distance else exact_products
        return exact(_gathered(hidden, axis), head, _gathered(targets, axis), tokens)
    if by_distance:
        hidden, targets = _gathered(hidden, axis), _gathered(targets, axis)
        losses, features = largest_gradients(hidden, head, targets, COLM_WIDTH, tokens)
        return losses, l1_distances(features)
    losses, features = sketched_gradients(hidden, head, targets, key, settings.sketch, tokens)
    return _gathered(losses, axis), inner_products(_gathered(features, axis))


def _pick(
    settings: StepSettings,
    losses: Array,
    comparison: Array | None,
    usable: Array,
    key: Array,
    learning_rate: Array,
) -> BatchPicks:
    keep = settings.keep
    if comparison is None:
        return BatchPicks(pick_largest(losses, usable, keep), _not_computed())
    if settings.method == "uniproto":
        costs = cosine_costs(comparison)
        if settings.plan == "entropic":
            return pick_by_entropic_fills(costs, usable, keep, settings.reg, settings.iterations)
        integers, unit = integer_costs(costs, usable)
        picks = pick_by_fills(integers, usable, keep)
        return BatchPicks(picks.rows, picks.cost * unit)
    if settings.method == "colm":
        rows = pick_medoids(integer_costs(comparison, usable)[0], usable, keep)
        return BatchPicks(rows, _not_computed())
    if settings.method == "greats":
        anchors = pick_random(key, settings.pool, settings.anchors)
        rows = pick_greats(comparison, anchors, usable, keep, learning_rate)
        return BatchPicks(rows, _not_computed())
    return BatchPicks(pick_largest(jnp.diagonal(comparison), usable, keep), _not_computed())


def _not_computed() -> Array:
    """NaN, in place of a number that the method does not compute."""
    return jnp.full((), jnp.nan, jnp.float32)


def _gathered(values: Array, axis: str | None) -> Array:
    """The rows of all devices, in the order of the pool."""
    return values if axis is None else lax.all_gather(values, axis, tiled=True)


class BatchPicks(NamedTuple):
    """Rows in the order picked, and the mean cost of their fills (NaN: not computed).

    `violation` is the largest share of mass that an entropic plan put above capacity.
    """

    rows: Array
    cost: Array
    violation: Array | float = math.nan


class SortedCosts(NamedTuple):
    """Each row's costs from near to far, the columns they belong to, and each column's place."""

    costs: Array
    columns: Array
    places: Array


def cosine_costs(products: Array) -> Array:
    """1 − cos of all pairs from their inner products: symmetric, in [0, 2], 0 with itself.

    Two examples nearest to each other have equal fills. Were their costs equal only up to
    rounding, the pick between them would depend on the order of additions of a device.
    """
    lengths = jnp.sqrt(jnp.diagonal(products))
    cosines = (products + products.T) / 2 / (lengths[:, None] * lengths)
    return jnp.where(jnp.eye(len(products), dtype=bool), 0.0, jnp.clip(1 - cosines, 0.0, 2.0))


def usable_rows(losses: Array, comparison: Array | None = None, direction: bool = False) -> Array:
    """Which examples may be chosen and serve as targets: those whose scores are finite.

    A gradient with NaN or infinity shows on the diagonal of inner products and of distances.
    `direction` requires a gradient other than 0 too, without which there is no cosine.
    """
    usable = jnp.isfinite(losses)
    if comparison is not None:
        own = jnp.diagonal(comparison)
        usable &= jnp.isfinite(own)
        if direction:
            usable &= own > 0
    return usable


def integer_costs(costs: Array, usable: Array) -> tuple[Array, Array]:
    """(costs as int32, their unit), so fine that a sum of one per example just fits.

    Entries of examples that are not usable become 0: no mass lies there.

    >>> integers, unit = integer_costs(jnp.array([[0.0, 0.5], [0.5, 0.0]]), jnp.ones(2, bool))
    >>> (integers * unit).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    both = usable[:, None] & usable
    largest = jnp.max(costs, where=both, initial=0.0)
    steps = 2 ** int(math.log2(_LARGEST / len(costs)))
    unit = jnp.where(largest > 0, largest, 1.0) / steps
    return jnp.where(both, jnp.round(costs / unit), 0).astype(jnp.int32), unit


def pick_by_fills(costs: Array, usable: Array, keep: int) -> BatchPicks:
    """UniPROT with plan `extend`: the fills of Eq. 8 in integer masses.

    `costs` are integers (see `integer_costs`); the cost returned is in their unit.

    >>> costs = jnp.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 2], [9, 9, 2, 0]])
    >>> picks = pick_by_fills(costs, jnp.ones(4, bool), keep=2)
    >>> picks.rows.tolist(), float(picks.cost)
    ([0, 2], 0.75)
    """
    need = usable.sum(dtype=jnp.int32)
    near_to_far = sort_costs(costs)

    def pick(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], BatchPicks]:
        free, unclaimed = carry
        taken = fills(near_to_far, unclaimed, need)
        fill_costs = (near_to_far.costs * taken).sum(axis=1)
        row = jnp.argmin(jnp.where(free, fill_costs, _LARGEST)).astype(jnp.int32)
        claimed = taken[row][near_to_far.places[row]]
        return (_without(free, row), unclaimed - claimed), BatchPicks(row, fill_costs[row])

    unclaimed = jnp.where(usable, keep, 0).astype(jnp.int32)
    _, picks = lax.scan(pick, (usable, unclaimed), length=keep)
    return BatchPicks(picks.rows, picks.cost.astype(jnp.float32).mean() / need)


def pick_by_entropic_fills(
    costs: Array, usable: Array, keep: int, reg: float, iterations: int
) -> BatchPicks:
    """UniPROT as printed: before each pick the entropic plan of all picks is solved again.

    `costs` are plain numbers in float32; those of examples that are not usable are not read.
    """
    costs = jnp.where(usable[:, None] & usable, costs, 0.0)
    capacity = jnp.where(usable, keep / usable.sum(), 0.0).astype(jnp.float32)
    near_to_far = sort_costs(costs)

    def pick(position: int, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, total, free, violation = carry
        claims = entropic_claims(
            costs[rows], jnp.arange(keep) < position, capacity, reg, iterations
        )
        above = jnp.maximum(claims - capacity, 0.0).sum() / jnp.maximum(position, 1)
        taken = fills(near_to_far, jnp.maximum(capacity - claims, 0.0), 1.0)
        fill_costs = (near_to_far.costs * taken).sum(axis=1)
        row = jnp.argmin(jnp.where(free, fill_costs, jnp.inf)).astype(jnp.int32)
        rows = jnp.where(jnp.arange(keep) == position, row, rows)
        total = total + fill_costs[row]
        return rows, total, _without(free, row), jnp.maximum(violation, above)

    nothing = jnp.zeros((), jnp.float32)
    start = (jnp.zeros(keep, jnp.int32), nothing, usable, nothing)
    rows, total, _, violation = lax.fori_loop(0, keep, pick, start)
    return BatchPicks(rows, total / keep, violation)


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
    would be several; at full precision, exact for integer masses below 2^24.
    """
    triangle = jnp.triu(jnp.ones((masses.shape[1],) * 2, jnp.float32), 1)
    sums = jnp.matmul(masses.astype(jnp.float32), triangle, precision=lax.Precision.HIGHEST)
    return sums.astype(masses.dtype)


def pick_medoids(costs: Array, usable: Array, keep: int) -> Array:
    """Greedy facility location with similarity max(C) − C; `costs` are integers."""

    def pick(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        free, served_at = carry
        gains = jnp.maximum(served_at - costs, 0).sum(axis=1)
        row = jnp.argmax(jnp.where(free, gains, -1)).astype(jnp.int32)
        return (_without(free, row), jnp.minimum(served_at, costs[row])), row

    served_at = jnp.where(usable, costs.max(), 0)
    return lax.scan(pick, (usable, served_at), length=keep)[1]


def pick_greats(
    products: Array, anchors: Array, usable: Array, keep: int, learning_rate: Array
) -> Array:
    """GREATS: the largest expected fall of the anchors' loss, corrected after every pick.

    s_i = mean over anchors v of ⟨g_i, g_v⟩; take the largest, then s ← s − η⟨g_taken, ·⟩. An
    anchor counts for all but itself: it represents data the model is not trained on in this step.
    At a tiny learning rate η the correction vanishes, and these are the `keep` largest s_i.
    """
    products = jnp.where(usable[:, None] & usable, products, 0.0)
    counts = jnp.zeros(len(usable)).at[anchors].set(1.0) * usable
    others = counts.sum() - counts
    weighted = jnp.matmul(products, counts, precision=lax.Precision.HIGHEST)
    falls = (weighted - counts * jnp.diagonal(products)) / jnp.maximum(others, 1.0)

    def pick(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        free, falls = carry
        row = jnp.argmax(jnp.where(free, falls, -jnp.inf)).astype(jnp.int32)
        return (_without(free, row), falls - learning_rate * products[row]), row

    return lax.scan(pick, (usable, falls), length=keep)[1]


def _without(free: Array, row: Array) -> Array:
    """Take a row out; as a comparison, which XLA fuses with its neighbours, unlike a write."""
    return free & (jnp.arange(len(free)) != row)


def pick_largest(values: Array, usable: Array, keep: int) -> Array:
    """The rows of the largest values, from large to small."""
    order = jnp.argsort(jnp.where(usable, -values, jnp.inf), stable=True)
    return order[:keep].astype(jnp.int32)


def pick_random(key: Array, pool: int, keep: int) -> Array:
    """Rows drawn without replacement."""
    return jax.random.permutation(key, pool)[:keep].astype(jnp.int32)


def entropic_claims(
    costs: Array, picked: Array, capacity: Array, reg: float, iterations: int
) -> Array:
    """What the entropic partial plan of the picked rows claims of each column.

    Row and column updates in turn at strength λ, as in `uniproto.transport.entropic.entropic_plan`,
    where the formulas stand. Rows not picked and columns without capacity take no part; with no
    row picked nothing is claimed.

    >>> costs, picked = jnp.array([[0.0, 1.0], [5.0, 5.0]]), jnp.array([True, False])
    >>> entropic_claims(costs, picked, jnp.array([0.5, 1.0]), 0.01, 1000).round(3).tolist()
    [0.5, 0.5]
    """
    offered = capacity > 0
    log_capacity = jnp.log(jnp.where(offered, capacity, 1.0))

    def log_claims(prices: Array) -> Array:
        """Of a plan whose rows are exact; −∞ where a row or column takes no part."""
        exponent = jnp.where(offered, -(costs + prices) / reg, -jnp.inf)
        plan = jnp.where(picked[:, None], jax.nn.log_softmax(exponent, axis=1), -jnp.inf)
        return jax.nn.logsumexp(plan, axis=0)

    def step(_: int, prices: Array) -> Array:
        updated = jnp.maximum(0.0, prices + reg * (log_claims(prices) - log_capacity))
        return jnp.where(offered & picked.any(), updated, 0.0)

    prices = lax.fori_loop(0, iterations, step, jnp.zeros(len(capacity), jnp.float32))
    return jnp.exp(log_claims(prices))
