"""Cross-entropy by slices: the logits of a whole batch never exist at once.

With 128 sequences of 512 tokens and a vocabulary of 32,000 the logits would take 8 GB in float32,
and their gradient as much again. A slice is some positions of *all* sequences, so that it has
work for every device a batch is spread over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax


def slice_length(rows: int, length: int, tokens: int) -> int:
    """How many positions a slice has: the most that divide `length`, within `tokens` in all.

    >>> slice_length(rows=128, length=512, tokens=8192)
    64
    """
    fitting = (size for size in range(1, length + 1) if length % size == 0)
    return max((size for size in fitting if size * rows <= tokens), default=1)


def by_slices(work: Callable[..., Any], start: Any, arrays: tuple[Array, ...], tokens: int) -> Any:
    """Scan `work(carried, *slices)` over slices of the second axis; outputs are joined there.

    Returns what was carried to the end, and the outputs.
    """
    rows, length = arrays[0].shape[:2]
    size = slice_length(rows, length, tokens)

    def split(values: Array) -> Array:
        shape = (rows, length // size, size, *values.shape[2:])
        return jnp.moveaxis(values.reshape(shape), 1, 0)

    def join(values: Array) -> Array:
        return jnp.moveaxis(values, 0, 1).reshape(rows, length, *values.shape[3:])

    end, outputs = lax.scan(
        lambda carried, slices: work(carried, *slices), start, tuple(map(split, arrays))
    )
    return end, jax.tree.map(join, outputs)


def log_sums(scores: Array) -> Array:
    """log Σ exp over the vocabulary, in float32."""
    return jax.nn.logsumexp(scores.astype(jnp.float32), axis=-1)


def at_targets(scores: Array, targets: Array) -> Array:
    """Every target's own score, in float32."""
    # Read before converting: the other way round a float32 copy of all scores would be written.
    return jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0].astype(jnp.float32)


def chances(scores: Array, log_sum: Array) -> Array:
    """The softmax of the scores, in float32."""
    return jnp.exp(scores.astype(jnp.float32) - log_sum[..., None])


def token_losses(hidden: Array, head: Array, targets: Array, tokens: int) -> tuple[Array, Array]:
    """(−log p of every target, log Σ exp of its logits), float32 (rows, length) each.

    Logits are products in the type of `hidden`, as everything before them; all that follows is
    float32. Not meant to be differentiated: `mean_loss` is.
    """
    head = head.astype(hidden.dtype)

    def work(carried: None, states: Array, wanted: Array) -> tuple[None, tuple[Array, Array]]:
        scores = states @ head
        log_sum = log_sums(scores)
        return None, (log_sum - at_targets(scores, wanted), log_sum)

    return by_slices(work, None, (hidden, targets), tokens)[1]


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def mean_loss(hidden: Array, head: Array, targets: Array, tokens: int) -> Array:
    """Mean cross-entropy of the targets.

    Where it is differentiated, the gradients of a slice are computed while its logits are there:
    the output projection costs three products in all, and none of them twice.
    """
    return token_losses(hidden, head, targets, tokens)[0].mean()


def _forward(
    hidden: Array, head: Array, targets: Array, tokens: int
) -> tuple[Array, tuple[Array, Array]]:
    cast = head.astype(hidden.dtype)
    start = (jnp.zeros((), jnp.float32), jnp.zeros(head.shape, jnp.float32))

    def work(
        carried: tuple[Array, Array], states: Array, wanted: Array
    ) -> tuple[tuple[Array, Array], Array]:
        total, head_gradient = carried
        scores = states @ cast
        log_sum = log_sums(scores)
        total = total + (log_sum - at_targets(scores, wanted)).sum()
        is_target = jnp.arange(scores.shape[-1]) == wanted[..., None]
        errors = (chances(scores, log_sum) - is_target).astype(hidden.dtype)
        more = jnp.einsum("btw,btv->wv", states, errors, preferred_element_type=jnp.float32)
        return (total, head_gradient + more), errors @ cast.T

    (total, head_gradient), hidden_gradient = by_slices(work, start, (hidden, targets), tokens)
    return total / targets.size, (hidden_gradient, head_gradient / targets.size)


def _backward(
    tokens: int, gradients: tuple[Array, Array], scale: Array
) -> tuple[Array, Array, None]:
    hidden_gradient, head_gradient = gradients
    rows, length, _ = hidden_gradient.shape
    scaled = hidden_gradient.astype(jnp.float32) * (scale / (rows * length))
    return scaled.astype(hidden_gradient.dtype), head_gradient * scale, None


mean_loss.defvjp(_forward, _backward)
