"""Gradient features from the forward pass: exact ones against autodiff, sketches against exact."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from uniproto.lm.pretraining import gradients as module
from uniproto.lm.pretraining.model import hidden_states, initial_params, logits, model_config

ROWS, LENGTH, VOCAB = 6, 16, 90
CONFIG = model_config("tiny", vocab=VOCAB, length=LENGTH)
sketched_gradients = jax.jit(module.sketched_gradients, static_argnums=(4, 5))


@pytest.fixture(scope="module")
def scored():
    """Hidden states, head, targets, and every sequence's gradient and loss by autodiff."""
    params = jax.jit(initial_params, static_argnums=0)(CONFIG, jax.random.key(0))
    params["head"] *= 10
    tokens = jax.random.randint(jax.random.key(1), (ROWS, LENGTH + 1), 0, VOCAB)

    def loss(head, row):
        scores = logits({**params, "head": head}, row[None, :-1], CONFIG, dtype=jnp.float32)[0]
        chances = jax.nn.log_softmax(scores)
        return -jnp.take_along_axis(chances, row[1:, None], axis=-1).sum()

    each = jax.jit(jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0)))
    losses, gradients = each(params["head"], tokens)
    read = jax.jit(hidden_states, static_argnames=("config", "dtype"))
    hidden = read(params, tokens[:, :-1], CONFIG, dtype=jnp.float32)
    return hidden, params["head"], tokens[:, 1:], losses / LENGTH, gradients.reshape(ROWS, -1)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [32, 1024])  # several groups of the vocabulary, or one
def test_exact_comparisons_are_those_of_the_gradients(scored, columns, monkeypatch):
    monkeypatch.setattr(module, "_COLUMNS_AT_ONCE", columns)
    hidden, head, targets, losses, gradients = scored
    found, products = jax.jit(module.exact_products, static_argnums=3)(hidden, head, targets, 30)
    assert np.allclose(found, losses, rtol=1e-5)
    expected = np.asarray(gradients) @ np.asarray(gradients).T
    assert np.allclose(products, expected, rtol=1e-4, atol=1e-4 * expected.max())
    _, distances = jax.jit(module.exact_distances, static_argnums=3)(hidden, head, targets, 30)
    expected = np.abs(gradients[:, None] - gradients[None]).sum(axis=-1)
    assert np.allclose(distances, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_a_sketch_is_the_gradient_between_two_random_matrices(scored):
    hidden, head, targets, losses, gradients = scored
    key = jax.random.key(5)
    found, features = sketched_gradients(hidden, head, targets, key, (3, 7), 30)
    left_key, right_key = jax.random.split(key)
    left = module.signs(left_key, CONFIG.width, 3)
    assigned = module.assign_buckets(right_key, VOCAB, 7)  # 13 places in a bucket, one of 91 empty
    right = np.zeros((VOCAB, 7))
    right[np.arange(VOCAB), assigned.places // 13] = assigned.signs[assigned.places]
    whole = gradients.reshape(ROWS, CONFIG.width, VOCAB)
    expected = jnp.einsum("iwv,wl,vr->ilr", whole, left, right).reshape(ROWS, -1)
    assert np.allclose(features, expected, rtol=1e-4, atol=1e-4 * float(jnp.abs(expected).max()))
    assert np.allclose(found, losses, rtol=1e-5)


def many_sketches(scored, sketch, count):
    hidden, head, targets, _, _ = scored

    def products(key):
        _, features = sketched_gradients(hidden, head, targets, key, sketch, 1000)
        return module.inner_products(features)

    keys = jax.random.split(jax.random.key(2), count)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(products, keys))(keys))


@pytest.mark.slow
def test_sketched_inner_products_are_right_on_average(scored):
    gradients = np.asarray(scored[-1], np.float64)
    exact = gradients @ gradients.T
    found = many_sketches(scored, (8, 8), 2000)
    error = found.mean(axis=0) - exact
    deviation = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(error) < 4.5 * deviation).all()


@pytest.mark.slow
def test_sketched_cosines_are_near_and_nearer_with_a_larger_sketch(scored):
    gradients = np.asarray(scored[-1], np.float64)
    exact = cosines(gradients @ gradients.T)
    errors = {}
    for sketch in ((8, 8), (64, 64)):
        found = [cosines(products) for products in many_sketches(scored, sketch, 20)]
        errors[sketch] = np.sqrt(np.mean((np.array(found) - exact) ** 2))
    # A gradient of rank one, the worst case, would have √(1/left + 1/right).
    assert errors[8, 8] < np.sqrt(1 / 8 + 1 / 8)
    assert errors[64, 64] < 0.1
    assert errors[64, 64] < errors[8, 8] / 2


def cosines(products):
    lengths = np.sqrt(np.diag(products))
    return np.asarray(products) / (lengths[:, None] * lengths)


@pytest.mark.slow
def test_a_sequence_that_is_not_finite_spoils_only_itself(scored):
    hidden, head, targets, *_ = scored
    spoilt = hidden.at[2, 5].set(jnp.nan)
    found, features = sketched_gradients(spoilt, head, targets, jax.random.key(0), (8, 8), 30)
    assert np.isnan(found[2])
    assert np.isfinite(np.delete(np.asarray(features), 2, axis=0)).all()
    assert not np.isfinite(features[2]).any()
