"""The compiled step: it trains on the rows it chose, and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.refusals import refused

from uniproto.algorithm import uniprot
from uniproto.errors import InvalidInputError, UniprotoError
from uniproto.lm.pretraining import choose
from uniproto.lm.pretraining.model import ModelConfig, logits
from uniproto.lm.pretraining.pretrain_settings import METHODS, StepSettings
from uniproto.lm.pretraining.step import (
    initial_state,
    learning_rates,
    make_optimizer,
    make_step,
    make_validation,
)
from uniproto.problem.masses import integer_masses

CONFIG = ModelConfig(vocab=40, width=16, layers=2, heads=2, kv_heads=1, hidden=24, length=8)
SETTINGS = StepSettings(
    pool=8, keep=4, dtype="float32", learning_rate=1e-3, sketch=(8, 8), anchors=2
)


def some_pool(seed=0, rows=SETTINGS.pool):
    shape = (rows, CONFIG.length + 1)
    return jax.random.randint(jax.random.key(seed), shape, 0, CONFIG.vocab)


@cache  # a compilation takes seconds
def step_of(settings):
    return make_step(CONFIG, settings)


def plain_loss(params, rows):
    chances = jax.nn.log_softmax(logits(params, rows[:, :-1], CONFIG, dtype=jnp.float32))
    return -jnp.take_along_axis(chances, rows[:, 1:, None], axis=-1).mean()


@pytest.mark.slow
def test_the_update_is_that_of_a_plain_step_on_the_chosen_rows():
    before = initial_state(CONFIG, SETTINGS, seed=0)
    kept = jax.tree.map(np.array, before)  # the step uses its state up
    pool = some_pool()
    state, report = step_of(SETTINGS)(before, pool)
    assert len(set(report.picks.tolist())) == SETTINGS.keep
    loss, gradients = jax.jit(jax.value_and_grad(plain_loss))(kept.params, pool[report.picks])
    assert float(report.loss) == pytest.approx(float(loss), rel=1e-5)
    norm = np.sqrt(sum((np.asarray(g) ** 2).sum() for g in jax.tree.leaves(gradients)))
    assert float(report.gradient_norm) == pytest.approx(norm, rel=1e-4)
    # Adam's first step divides a gradient by its own size, which turns rounding errors of tiny
    # gradients into whole steps: the moments say what the gradient was, without that.
    jax.tree.map(
        lambda m, gradient: np.testing.assert_allclose(
            m, 0.1 * np.asarray(gradient), rtol=1e-3, atol=1e-7
        ),
        state.optimizer[0].mu,
        gradients,
    )
    # Adam's first step is of the learning rate's size, against the gradient's sign.
    jax.tree.map(
        lambda new, old, gradient: np.testing.assert_allclose(
            np.where(np.abs(gradient) > 1e-5, new - old, 0),
            np.where(np.abs(gradient) > 1e-5, -1e-3 * np.sign(gradient), 0),
            atol=1e-5,
        ),
        *(jax.tree.map(np.asarray, tree) for tree in (state.params, kept.params, gradients)),
    )


@pytest.mark.slow
def test_the_picks_are_those_of_the_algorithm_on_the_same_costs():
    state = initial_state(CONFIG, SETTINGS, seed=1)
    pool = some_pool(3)
    key, _ = jax.random.split(jax.random.fold_in(state.key, state.step))
    score = jax.jit(choose.scores, static_argnums=(0, 1))
    _, products = score(CONFIG, SETTINGS, state.params, pool, key)
    costs, unit = choose.integer_costs(choose.cosine_costs(products), jnp.ones(SETTINGS.pool, bool))
    masses = integer_masses(SETTINGS.keep, SETTINGS.pool)
    expected, expected_costs = uniprot(np.asarray(costs, float), SETTINGS.keep, masses)
    _, report = step_of(SETTINGS)(state, pool)
    assert report.picks.tolist() == expected
    assert float(report.cost) == pytest.approx(float(unit) * np.mean(expected_costs), rel=1e-5)


@pytest.mark.slow
def test_a_step_repeats_itself_and_each_draws_anew():
    def three_steps():
        state, reports = initial_state(CONFIG, SETTINGS, seed=2), []
        for _ in range(3):
            state, report = step_of(SETTINGS)(state, some_pool())
            reports.append(report)
        return state, reports

    once, again = three_steps(), three_steps()
    jax.tree.map(np.testing.assert_array_equal, once, again)
    reports = once[1]
    assert reports[2].loss < reports[0].loss


@pytest.mark.slow
def test_parameters_that_are_not_finite_stop_the_step_and_stay_as_they_were():
    state = initial_state(CONFIG, SETTINGS, seed=0)
    state.params["final_norm"] = state.params["final_norm"].at[0].set(jnp.nan)
    kept = jax.tree.map(np.array, state)
    state, report = step_of(SETTINGS)(state, some_pool())
    assert not report.finite
    assert int(report.left_out) == SETTINGS.pool
    assert int(state.step) == 1
    jax.tree.map(np.testing.assert_array_equal, state.params, kept.params)
    jax.tree.map(np.testing.assert_array_equal, state.optimizer, kept.optimizer)


@pytest.mark.slow
def test_a_sequence_whose_score_is_not_finite_is_never_chosen():
    state = initial_state(CONFIG, SETTINGS, seed=0)
    pool = some_pool() % (CONFIG.vocab - 1)
    pool = pool.at[1].set(CONFIG.vocab - 1).at[6].set(CONFIG.vocab - 1)
    embedding = state.params["embedding"]
    state.params["embedding"] = embedding.at[CONFIG.vocab - 1].set(jnp.inf)
    _, report = step_of(SETTINGS)(state, pool)
    assert int(report.left_out) == 2
    assert not {1, 6} & set(report.picks.tolist())
    assert report.finite
    assert np.isfinite(report.pool_loss)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "uniproto"])
def test_every_method_chooses_rows_of_the_pool(method):
    settings = replace(SETTINGS, method=method)
    state = initial_state(CONFIG, SETTINGS, seed=0)
    compiled = jax.jit(choose.choose, static_argnums=(0, 1))
    choice = compiled(CONFIG, settings, state.params, some_pool(), state.key, 1e-4)
    rows = choice.rows.tolist()
    assert len(set(rows)) == settings.trained
    assert set(rows) <= set(range(settings.pool))
    assert int(choice.left_out) == 0
    assert np.isnan(choice.cost)
    if method == "maxloss":
        each = jax.jit(jax.vmap(plain_loss, in_axes=(None, 0)))(state.params, some_pool()[:, None])
        assert rows == sorted(range(8), key=lambda i: -each[i])[:4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, method="greats"),
        replace(SETTINGS, plan="entropic"),
        replace(SETTINGS, method="colm", features="exact"),
        replace(
            SETTINGS,
            dtype="bfloat16",
            recompute=True,
            schedule="cosine",
            warmup=1,
            steps=9,
            weight_decay=0.1,
            clip=1.0,
        ),
    ],
    ids=lambda settings: f"{settings.method}-{settings.plan}-{settings.features}",
)
def test_every_setting_learns(settings):
    state, losses = initial_state(CONFIG, settings, seed=0), []
    for _ in range(8):
        state, report = step_of(settings)(state, some_pool())
        assert report.finite
        losses.append(float(report.loss))
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_validation_sums_what_the_model_loses():
    params = initial_state(CONFIG, SETTINGS, seed=0).params
    total, count = make_validation(CONFIG, "float32")(params, some_pool())
    expected = jax.jit(plain_loss)(params, some_pool())
    assert int(count) == SETTINGS.pool * CONFIG.length
    assert float(total / count) == pytest.approx(float(expected), rel=1e-5)
    with refused("dtype", UniprotoError):
        make_validation(CONFIG, "float16")


def test_learning_rates_rise_stay_or_fall():
    settings = StepSettings(learning_rate=1.0, schedule="cosine", warmup=4, steps=12)
    rates = jax.jit(jax.vmap(learning_rates(settings)))(jnp.array([0, 3, 4, 8, 12])).tolist()
    assert rates == pytest.approx([0.25, 1.0, 1.0, 0.5, 0.0])
    assert float(learning_rates(StepSettings())(10_000)) == pytest.approx(1e-4)


@pytest.mark.slow
def test_decay_moves_matrices_and_no_norms():
    settings = replace(SETTINGS, weight_decay=0.5)
    params = initial_state(CONFIG, SETTINGS, seed=0).params
    optimizer = make_optimizer(settings)
    nothing = jax.tree.map(np.zeros_like, params)
    updates, _ = jax.jit(optimizer.update)(nothing, optimizer.init(nothing), params)
    assert not updates["final_norm"].any()
    assert not updates["layers"]["mlp_norm"].any()
    assert np.allclose(updates["head"], -1e-3 * 0.5 * params["head"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "unprot"},
        *({"keep": odd} for odd in (9, 0)),
        {"plan": "resolve"},
        {"learning_rate": float("nan")},
        {"clip": 0.0},
        {"schedule": "cosine"},
        {"anchors": 9, "method": "greats"},
        {"pool": 8192, "keep": 4096},
    ],
)
def test_bad_settings_are_refused(wrong):
    with refused(next(iter(wrong)), InvalidInputError):
        replace(SETTINGS, **wrong)


def test_a_pool_of_another_shape_is_refused():
    with refused("pool_tokens", InvalidInputError):
        step_of(SETTINGS)(None, some_pool(rows=6))
