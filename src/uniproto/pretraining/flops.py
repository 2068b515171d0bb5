"""What a step costs: floating-point operations of its products, and the products themselves.

Only products count, a multiplication and an addition each: model FLOPs, as utilisation is
commonly reported. Of causal attention the half above the diagonal does not count. A backward pass
is twice its forward pass; what is computed again to save memory does not count either.
"""

from __future__ import annotations

from typing import NamedTuple

from uniproto.pretraining.architecture import ModelConfig
from uniproto.pretraining.step_settings import StepSettings


class Product(NamedTuple):
    """`batch` products of (m × k) and (k × n) matrices at once, `times` in a step."""

    name: str
    batch: int
    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.k * self.n * self.times


def step_flops(config: ModelConfig, settings: StepSettings) -> dict[str, int]:
    """Model FLOPs of one step: `scoring` the pool, `sketching`, `training`, and the `total`.

    Exact features cost two more products of the output projection's size, and one of all pairs.

    >>> from uniproto.pretraining.architecture import model_config
    >>> cost = step_flops(model_config("60m", 32_000, 512), StepSettings(method="full"))
    >>> {name: f"{value / 1e12:.1f} TFLOP" for name, value in cost.items() if value}
    {'training': '18.0 TFLOP', 'total': '18.0 TFLOP'}
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
    left, right = settings.sketch
    sketched = config.width * left + left * right
    return 2 * (tokens * sketched + pairs * left * right)


def bare_products(config: ModelConfig, settings: StepSettings) -> list[Product]:
    """Every product of the training part of a step, forward and backward, without scoring.

    Timed on their own they are what the step cannot be quicker than with the same matrix
    library. Attention stands here in full, as products without a mask.
    """
    tokens = settings.trained * config.length
    width, hidden, layers = config.width, config.hidden, config.layers
    weights = [
        ("qkv", width, config.qkv_width, layers),
        ("attention out", width, width, layers),
        ("gate and up", width, 2 * hidden, layers),
        ("down", hidden, width, layers),
        ("head", width, config.vocab, 1),
    ]
    products = []
    for name, k, n, times in weights:
        products += [
            Product(name, 1, tokens, k, n, times),
            Product(f"{name}: gradient of inputs", 1, tokens, n, k, times),
            Product(f"{name}: gradient of weights", 1, k, tokens, n, times),
        ]
    heads, length, part = settings.trained * config.heads, config.length, config.head_width
    # Scores and reading; backward, the gradients of both factors of each.
    scores = Product("attention scores", heads, length, part, length, 2 * layers)
    reading = Product("attention reading", heads, length, length, part, 4 * layers)
    return [*products, scores, reading]
