"""From the tokens of a pool to the rows a step trains on: score what is needed, then pick."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from uniproto.pretraining.architecture import ModelConfig, Params, hidden_states
from uniproto.pretraining.batch_choice import (
    Picks,
    cosine_costs,
    pick_by_entropic_fills,
    pick_by_fills,
    pick_falls,
    pick_largest,
    pick_medoids,
    pick_random,
    usable_rows,
    whole_costs,
)
from uniproto.pretraining.gradient_sketch import (
    exact_distances,
    exact_products,
    inner_products,
    l1_distances,
    sketched_gradients,
)
from uniproto.pretraining.step_settings import StepSettings
from uniproto.pretraining.token_losses import token_losses


class Choice(NamedTuple):
    """The rows chosen, and what is to be reported about choosing them."""

    rows: Array
    cost: Array
    pool_loss: Array
    left_out: Array


def choose(
    config: ModelConfig,
    settings: StepSettings,
    params: Params,
    pool: Array,
    key: Array,
    learning_rate: Array,
    axis: str | None = None,
) -> Choice:
    """Choose `settings.keep` rows of the pool; on several devices `pool` is this one's share.

    Scoring is a forward pass that is not differentiated. The rows returned count through the
    whole pool and are the same on every device.
    """
    if not settings.scores:
        rows = jnp.arange(settings.pool, dtype=jnp.int32)
        if settings.method == "random":
            rows = pick_random(key, settings.pool, settings.keep)
        return Choice(rows, _nothing(), _nothing(), jnp.zeros((), jnp.int32))
    for_features, for_anchors = jax.random.split(key)
    losses, comparison = scores(config, settings, params, pool, for_features, axis)
    usable = usable_rows(losses, comparison, direction=settings.method == "uniproto")
    picks = _pick(settings, losses, comparison, usable, for_anchors, learning_rate)
    count = usable.sum(dtype=jnp.int32)
    pool_loss = jnp.where(usable, losses, 0.0).sum() / count
    return Choice(picks.rows, picks.cost, pool_loss, settings.pool - count)


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
    losses, features = sketched_gradients(hidden, head, targets, key, settings.sketch, tokens)
    features = _gathered(features, axis)
    compare = l1_distances if by_distance else inner_products
    return _gathered(losses, axis), compare(features)


def _pick(
    settings: StepSettings,
    losses: Array,
    comparison: Array | None,
    usable: Array,
    key: Array,
    learning_rate: Array,
) -> Picks:
    keep = settings.keep
    if comparison is None:
        return Picks(pick_largest(losses, usable, keep), _nothing())
    if settings.method == "uniproto":
        costs = cosine_costs(comparison)
        if settings.plan == "entropic":
            return pick_by_entropic_fills(costs, usable, keep, settings.reg, settings.iterations)
        whole, unit = whole_costs(costs, usable)
        rows, cost = pick_by_fills(whole, usable, keep)
        return Picks(rows, cost * unit)
    if settings.method == "colm":
        rows = pick_medoids(whole_costs(comparison, usable)[0], usable, keep)
        return Picks(rows, _nothing())
    if settings.method == "greats":
        anchors = pick_random(key, settings.pool, settings.anchors)
        rows = pick_falls(comparison, anchors, usable, keep, learning_rate)
        return Picks(rows, _nothing())
    return Picks(pick_largest(jnp.diagonal(comparison), usable, keep), _nothing())


def _nothing() -> Array:
    """In place of what was not computed."""
    return jnp.full((), jnp.nan, jnp.float32)


def _gathered(values: Array, axis: str | None) -> Array:
    """The rows of all devices, in the order of the pool."""
    return values if axis is None else lax.all_gather(values, axis, tiled=True)
