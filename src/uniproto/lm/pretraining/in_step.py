"""The choice as one pure JAX function, for a training step of your own: features in, rows out.

It knows no model and no optimizer, has fixed shapes, and runs inside your `jax.jit`. Features are
one row per example: gradients (of the last layer, say), a sketch of them, or embeddings.
"""

from __future__ import annotations

from uniproto.errors import MissingExtraError, invalid, require_int, require_name

try:
    import jax.numpy as jnp
    from jax import Array
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Choosing inside a JAX step", "jax") from error

from uniproto.lm.pretraining.choose import cosine_costs, integer_costs, pick_by_fills
from uniproto.lm.pretraining.gradients import inner_products

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
        raise invalid(
            "keep",
            "must not exceed the rows of two-dimensional features",
            f"{keep} of shape {features.shape}",
            "Lower it, or flatten what belongs to one example.",
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
