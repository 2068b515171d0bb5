"""Losses and gradients of the output projection, without the logits of a whole batch.

With 128 sequences of 512 tokens and a vocabulary of 32,000 the logits would take 8 GB in float32,
and their gradient as much again. So they are computed by slices: some positions of *all*
sequences, so that a slice has work for every device a batch is spread over.

The loss of sequence i has the gradient G_i = Σ_t h_it (p_it − y_it)ᵀ with respect to the output
projection: h is what the projection reads, p the predicted probabilities, y the token that came.
No backward pass is needed, but G_i is as large as the projection itself.

- `sketched_gradients` returns Rᵀ G_i Q for random matrices R and Q of few columns. R has entries
  ±1/√columns; Q assigns the vocabulary to buckets of equal size and sums each with random signs (a
  count sketch), which needs no product: the sums are taken while the softmax is. Since
  E[R Rᵀ] = E[Q Qᵀ] = I, inner products of sketches are, on average over the matrices, those of the
  gradients.
- `largest_gradients` returns the coordinates of G_i with the largest mean magnitude over the pool,
  for L1 distances, which no random projection preserves.
- `exact_products` and `exact_distances` compare the gradients themselves, some columns at a time.

Gradients are sums over a sequence's tokens; all sequences are equally long, so that cosines and
orders are those of means.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax


def slice_length(rows: int, length: int, tokens: int) -> int:
    """How many positions a slice has: the most that divide `length`, within `tokens` in total.

    >>> slice_length(rows=128, length=512, tokens=8192)
    64
    """
    fitting = (size for size in range(1, length + 1) if length % size == 0)
    return max((size for size in fitting if size * rows <= tokens), default=1)


def by_slices(work: Callable[..., Any], start: Any, arrays: tuple[Array, ...], tokens: int) -> Any:
    """Scan `work(carry, *slices)` over slices of the second axis; outputs are joined there.

    Returns the last carry, and the outputs.
    """
    rows, length = arrays[0].shape[:2]
    size = slice_length(rows, length, tokens)

    def split(values: Array) -> Array:
        shape = (rows, length // size, size, *values.shape[2:])
        return jnp.moveaxis(values.reshape(shape), 1, 0)

    def join(values: Array) -> Array:
        return jnp.moveaxis(values, 0, 1).reshape(rows, length, *values.shape[3:])

    end, outputs = lax.scan(
        lambda carry, slices: work(carry, *slices), start, tuple(map(split, arrays))
    )
    return end, jax.tree.map(join, outputs)


def log_sums(scores: Array) -> Array:
    """log Σ exp over the vocabulary, in float32."""
    return jax.nn.logsumexp(scores.astype(jnp.float32), axis=-1)


def at_targets(scores: Array, targets: Array) -> Array:
    """Every target's own score, in float32."""
    # Read before converting: the other way round a float32 copy of all scores would be written.
    return jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0].astype(jnp.float32)


def probabilities(scores: Array, log_sum: Array) -> Array:
    """The softmax of the scores, in float32."""
    return jnp.exp(scores.astype(jnp.float32) - log_sum[..., None])


def token_losses(hidden: Array, head: Array, targets: Array, tokens: int) -> tuple[Array, Array]:
    """(−log p of every target, log Σ exp of its logits), float32 (rows, length) each.

    Logits are products in the type of `hidden`, as everything before them; all that follows is
    float32. Not meant to be differentiated: `mean_loss` is.
    """
    head = head.astype(hidden.dtype)

    def work(carry: None, states: Array, wanted: Array) -> tuple[None, tuple[Array, Array]]:
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
        carry: tuple[Array, Array], states: Array, wanted: Array
    ) -> tuple[tuple[Array, Array], Array]:
        total, head_gradient = carry
        scores = states @ cast
        log_sum = log_sums(scores)
        total = total + (log_sum - at_targets(scores, wanted)).sum()
        is_target = jnp.arange(scores.shape[-1]) == wanted[..., None]
        errors = (probabilities(scores, log_sum) - is_target).astype(hidden.dtype)
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


_COLUMNS_AT_ONCE = 1024  # of the vocabulary, in exact comparisons


def signs(key: Array, rows: int, columns: int) -> Array:
    """A matrix of ±1/√columns, whose product with its transpose is the identity on average."""
    return jax.random.rademacher(key, (rows, columns), jnp.float32) / columns**0.5


class Buckets(NamedTuple):
    """A vocabulary in buckets of equal size: place p is in bucket p // (places / buckets)."""

    tokens: Array  # int32[places]: the token at each place; the vocabulary's size where none is
    places: Array  # int32[vocab]: each token's place
    signs: Array  # float32[places]: ±1, or 0 where there is no token


def assign_buckets(key: Array, vocab: int, buckets: int) -> Buckets:
    """Assign tokens to buckets at random; the last ones stay partly empty if they do not fill.

    >>> assigned = assign_buckets(jax.random.key(0), vocab=5, buckets=3)
    >>> assigned.tokens.shape, int((assigned.signs == 0).sum())
    ((6,), 1)
    """
    for_order, for_signs = jax.random.split(key)
    order = jax.random.permutation(for_order, vocab).astype(jnp.int32)
    drawn = jax.random.rademacher(for_signs, (vocab,), jnp.float32)
    empty = (0, -vocab % buckets)
    return Buckets(
        jnp.pad(order, empty, constant_values=vocab),
        jnp.argsort(order).astype(jnp.int32),
        jnp.pad(drawn, empty),
    )


def sketched_gradients(
    hidden: Array, head: Array, targets: Array, key: Array, sketch: tuple[int, int], tokens: int
) -> tuple[Array, Array]:
    """(losses, features): mean losses (rows,) and sketches (rows, product of `sketch`), float32.

    Σ_t (Rᵀ h_it)(Qᵀ p_it − Qᵀ y_it)ᵀ, where Qᵀ y is a sign in one bucket. The key alone decides R
    and Q.

    >>> hidden, head = jnp.ones((3, 4, 2)), jnp.ones((2, 5))
    >>> targets = jnp.zeros((3, 4), jnp.int32)
    >>> losses, features = sketched_gradients(
    ...     hidden, head, targets, jax.random.key(0), (2, 8), tokens=100
    ... )
    >>> losses.shape, features.shape
    ((3,), (3, 16))
    """
    left_key, right_key = jax.random.split(key)
    width, vocab = head.shape
    left = signs(left_key, width, sketch[0])
    assigned = assign_buckets(right_key, vocab, sketch[1])
    is_token = assigned.tokens < vocab
    head = jnp.take(head.astype(hidden.dtype), assigned.tokens, axis=1, mode="clip")
    seen = jnp.einsum("btw,wl->btl", hidden, left.astype(hidden.dtype))
    rows, length, _ = hidden.shape
    start = (jnp.zeros(rows, jnp.float32), jnp.zeros((rows, *sketch), jnp.float32))

    def by_bucket(values: Array) -> Array:
        return values.reshape(*values.shape[:-1], sketch[1], -1).sum(axis=-1)

    def work(
        carry: tuple[Array, Array], states: Array, views: Array, wanted: Array
    ) -> tuple[tuple[Array, Array], None]:
        total, features = carry
        scores = states @ head
        if vocab % sketch[1]:
            scores = jnp.where(is_token, scores, -jnp.inf)
        # One pass finds the largest score, a second all sums: no probability is ever stored.
        largest = scores.max(axis=-1).astype(jnp.float32)
        powers = jnp.exp(scores.astype(jnp.float32) - largest[..., None])
        power = by_bucket(powers).sum(axis=-1)
        expected = by_bucket(powers * assigned.signs) / power[..., None]
        total = total + (largest + jnp.log(power) - at_targets(scores, wanted)).sum(axis=1)
        came = jax.nn.one_hot(wanted // (len(assigned.tokens) // sketch[1]), sketch[1])
        errors = (expected - came * assigned.signs[wanted][..., None]).astype(hidden.dtype)
        more = jnp.einsum("btl,btr->blr", views, errors, preferred_element_type=jnp.float32)
        return (total, features + more), None

    places = assigned.places[targets]
    (total, features), _ = by_slices(work, start, (hidden, seen, places), tokens)
    return total / length, features.reshape(rows, -1)


def inner_products(features: Array) -> Array:
    """⟨φ_i, φ_j⟩ of all pairs, without the rounding that GPUs allow themselves by default."""
    return jnp.matmul(features, features.T, precision=lax.Precision.HIGHEST)


def l1_distances(features: Array) -> Array:
    """Σ |φ_i − φ_j| of all pairs, one row at a time."""
    return lax.map(lambda row: jnp.abs(features - row).sum(axis=-1), features)


def exact_products(hidden: Array, head: Array, targets: Array, tokens: int) -> tuple[Array, Array]:
    """(losses, ⟨G_i, G_j⟩ of all pairs), float32."""
    return _by_columns(inner_products, hidden, head, targets, tokens)


def exact_distances(hidden: Array, head: Array, targets: Array, tokens: int) -> tuple[Array, Array]:
    """(losses, Σ |G_i − G_j| of all pairs), float32."""
    return _by_columns(l1_distances, hidden, head, targets, tokens)


def largest_gradients(
    hidden: Array, head: Array, targets: Array, count: int, tokens: int
) -> tuple[Array, Array]:
    """(losses, features (rows, count)): the coordinates of largest mean |G_i| over the rows.

    Each group of columns is merged with the largest coordinates of those before it.
    """
    count = min(count, head.shape[0] * head.shape[1])

    def merge(best: Array, gradients: Array) -> Array:
        both = jnp.concatenate([best, gradients], axis=1)
        magnitude = jnp.abs(jnp.where(jnp.isfinite(both), both, 0.0)).mean(axis=0)
        return both[:, lax.top_k(magnitude, count)[1]]

    start = jnp.zeros((len(hidden), count), jnp.float32)
    return _over_columns(merge, start, hidden, head, targets, tokens)


def _by_columns(
    compare: Callable[[Array], Array], hidden: Array, head: Array, targets: Array, tokens: int
) -> tuple[Array, Array]:
    """Sum a comparison of the gradients over groups of their columns, which are the vocabulary."""
    start = jnp.zeros((len(hidden), len(hidden)), jnp.float32)
    return _over_columns(
        lambda total, gradients: total + compare(gradients), start, hidden, head, targets, tokens
    )


def _over_columns(
    work: Callable[[Array, Array], Array],
    start: Array,
    hidden: Array,
    head: Array,
    targets: Array,
    tokens: int,
) -> tuple[Array, Array]:
    """(losses, what `work` makes of the gradients), some columns of all gradients at a time."""
    losses, log_sum = token_losses(hidden, head, targets, tokens)
    rows, _, width = hidden.shape
    vocab = head.shape[1]
    columns = min(_COLUMNS_AT_ONCE, vocab)
    groups = -(-vocab // columns)
    padded = jnp.pad(head.astype(hidden.dtype), ((0, 0), (0, groups * columns - vocab)))
    by_group = jnp.moveaxis(padded.reshape(width, groups, columns), 1, 0)

    def step(carry: Array, group: tuple[Array, Array]) -> tuple[Array, None]:
        part, first = group
        names = first + jnp.arange(columns)
        errors = probabilities(hidden @ part, log_sum) - (names == targets[..., None])
        errors = jnp.where(names < vocab, errors, 0.0)
        gradients = jnp.einsum(
            "btw,btv->bwv",
            hidden,
            errors.astype(hidden.dtype),
            preferred_element_type=jnp.float32,
        )
        return work(carry, gradients.reshape(rows, -1)), None

    end, _ = lax.scan(step, start, (by_group, columns * jnp.arange(groups)))
    return losses.mean(axis=1), end
