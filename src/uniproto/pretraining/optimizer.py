"""Adam with the schedule, clipping and decay that `StepSettings` asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from uniproto.errors import MissingExtraError
from uniproto.pretraining.step_settings import StepSettings

try:
    import optax
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error


def make_optimizer(settings: StepSettings) -> Any:
    """The optimizer as an Optax transformation of float32 gradients."""
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
        assert settings.steps is not None  # StepSettings sees to it
        after = optax.cosine_decay_schedule(highest, settings.steps - warmup)
    else:
        after = optax.constant_schedule(highest)
    if not warmup:
        return after
    # The first step learns too: the rate is highest/warmup there, not 0.
    rising = optax.linear_schedule(highest / warmup, highest, warmup - 1)
    return optax.join_schedules([rising, after], [warmup])


def _matrices(params: Any) -> Any:
    """Norms, also those stacked over layers, are named so; all else is matrices."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: not str(path[-1].key).endswith("norm"), params
    )
