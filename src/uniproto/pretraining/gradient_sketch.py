"""What each sequence would teach the output projection, from one forward pass.

The loss of sequence i has the gradient G_i = Σ_t h_it (p_it − y_it)ᵀ with respect to the output
projection: h is what the projection reads, p the predicted chances, y the token that came. No
backward pass is needed, but G_i is as large as the projection itself.

- `sketched_gradients` returns Rᵀ G_i Q for random matrices R and Q of few columns. R has entries
  ±1/√columns; Q deals the vocabulary into equal hands and adds each up with random signs (a count
  sketch), which needs no product: the sums are taken while the softmax is. Since
  E[R Rᵀ] = E[Q Qᵀ] = I, inner products of sketches are, on average over the matrices, those of the
  gradients.
- `exact_products` and `exact_distances` compare the gradients themselves, some columns at a time.

Gradients are sums over a sequence's tokens; all sequences are equally long, so that cosines and
orders are those of means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from uniproto.pretraining.token_losses import at_targets, by_slices, chances, token_losses

_COLUMNS_AT_ONCE = 1024  # of the vocabulary, in exact comparisons


def signs(key: Array, rows: int, columns: int) -> Array:
    """A matrix of ±1/√columns, whose product with its transpose is the identity on average."""
    return jax.random.rademacher(key, (rows, columns), jnp.float32) / columns**0.5


class Hands(NamedTuple):
    """A vocabulary dealt into equal hands: place p belongs to hand p // (places / hands)."""

    tokens: Array  # int32[places]: the token at each place; the vocabulary's size where none is
    places: Array  # int32[vocab]: each token's place
    signs: Array  # float32[places]: ±1, or 0 where there is no token


def deal(key: Array, vocab: int, hands: int) -> Hands:
    """Deal at random, hand after hand: where the tokens do not go round, the last ones lack some.

    >>> dealt = deal(jax.random.key(0), vocab=5, hands=3)
    >>> dealt.tokens.shape, int((dealt.signs == 0).sum())
    ((6,), 1)
    """
    for_order, for_signs = jax.random.split(key)
    order = jax.random.permutation(for_order, vocab).astype(jnp.int32)
    drawn = jax.random.rademacher(for_signs, (vocab,), jnp.float32)
    empty = (0, -vocab % hands)
    return Hands(
        jnp.pad(order, empty, constant_values=vocab),
        jnp.argsort(order).astype(jnp.int32),
        jnp.pad(drawn, empty),
    )


def sketched_gradients(
    hidden: Array, head: Array, targets: Array, key: Array, sketch: tuple[int, int], tokens: int
) -> tuple[Array, Array]:
    """(losses, features): mean losses (rows,) and sketches (rows, product of `sketch`), float32.

    Σ_t (Rᵀ h_it)(Qᵀ p_it − Qᵀ y_it)ᵀ, where Qᵀ y is a sign in one hand. The key alone decides R
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
    dealt = deal(right_key, vocab, sketch[1])
    is_token = dealt.tokens < vocab
    head = jnp.take(head.astype(hidden.dtype), dealt.tokens, axis=1, mode="clip")
    seen = jnp.einsum("btw,wl->btl", hidden, left.astype(hidden.dtype))
    rows, length, _ = hidden.shape
    start = (jnp.zeros(rows, jnp.float32), jnp.zeros((rows, *sketch), jnp.float32))

    def in_hands(values: Array) -> Array:
        return values.reshape(*values.shape[:-1], sketch[1], -1).sum(axis=-1)

    def work(
        carried: tuple[Array, Array], states: Array, views: Array, wanted: Array
    ) -> tuple[tuple[Array, Array], None]:
        total, features = carried
        scores = states @ head
        if vocab % sketch[1]:
            scores = jnp.where(is_token, scores, -jnp.inf)
        # One pass finds the largest score, a second all sums: no chance is ever written down.
        largest = scores.max(axis=-1).astype(jnp.float32)
        powers = jnp.exp(scores.astype(jnp.float32) - largest[..., None])
        power = in_hands(powers).sum(axis=-1)
        expected = in_hands(powers * dealt.signs) / power[..., None]
        total = total + (largest + jnp.log(power) - at_targets(scores, wanted)).sum(axis=1)
        came = jax.nn.one_hot(wanted // (len(dealt.tokens) // sketch[1]), sketch[1])
        errors = (expected - came * dealt.signs[wanted][..., None]).astype(hidden.dtype)
        more = jnp.einsum("btl,btr->blr", views, errors, preferred_element_type=jnp.float32)
        return (total, features + more), None

    places = dealt.places[targets]
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


def _by_columns(
    compare: Callable[[Array], Array], hidden: Array, head: Array, targets: Array, tokens: int
) -> tuple[Array, Array]:
    """Sum a comparison of the gradients over groups of their columns, which are the vocabulary."""
    losses, log_sum = token_losses(hidden, head, targets, tokens)
    rows, _, width = hidden.shape
    vocab = head.shape[1]
    columns = min(_COLUMNS_AT_ONCE, vocab)
    groups = -(-vocab // columns)
    padded = jnp.pad(head.astype(hidden.dtype), ((0, 0), (0, groups * columns - vocab)))
    by_group = jnp.moveaxis(padded.reshape(width, groups, columns), 1, 0)

    def work(total: Array, group: tuple[Array, Array]) -> tuple[Array, None]:
        part, first = group
        names = first + jnp.arange(columns)
        errors = chances(hidden @ part, log_sum) - (names == targets[..., None])
        errors = jnp.where(names < vocab, errors, 0.0)
        gradients = jnp.einsum(
            "btw,btv->bwv",
            hidden,
            errors.astype(hidden.dtype),
            preferred_element_type=jnp.float32,
        )
        return total + compare(gradients.reshape(rows, -1)), None

    start = jnp.zeros((rows, rows), jnp.float32)
    total, _ = lax.scan(work, start, (by_group, columns * jnp.arange(groups)))
    return losses.mean(axis=1), total
