"""The entropic plan of `uniproto.transport.entropic`, in float32 with fixed shapes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

# Those of `uniproto.transport.entropic`.
_TOLERANCE = 1e-6
_STEPS_PER_STRENGTH = 25


class _Solving(NamedTuple):
    """Prices so far, at which strength, for how many steps at it, and whether all is settled."""

    prices: Array
    strength: Array
    steps: Array
    settled: Array


def entropic_claims(
    costs: Array, picked: Array, capacity: Array, reg: float, iterations: int
) -> Array:
    """What the entropic partial plan of the picked rows claims of each column.

    Row and column updates in turn, λ coming down from the scale of the costs, exactly as in
    `uniproto.transport.entropic.entropic_plan`, where the reasons stand. Rows not picked and
    columns without capacity take no part; with no row picked nothing is claimed.

    >>> costs, picked = jnp.array([[0.0, 1.0], [5.0, 5.0]]), jnp.array([True, False])
    >>> entropic_claims(costs, picked, jnp.array([0.5, 1.0]), 0.01, 1000).round(3).tolist()
    [0.5, 0.5]
    """
    offered = capacity > 0
    part = picked[:, None] & offered
    spread = jnp.max(costs, where=part, initial=-jnp.inf) - jnp.min(
        costs, where=part, initial=jnp.inf
    )
    log_capacity = jnp.log(jnp.where(offered, capacity, 1.0))

    def log_plan(prices: Array, strength: Array | float) -> Array:
        """Rows normalised; −∞ where a row or column takes no part."""
        exponent = jnp.where(offered, -(costs + prices) / strength, -jnp.inf)
        return jnp.where(picked[:, None], jax.nn.log_softmax(exponent, axis=1), -jnp.inf)

    def step(_: int, now: _Solving) -> _Solving:
        log_taken = jax.nn.logsumexp(log_plan(now.prices, now.strength), axis=0)
        updated = jnp.maximum(0.0, now.prices + now.strength * (log_taken - log_capacity))
        updated = jnp.where(offered, updated, 0.0)
        still = (jnp.abs(updated - now.prices) <= _TOLERANCE * now.strength).all()
        last = now.strength <= reg
        steps = now.steps + 1
        lower = ~last & (still | (steps >= _STEPS_PER_STRENGTH))
        following = _Solving(
            updated,
            jnp.where(lower, jnp.maximum(now.strength / 4, reg), now.strength),
            jnp.where(lower, 0, steps),
            still & last,
        )
        return jax.tree.map(lambda old, new: jnp.where(now.settled, old, new), now, following)

    start = _Solving(
        jnp.zeros(len(capacity), jnp.float32),
        jnp.maximum(spread, reg).astype(jnp.float32),
        jnp.zeros((), jnp.int32),
        ~picked.any(),
    )
    end = lax.fori_loop(0, iterations, step, start)
    return jnp.exp(jax.nn.logsumexp(log_plan(end.prices, reg), axis=0))
