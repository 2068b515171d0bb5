"""Inner products of per-example gradients over all LoRA layers, for GREATS.

For a layer whose gradients are Σ_t left_tᵀ right_t there are three ways to compute ⟨g_i, g_j⟩:

- ghost:    Σ_{t,t'} (left_it · left_jt')(right_it · right_jt'), no gradient formed: short texts
- explicit: form each gradient, then one matrix product: long texts, small layers
- sketch:   form each, keep a random projection: approximate, if the gradients of all examples
            and layers do not fit into `keep_bytes`

Losses are per example, not means over the batch, so there is no factor 1/B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from uniproto.lm.features.gradient_features import Calls, outer_sums, projected, watched
from uniproto.lm.features.layers import Projection, lora_projections, preserve_state, unwrapped
from uniproto.lm.features.losses import (
    in_pool_order,
    micro_batches,
    run_model,
)

Pairs = list[tuple[Tensor, Tensor]]  # left (examples, tokens, p), right (examples, tokens, q)
_KEEP_BYTES = 2**30
_GHOST_BYTES = 2**28  # one block of token-by-token products
_NARROWEST_SKETCH = 64


@dataclass(frozen=True)
class InnerProducts:
    """⟨g_i, g_j⟩ within the pool (B, B) and ⟨g_i, g_v⟩ with validation examples (B, V).

    Rows and columns of examples whose loss or gradient is not finite are NaN. `forms` holds the
    form used for each layer; ghost and explicit are exact, the sketch is approximate.
    """

    pool: Tensor
    validation: Tensor
    losses: Tensor
    validation_losses: Tensor
    forms: dict[str, str]


@dataclass
class _Gathered:
    """Factors, losses and rows of the pool or the validation set, gathered by micro-batch."""

    layers: list[list[Pairs]]  # by layer first
    losses: list[Tensor] = field(default_factory=list)
    places: list[Tensor] = field(default_factory=list)  # of the examples in their set


def gradient_inner_products(
    model: Any,
    pool: Mapping[str, Any],
    validation: Mapping[str, Any] | None = None,
    *,
    form: str = "auto",
    keep_bytes: int = _KEEP_BYTES,
    seed: int = 0,
    score_batch_size: int = 8,
) -> InnerProducts:
    """Compare the gradients of all LoRA parameters.

    The whole model is differentiated, `score_batch_size` examples at a time: memory is that of a
    training step on this many, plus `keep_bytes` for the factors. `form="auto"` uses for each layer
    the exact form with the fewest operations that fits its share of `keep_bytes`, or the sketch if
    none fits.
    """
    model = unwrapped(model)
    projections = lora_projections(model)
    sets = [pool] if validation is None else [pool, validation]
    counts = [len(batch["labels"]) for batch in sets]
    tokens = max(batch["labels"].shape[1] for batch in sets)
    share = keep_bytes // len(projections)
    forms: dict[str, str] = {}

    def form_of(projection: Projection, pairs: Pairs) -> str:
        if projection.name not in forms:
            shapes = [(left.shape[2], right.shape[2]) for left, right in pairs]
            cheapest = cheapest_form(shapes, counts[0], sum(counts), tokens, share)
            forms[projection.name] = cheapest if form == "auto" else form
        return forms[projection.name]

    gathered = [_Gathered([[] for _ in projections]) for _ in sets]
    with preserve_state(model), torch.inference_mode(False):
        for of_set, batch in zip(gathered, sets, strict=True):
            for inputs, labels, rows in micro_batches(model, batch, score_batch_size):
                seen, losses = differentiated(model, projections, inputs, labels)
                of_set.losses.append(losses)
                of_set.places.append(rows)
                for index, pairs in enumerate(layer_pairs(projections, seen)):
                    width = max(_NARROWEST_SKETCH, share // (4 * sum(counts) * len(pairs)))
                    reduced = _reduced(
                        pairs, form_of(projections[index], pairs), width, seed + 2 * index
                    )
                    of_set.layers[index].append(reduced)
    own = in_pool_order(gathered[0].losses, gathered[0].places)
    within = _marked(_compared(gathered[0], gathered[0]), own, own)
    if validation is None:
        return InnerProducts(within, own.new_zeros(len(own), 0), own, own.new_zeros(0), forms)
    other = in_pool_order(gathered[1].losses, gathered[1].places)
    across = _marked(_compared(gathered[0], gathered[1]), own, other)
    return InnerProducts(within, across, own, other, forms)


def cheapest_form(
    shapes: Sequence[tuple[int, int]], pool: int, examples: int, tokens: int, keep_bytes: int
) -> str:
    """The exact form with the fewest operations among those that fit, or the sketch.

    `shapes` are the (p, q) of the layer's gradients, `examples` the pool and the validation set.

    >>> lora = [(128, 2560), (2560, 128)]  # A and B, r = 128
    >>> cheapest_form(lora, 128, 136, tokens=512, keep_bytes=2**30)
    'explicit'
    >>> cheapest_form(lora, 128, 136, tokens=8, keep_bytes=2**30)
    'ghost'
    >>> cheapest_form(lora, 128, 136, tokens=512, keep_bytes=2**20)
    'sketch'
    """
    pairs = pool * examples
    operations = {
        "ghost": sum(pairs * tokens**2 * (p + q + 1) for p, q in shapes),
        "explicit": sum((examples * tokens + pairs) * p * q for p, q in shapes),
    }
    numbers = {
        "ghost": sum(examples * tokens * (p + q) for p, q in shapes),
        "explicit": sum(examples * p * q for p, q in shapes),
    }
    fitting = [form for form in operations if 4 * numbers[form] <= keep_bytes]
    return min(fitting, key=lambda form: operations[form]) if fitting else "sketch"


def differentiated(
    model: nn.Module, projections: list[Projection], inputs: dict[str, Any], labels: Tensor
) -> tuple[list[Calls], Tensor]:
    """The inputs of every layer and the gradients of its outputs."""
    with torch.enable_grad(), watched(projections, cut=False) as seen:
        run = run_model(model, inputs, labels)
    losses, by_output = run.gradients([output for calls in seen for output in calls.outputs])
    gradients = iter(by_output)
    found = [Calls(calls.inputs, [next(gradients) for _ in calls.outputs]) for calls in seen]
    return found, losses


def layer_pairs(projections: list[Projection], seen: list[Calls]) -> Iterator[Pairs]:
    for projection, calls in zip(projections, seen, strict=True):
        # A layer that runs several times has more tokens: its gradient is the sum over them.
        inputs, gradients = torch.cat(calls.inputs, dim=1), torch.cat(calls.outputs, dim=1)
        yield [
            (left.detach(), right.detach()) for left, right in projection.factors(inputs, gradients)
        ]


def _reduced(pairs: Pairs, form: str, width: int, seed: int) -> Pairs:
    """The factors of a layer, or its gradients as factors of a single token."""
    if form == "ghost":
        return pairs
    rows = [outer_sums(left, right) for left, right in pairs]
    if form == "sketch":
        rows = [projected(each, width, seed + place) for place, each in enumerate(rows)]
    return [(each[:, None], each.new_ones(len(each), 1, 1)) for each in rows]


def _compared(ours: _Gathered, theirs: _Gathered) -> Tensor:
    """⟨g_i, g_j⟩ over all layers, with rows and columns in the order of their sets."""
    products = sum(
        (
            _products(first, second)
            for first, second in zip(ours.layers, theirs.layers, strict=True)
        ),
        start=torch.zeros(()),
    )
    products = in_pool_order([products], ours.places)
    return in_pool_order([products.T], theirs.places).T


def _products(first: list[Pairs], second: list[Pairs]) -> Tensor:
    """⟨g_i, g_j⟩ of one layer for i in the first set and j in the second."""
    blocks = [
        torch.cat([sum(map(_pair_products, a, b), torch.zeros(())) for b in second], dim=1)
        for a in first
    ]
    return torch.cat(blocks)


def _pair_products(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> Tensor:
    """Σ_{t,t'} (left_it · left_jt')(right_it · right_jt') for all i and j, some i at a time."""
    (left, right), (their_left, their_right) = ours, theirs
    tokens, other = left.shape[1], their_left.shape[1]
    columns_left, columns_right = their_left.flatten(0, 1).T, their_right.flatten(0, 1).T
    at_once = max(1, _GHOST_BYTES // (8 * tokens * columns_left.shape[1]))
    found = []
    for first in range(0, len(left), at_once):
        rows = slice(first, first + at_once)
        both = left[rows].flatten(0, 1) @ columns_left
        both *= right[rows].flatten(0, 1) @ columns_right
        found.append(both.reshape(-1, tokens, len(their_left), other).sum(dim=(1, 3)))
    return torch.cat(found)


def _marked(products: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """NaN where either loss or the product is not finite."""
    finite = torch.isfinite(rows)[:, None] & torch.isfinite(columns) & torch.isfinite(products)
    return products.masked_fill(~finite, torch.nan)
