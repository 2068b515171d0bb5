"""Text from a model in training: how it is doing, for people."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from uniproto.errors import MissingExtraError
from uniproto.lm.pretraining.model import ModelConfig, Params, logits

try:
    import jax
    import jax.numpy as jnp
    from jax import Array, lax
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

_GIVEN, _DRAWN = 8, 24  # tokens
_TEMPERATURE = 0.8


def sampled(
    params: Params, start: Any, config: ModelConfig, dtype: str, seed: tuple[int, int]
) -> list[int]:
    """The first tokens of a text, and those that the model draws after them.

    >>> from uniproto.lm.pretraining.model import initial_params, model_config
    >>> config = model_config("tiny", vocab=50, length=16)
    >>> params = initial_params(config, jax.random.key(0))
    >>> found = sampled(params, np.arange(17), config, "float32", seed=(0, 1))
    >>> len(found), found[:8]
    (16, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    length = min(config.length, _GIVEN + _DRAWN)
    given = min(_GIVEN, length // 2)
    window = np.zeros(length, np.int32)
    window[:given] = np.asarray(start)[:given]
    key = jax.random.fold_in(jax.random.PRNGKey(seed[0]), seed[1])
    drawn = _drawn(config, dtype, given, params, jnp.asarray(window), key)
    return [int(token) for token in jax.device_get(drawn)]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _drawn(
    config: ModelConfig, dtype: str, given: int, params: Params, window: Array, key: Array
) -> Array:
    """Fill the window from left to right; the whole of it is read again for every token."""

    def draw(place: int, tokens: Array) -> Array:
        scores = logits(params, tokens[None], config, dtype=jnp.dtype(dtype))[0, place - 1]
        token = jax.random.categorical(jax.random.fold_in(key, place), scores / _TEMPERATURE)
        return tokens.at[place].set(token.astype(tokens.dtype))

    return lax.fori_loop(given, len(window), draw, window)
