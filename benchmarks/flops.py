"""Model FLOPs of a pretraining step, as utilisation is commonly reported.

Only products count, a multiplication and an addition each. Of causal attention the half above the
diagonal does not count. A backward pass is twice its forward pass; what is computed again to save
memory does not count either.
"""

from __future__ import annotations

from uniproto.lm.pretraining.model import ModelConfig
from uniproto.lm.pretraining.pretrain_settings import COLM_WIDTH, StepSettings


def step_flops(config: ModelConfig, settings: StepSettings) -> dict[str, int]:
    """Model FLOPs of one step: `scoring` the pool, `sketching`, `training`, and the `total`.

    Exact features cost two more products of the output projection's size, and one of all pairs.
    """
    scoring = settings.pool * sequence_flops(config) if settings.scores else 0
    sketching = feature_flops(config, settings) if settings.compares else 0
    training = 3 * settings.trained * sequence_flops(config)
    return {
        "scoring": scoring,
        "sketching": sketching,
        "training": training,
        "total": scoring + sketching + training,
    }


def sequence_flops(config: ModelConfig) -> int:
    """Of the forward pass of one sequence."""
    layer = config.width * (config.qkv_width + config.width + 3 * config.hidden)
    attended = (config.length + 1) * config.width  # products with keys and with values, causal
    per_token = config.layers * (layer + attended) + config.width * config.vocab
    return 2 * config.length * per_token


def feature_flops(config: ModelConfig, settings: StepSettings) -> int:
    """Of the gradient features of the pool, beyond the forward pass, and of comparing them."""
    tokens, pairs = settings.pool * config.length, settings.pool**2
    size = config.width * config.vocab
    if settings.features == "exact":
        return 2 * (2 * tokens * size + pairs * size)
    if settings.method == "colm":  # exact gradients, of which the largest coordinates are compared
        return 2 * (2 * tokens * size + pairs * COLM_WIDTH)
    left, right = settings.sketch
    sketched = config.width * left + left * right
    return 2 * (tokens * sketched + pairs * left * right)
