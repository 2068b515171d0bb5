"""The inputs of the selector for a pool: gradients, losses, embeddings or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uniproto.data.examples import as_example, as_text, usual_columns
from uniproto.errors import InvalidInputError
from uniproto.lm.batches.config import SelectionConfig
from uniproto.lm.batches.inputs import Gram
from uniproto.lm.batches.pools import BatchPool, columns_of
from uniproto.lm.features.gradient_features import gradient_features, zeroth_order_features
from uniproto.lm.features.inner_products import gradient_inner_products
from uniproto.lm.features.losses import example_losses

_AT_ONCE = 8  # examples whose whole graph is held, for inner products over all layers
_BY_INNER_PRODUCTS = ("dot", "cosine", "euclidean", "sqeuclidean", "rbf")


def scores_of(
    pool: BatchPool,
    config: SelectionConfig,
    model: Any,
    optimizer: Any,
    seed: tuple[int, ...],
    embeddings: Any,
    draw_anchors: Callable[[tuple[int, ...]], Mapping[str, Any]],
) -> dict[str, Any]:
    """Compute what a selection needs to know of a pool: the arguments of a `BatchSelector` call.

    `model`, `optimizer`: those that are trained. `embeddings`: one vector per row of the data.
    `draw_anchors`: validation examples for `greats`, drawn with a seed.
    """
    if "features" not in config.chooses.needs:
        if "losses" not in config.chooses.needs:
            return {"features": None, "losses": np.zeros(pool.size)}
        losses = example_losses(
            model, pool.inputs, score_batch_size=config.score_batch_size, loss_fn=config.loss_fn
        )
        return {"features": None, "losses": losses}
    if config.usual_features == "embedding":
        assert pool.rows is not None  # `NumberedRows` has put them in
        if len(pool.rows) != pool.size:
            raise InvalidInputError(
                "is 'embedding', which takes no packed rows: they are not one text. Pass "
                "features='gradient', or do not pack.",
                parameter="features",
            )
        return {"features": embeddings[pool.rows]}
    # How gradients are taken
    same = ("layer", "align_after", "score_batch_size", "loss_fn", "width")
    options: dict[str, Any] = {name: getattr(config, name) for name in same}
    options["normalise"] = optimizer if config.aligned else None
    options["moments"] = config.usual_moments
    if "validation_features" in config.chooses.needs:
        return _with_anchors(pool, config, model, draw_anchors(seed), options)
    if config.usual_features == "adapters":
        inner = gradient_inner_products(
            model, pool.inputs, score_batch_size=config.score_batch_size or _AT_ONCE
        )
        return {"features": Gram(inner.pool), "losses": inner.losses}
    if config.usual_features == "zeroth-order":
        # Another direction at every step: the seed is that of the step.
        drawn = int(np.random.SeedSequence(seed).generate_state(1)[0])
        found = zeroth_order_features(model, pool.inputs, seed=drawn, **options)
    else:
        momentum = config.name == "gradnorm"
        found = gradient_features(model, pool.inputs, momentum=momentum, **options)
    features = _compact(found.features, config.usual_metric)
    return {"features": features, "losses": found.losses}


def _with_anchors(
    pool: BatchPool,
    config: SelectionConfig,
    model: Any,
    anchors: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """GREATS: the whole LoRA gradient where there is LoRA, otherwise the value projection."""
    if config.layer is None and not config.aligned and _has_lora(model):
        inner = gradient_inner_products(
            model, pool.inputs, anchors, score_batch_size=config.score_batch_size or _AT_ONCE
        )
        return {"features": Gram(inner.pool, inner.validation), "losses": inner.losses}
    found = gradient_features(model, pool.inputs, **options)
    features, others = found.features, gradient_features(model, anchors, **options).features
    if features.device.type != "cpu":
        return {
            "features": Gram(features @ features.T, features @ others.T),
            "losses": found.losses,
        }
    return {"features": features, "losses": found.losses, "validation_features": others}


def _compact(features: Any, metric: str) -> Any:
    """On an accelerator, inner products instead of long rows: what leaves it is B × B numbers."""
    if features.device.type == "cpu":
        return features
    return Gram(features @ features.T) if metric in _BY_INNER_PRODUCTS else features.cpu()


def _has_lora(model: Any) -> bool:
    return any(hasattr(module, "lora_A") for module in model.modules())


# --- embeddings of training texts, for SBERT -----------------------------------------------------


def embeddings_of(dataset: Any, config: SelectionConfig, tokenizer: Any = None) -> Any:
    """One vector per row: those given, or of the rows' texts (cached on disk by content)."""
    if config.embeddings is not None:
        vectors = np.asarray(config.embeddings)
        if vectors.ndim != 2 or len(vectors) != len(dataset):
            raise InvalidInputError(
                f"must have one row per training example, {len(dataset)} in all, not "
                f"shape {vectors.shape}.",
                parameter="embeddings",
            )
        return vectors
    from uniproto.features import embed_text

    options: dict[str, Any] = {}
    if config.embedding_model is not None:
        options["model"] = config.embedding_model
    return embed_text(texts_of(dataset, config.text_column, tokenizer), **options).vectors


def texts_of(
    dataset: Any, columns: str | tuple[str, ...] | None = None, tokenizer: Any = None
) -> list[str]:
    """The text of every row.

    >>> texts_of([{"instruction": "1 + 1?", "output": "2"}])
    ['1 + 1?\\n\\n2']
    """
    if columns is None and hasattr(dataset, "texts"):
        return list(dataset.texts)
    present = columns_of(dataset) or []
    if columns is None and (usual := usual_columns(present)):
        return [str(as_text(as_example(dataset[row], usual))) for row in range(len(dataset))]
    columns = (columns,) if isinstance(columns, str) else tuple(columns or ())
    rows = (dataset[row] for row in range(len(dataset)))
    if columns:
        return ["\n\n".join(str(row[column]) for column in columns) for row in rows]
    if hasattr(tokenizer, "decode") and "input_ids" in present:
        return [tokenizer.decode(row["input_ids"], skip_special_tokens=True) for row in rows]
    raise InvalidInputError(
        f"must name the texts to embed ({', '.join(present) or 'no columns'}); or pass "
        "processing_class=tokenizer, or embeddings=vectors.",
        parameter="text_column",
    )
