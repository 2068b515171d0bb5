"""A LLaMA-3 language model as plain functions of a tree of parameters.

RMSNorm before each part of a layer, rotary positions, grouped-query attention, SwiGLU, no biases.
The layers' parameters are stacked along a first axis and scanned, so that a deep model compiles
as quickly as a shallow one. As in LLaMA-3 8B the output projection is a matrix of its own, not
the transposed embedding: the gradient of the last layer is then the gradient of one parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from uniproto.errors import InvalidInputError, require_name
from uniproto.lm.pretraining.pretrain_settings import SIZES

Params = dict[str, Any]

_SPREAD = 0.02  # standard deviation of initial weights, as in GPT-2 and LLaMA
# (batch, length, …) products with weights are saved for the backward pass; what lies between them
# is cheap to compute again, and costly to write to memory and read back.
_SAVE_PRODUCTS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model. `length` is the number of tokens it reads at once.

    >>> config = model_config("60m", vocab=32_000, length=512)
    >>> config.layers, config.head_width, f"{config.parameters / 1e6:.1f} million parameters"
    (8, 64, '60.0 million parameters')
    """

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    length: int
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("vocab", "width", "layers", "heads", "kv_heads", "hidden", "length"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.width % (2 * self.heads):
            raise InvalidInputError(
                f"{self.width} must be an even multiple of heads={self.heads}: rotary "
                "positions turn pairs of numbers of each head.",
                parameter="width",
            )
        if self.heads % self.kv_heads:
            raise InvalidInputError(
                f"{self.heads} must be a multiple of kv_heads={self.kv_heads}: equal groups "
                "of heads share keys and values.",
                parameter="heads",
            )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def qkv_width(self) -> int:
        """Queries of all heads, then keys and values of the heads that have them."""
        return (self.heads + 2 * self.kv_heads) * self.head_width

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        layer = self.width * (self.qkv_width + self.width + 3 * self.hidden + 2)
        return 2 * self.vocab * self.width + self.layers * layer + self.width


def model_config(size: str, vocab: int, length: int) -> ModelConfig:
    """The model of a named size; `60m` and `500m` count a vocabulary of 32,000."""
    require_name("size", size, SIZES)
    return ModelConfig(vocab=vocab, length=length, **SIZES[size])


def initial_params(config: ModelConfig, key: Array) -> Params:
    """Random float32 parameters: normal weights, norms at 1.

    What a layer adds to the residual stream starts smaller by √(2 · layers), so that the stream's
    scale does not grow with depth.
    """
    width, layers, hidden = config.width, config.layers, config.hidden
    added = _SPREAD / (2 * layers) ** 0.5
    keys = iter(jax.random.split(key, 6))

    def weights(shape: tuple[int, ...], spread: float = _SPREAD) -> Array:
        return spread * jax.random.normal(next(keys), shape, jnp.float32)

    return {
        "embedding": weights((config.vocab, width)),
        "layers": {
            "attention_norm": jnp.ones((layers, width), jnp.float32),
            "qkv": weights((layers, width, config.qkv_width)),
            "attention_out": weights((layers, width, width), added),
            "mlp_norm": jnp.ones((layers, width), jnp.float32),
            "gate_up": weights((layers, width, 2 * hidden)),
            "down": weights((layers, hidden, width), added),
        },
        "final_norm": jnp.ones(width, jnp.float32),
        "head": weights((width, config.vocab)),
    }


def logits(
    params: Params, tokens: Array, config: ModelConfig, *, dtype: Any = jnp.bfloat16
) -> Array:
    """float32 scores (batch, length, vocab) of the token that follows each one.

    >>> config = model_config("tiny", vocab=50, length=8)
    >>> params = initial_params(config, jax.random.key(0))
    >>> logits(params, jnp.zeros((2, 8), jnp.int32), config).shape
    (2, 8, 50)
    """
    hidden = hidden_states(params, tokens, config, dtype=dtype)
    return jnp.einsum(
        "btw,wv->btv",
        hidden,
        params["head"].astype(dtype),
        preferred_element_type=jnp.float32,
    )


def hidden_states(
    params: Params,
    tokens: Array,
    config: ModelConfig,
    *,
    dtype: Any = jnp.bfloat16,
    recompute: bool = False,
) -> Array:
    """What the output projection reads: (batch, length, width) in `dtype`.

    `recompute` keeps nothing of a layer but its input for the backward pass: less memory, about a
    third more work.
    """
    turns = _rotations(config, tokens.shape[1])

    def layer(stream: Array, weights: Params) -> tuple[Array, None]:
        queries, keys, values = before_attention(stream, weights)
        read = _attention(queries, keys, values)
        return after_attention(stream, read, weights), None

    @partial(jax.checkpoint, policy=_SAVE_PRODUCTS)
    def before_attention(stream: Array, weights: Params) -> tuple[Array, Array, Array]:
        rows, length, _ = stream.shape
        normed = rms_norm(stream, weights["attention_norm"], config.norm_eps)
        heads = (normed @ weights["qkv"]).reshape(rows, length, -1, config.head_width)
        queries, keys, values = jnp.split(
            heads, [config.heads, config.heads + config.kv_heads], axis=2
        )
        return _rotate(queries, turns), _rotate(keys, turns), values

    @partial(jax.checkpoint, policy=_SAVE_PRODUCTS)
    def after_attention(stream: Array, read: Array, weights: Params) -> Array:
        stream = stream + read.reshape(stream.shape) @ weights["attention_out"]
        normed = rms_norm(stream, weights["mlp_norm"], config.norm_eps)
        gate, up = jnp.split(normed @ weights["gate_up"], 2, axis=-1)
        return stream + (jax.nn.silu(gate) * up) @ weights["down"]

    if recompute:
        layer = jax.checkpoint(layer)
    # The embedding is read in float32: its gradient then sums in float32, token by token.
    stream = params["embedding"][tokens].astype(dtype)
    weights = {
        name: value if name.endswith("norm") else value.astype(dtype)
        for name, value in params["layers"].items()
    }
    stream, _ = lax.scan(layer, stream, weights)
    return rms_norm(stream, params["final_norm"], config.norm_eps)


def rms_norm(values: Array, scale: Array, eps: float) -> Array:
    """x / √(mean x² + ε) · scale, computed in float32, returned in the type of x."""
    exact = values.astype(jnp.float32)
    mean_square = jnp.mean(exact * exact, axis=-1, keepdims=True)
    return (exact * lax.rsqrt(mean_square + eps) * scale).astype(values.dtype)


def _rotations(config: ModelConfig, length: int) -> tuple[Array, Array]:
    """Cosine and sine of position · θ^(−2i/d): (length, 1, head_width / 2) each."""
    half = config.head_width // 2
    frequencies = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None, None] * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def _rotate(heads: Array, turns: tuple[Array, Array]) -> Array:
    """Turn number i of a head's first half with number i of its second, by the position's angle."""
    cosine, sine = turns
    first, second = jnp.split(heads.astype(jnp.float32), 2, axis=-1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(turned, axis=-1).astype(heads.dtype)


def _attention(queries: Array, keys: Array, values: Array) -> Array:
    """Causal attention; groups of query heads share a head of keys and values."""
    fused = queries.dtype == jnp.bfloat16 and queries.shape[-1] in range(8, 129, 8)
    on_nvidia = jax.default_backend() == "gpu" and "NVIDIA" in jax.devices()[0].device_kind
    return jax.nn.dot_product_attention(
        queries,
        keys,
        values,
        is_causal=True,
        implementation="cudnn" if fused and on_nvidia else "xla",
    )
