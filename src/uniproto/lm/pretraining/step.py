"""Scoring, choosing and training as one compiled step, on one device or several.

A step is a pure function of its state and its pool: what is random in it comes from
fold_in(state.key, state.step), so that a run continued from a saved state repeats the
uninterrupted one. On several devices each scores its share of the pool; the features are gathered
and the same choice is made everywhere; the chosen sequences are shared out evenly; gradients are
averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from uniproto.errors import InvalidInputError, require_int, require_name
from uniproto.lm.pretraining.choose import choose, cosine_costs, integer_costs, pick_by_fills
from uniproto.lm.pretraining.gradients import inner_products, mean_loss, token_losses
from uniproto.lm.pretraining.model import ModelConfig, Params, hidden_states, initial_params
from uniproto.lm.pretraining.pretrain_settings import DTYPES, StepSettings

__all__ = [
    "StepReport",
    "StepSettings",
    "TrainState",
    "initial_state",
    "make_step",
    "make_validation",
]


class TrainState(NamedTuple):
    """Everything a run carries from step to step; arrays alone, so that it can be saved."""

    params: Params
    optimizer: Any
    step: Array  # int32: steps taken
    key: Array  # uint32: of the run's random draws, never changed


class StepReport(NamedTuple):
    """What a step reports. Reading any of it waits for the step to end."""

    loss: Array  # mean over the tokens trained on, before the update
    picks: Array  # int32[keep]: rows of the pool in the order picked (`full`: all of them)
    cost: Array  # mean cost of the picks' fills (`uniproto`; otherwise NaN)
    pool_loss: Array  # mean over the usable sequences of the pool (NaN where none was scored)
    gradient_norm: Array  # before clipping
    left_out: Array  # int32: sequences whose scores are not finite, which are never chosen
    finite: Array  # bool: if not, the state came back as it was, but for its step number
    violation: Array  # of entropic plans, the largest share of mass above capacity (or NaN)


def initial_state(config: ModelConfig, settings: StepSettings, seed: int) -> TrainState:
    """The state before the first step.

    >>> from uniproto.lm.pretraining.model import model_config
    >>> config = model_config("tiny", vocab=50, length=8)
    >>> int(initial_state(config, StepSettings(), seed=0).step)
    0
    """
    return _first_state(config, settings, jax.random.PRNGKey(seed))


@partial(jax.jit, static_argnums=(0, 1))  # as one program: a tenth of the time of many
def _first_state(config: ModelConfig, settings: StepSettings, key: Array) -> TrainState:
    for_params, for_steps = jax.random.split(key)
    params = initial_params(config, for_params)
    optimizer = make_optimizer(settings).init(params)
    return TrainState(params, optimizer, jnp.zeros((), jnp.int32), for_steps)


def make_step(
    config: ModelConfig, settings: StepSettings, mesh: Mesh | None = None
) -> Callable[[TrainState, Array], tuple[TrainState, StepReport]]:
    """Compile `step(state, pool_tokens) -> (state, report)` for int32 tokens (pool, length + 1).

    Each sequence has one token more than the model reads, for the last one's target. The state
    given is used up: its memory becomes that of the state returned. With a mesh of devices the
    first axis shares out the pool; everything else is the same on all of them.

    >>> from uniproto.lm.pretraining.model import model_config
    >>> config = model_config("tiny", vocab=50, length=8)
    >>> settings = StepSettings(pool=4, keep=2, dtype="float32")
    >>> step = make_step(config, settings)
    >>> pool = jax.random.randint(jax.random.key(0), (4, 9), 0, 50)
    >>> state, report = step(initial_state(config, settings, seed=0), pool)
    >>> int(state.step), report.picks.shape, bool(report.finite)
    (1, (2,), True)
    """
    axis = None if mesh is None else mesh.axis_names[0]
    devices = 1 if mesh is None else mesh.shape[axis]
    for name, count in (("pool", settings.pool), ("keep", settings.trained)):
        if count % devices:
            raise InvalidInputError(f"{name}={count} must be a multiple of the {devices} devices.")
    step = partial(_step, config, settings, axis)
    if mesh is not None:
        whole, shared = PartitionSpec(), PartitionSpec(axis)
        # Every device computes the same state and report, which shard_map cannot prove.
        step = jax.shard_map(
            step, mesh=mesh, in_specs=(whole, shared), out_specs=whole, check_vma=False
        )
    compiled = jax.jit(step, donate_argnums=0)
    expected = (settings.pool, config.length + 1)

    def checked(state: TrainState, pool_tokens: Array) -> tuple[TrainState, StepReport]:
        if pool_tokens.shape != expected:
            raise InvalidInputError(
                f"must have the shape (pool, length + 1), {expected}, not {pool_tokens.shape}.",
                parameter="pool_tokens",
            )
        return compiled(state, pool_tokens)

    return checked


def make_validation(
    config: ModelConfig, dtype: str, mesh: Mesh | None = None
) -> Callable[[Params, Array], tuple[Array, Array]]:
    """Compile `f(params, tokens[rows, length + 1]) -> (sum of token losses, tokens counted)`.

    With a mesh the rows must be a multiple of its devices.
    """
    require_name("dtype", dtype, DTYPES)
    axis = None if mesh is None else mesh.axis_names[0]
    per_slice = StepSettings().tokens_per_slice

    def total(params: Params, tokens: Array) -> tuple[Array, Array]:
        hidden = hidden_states(params, tokens[:, :-1], config, dtype=jnp.dtype(dtype))
        losses, _ = token_losses(hidden, params["head"], tokens[:, 1:], per_slice)
        count = jnp.asarray(losses.size, jnp.int32)
        if axis is None:
            return losses.sum(), count
        return lax.psum(losses.sum(), axis), lax.psum(count, axis)

    if mesh is None:
        return jax.jit(total)
    whole, shared = PartitionSpec(), PartitionSpec(axis)
    return jax.jit(jax.shard_map(total, mesh=mesh, in_specs=(whole, shared), out_specs=whole))


def _step(
    config: ModelConfig,
    settings: StepSettings,
    axis: str | None,
    state: TrainState,
    pool: Array,
) -> tuple[TrainState, StepReport]:
    dtype = jnp.dtype(settings.dtype)
    rate = learning_rates(settings)(state.step)
    key = jax.random.fold_in(state.key, state.step)
    choice = choose(config, settings, state.params, pool, key, rate, axis)
    batch = _share(pool, choice.rows, axis)

    def batch_loss(params: Params) -> Array:
        hidden = hidden_states(
            params, batch[:, :-1], config, dtype=dtype, recompute=settings.recompute
        )
        return mean_loss(hidden, params["head"], batch[:, 1:], settings.tokens_per_slice)

    loss, gradients = jax.value_and_grad(batch_loss)(state.params)
    if axis is not None:
        loss, gradients = lax.pmean((loss, gradients), axis)
    norm = jnp.sqrt(sum(jnp.sum(part * part) for part in jax.tree.leaves(gradients)))
    updates, optimizer = make_optimizer(settings).update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    # With fewer usable sequences than `keep` some picks are not the method's.
    finite = jnp.isfinite(loss) & jnp.isfinite(norm) & (choice.left_out <= _spare(settings))
    params, optimizer = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old),
        (params, optimizer),
        (state.params, state.optimizer),
    )
    report = StepReport(
        loss=loss,
        picks=choice.rows,
        cost=choice.cost,
        pool_loss=choice.pool_loss,
        gradient_norm=norm,
        left_out=choice.left_out,
        finite=finite,
        violation=choice.violation,
    )
    return TrainState(params, optimizer, state.step + 1, state.key), report


def _spare(settings: StepSettings) -> int:
    return settings.pool - settings.trained


def _share(pool: Array, rows: Array, axis: str | None) -> Array:
    """This device's even share of the chosen rows, wherever in the pool they lie."""
    if axis is None:
        return pool[rows]
    whole = lax.all_gather(pool, axis, tiled=True)
    share = len(rows) // lax.axis_size(axis)
    return whole[lax.dynamic_slice_in_dim(rows, lax.axis_index(axis) * share, share)]


def make_optimizer(settings: StepSettings) -> Any:
    """Adam with the schedule, clipping and decay of the settings, for float32 gradients."""
    parts = []
    if settings.clip is not None:
        parts.append(optax.clip_by_global_norm(settings.clip))
    parts.append(optax.scale_by_adam())
    if settings.weight_decay:
        parts.append(optax.add_decayed_weights(settings.weight_decay, mask=_matrices))
    parts.append(optax.scale_by_learning_rate(learning_rates(settings)))
    return optax.chain(*parts)


def learning_rates(settings: StepSettings) -> Callable[[Any], Any]:
    """The learning rate as a function of the steps taken before.

    >>> rate = learning_rates(StepSettings(learning_rate=1.0, warmup=2))
    >>> [float(rate(step)) for step in range(4)]
    [0.5, 1.0, 1.0, 1.0]
    """
    highest, warmup = settings.learning_rate, settings.warmup
    if settings.schedule == "cosine":
        assert settings.steps is not None  # StepSettings requires it
        after = optax.cosine_decay_schedule(highest, settings.steps - warmup)
    else:
        after = optax.constant_schedule(highest)
    if not warmup:
        return after
    # The first step learns too: the rate is highest/warmup there, not 0.
    rising = optax.linear_schedule(highest / warmup, highest, warmup - 1)
    return optax.join_schedules([rising, after], [warmup])


def _matrices(params: Any) -> Any:
    """Which parameters are matrices: all but the norms, which are named so."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not str(path[-1].key).endswith("norm"), params
    )


# --- the choice alone -----------------------------------------------------------------------------


METRICS = ("cosine", "dot")


def choose_rows(
    features: Array, keep: int, *, usable: Array | None = None, metric: str = "cosine"
) -> Array:
    """The `keep` rows which, all with equal weight, best represent all rows: int32[keep].

    UniPROT with plan `extend`, in the order picked; the picks are those of
    `uniproto.algorithm.uniprot` on the same costs.

    Args:
        features: (examples, dimensions) numbers of any type.
        keep: how many rows to choose; a Python number, which decides the shape.
        usable: which rows may be chosen and count as targets, bool[examples]. Rows with NaN or
            infinity, and for cosines rows of zeros, never do. With fewer usable rows than `keep`
            the last ones returned are arbitrary: compare `usable.sum()` with `keep`.
        metric: `cosine`, 1 − cos, or `dot`, inner products (max − ⟨x, y⟩).

    >>> import jax
    >>> features = jnp.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [jnp.nan, 0.0], [0.1, 0.9]])
    >>> jax.jit(choose_rows, static_argnums=1)(features, 2)
    Array([0, 2], dtype=int32)
    """
    require_name("metric", metric, METRICS)
    keep = require_int("keep", keep)
    if features.ndim != 2 or keep > len(features):
        raise InvalidInputError(
            f"{keep} must not exceed the rows of features of shape (rows, numbers), not "
            f"{features.shape}.",
            parameter="keep",
        )
    products = inner_products(jnp.asarray(features, jnp.float32))
    own = jnp.diagonal(products)
    fine = jnp.isfinite(own) & ((own > 0) | (metric != "cosine"))
    if usable is not None:
        fine &= usable
    if metric == "cosine":
        costs = cosine_costs(products)
    else:
        both = fine[:, None] & fine
        costs = jnp.max(products, where=both, initial=-jnp.inf) - products
    integers, _ = integer_costs(costs, fine)
    return pick_by_fills(integers, fine, keep).rows
