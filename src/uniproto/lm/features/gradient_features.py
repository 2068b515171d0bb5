"""Per-example gradients of the last block's value projection, for a whole pool in one pass.

The model runs without a graph up to that layer and with one from there on; hooks capture the
layer's inputs and the gradients of its outputs, and each example's weight gradient is a sum of
their outer products (`layers.py`). No parameter's `.grad` is written. `adam_moments.py` brings
gradients to the scale of Adam's steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from uniproto.errors import InvalidInputError, UniprotoError, require_int, require_name
from uniproto.lm.features.adam_moments import adam_divisor, with_moments
from uniproto.lm.features.language import MOMENTS
from uniproto.lm.features.layers import (
    ParameterPart,
    Projection,
    preserve_state,
    unwrapped,
    value_projection,
)
from uniproto.lm.features.losses import (
    LossFunction,
    forward_losses,
    in_pool_order,
    micro_batches,
    run_model,
)

_GRADIENTS_AT_ONCE = 2**28  # bytes of gradients held before projection


@dataclass(frozen=True)
class Scored:
    """Features (examples, dimensions) and losses (examples,) of a pool, on the model's device.

    An example whose loss or gradient is not finite has a row of NaN and is not `usable`; so is one
    without an answer token.
    """

    features: Tensor
    losses: Tensor

    @property
    def usable(self) -> Tensor:
        """A mask (examples,) of the examples that may be selected."""
        return torch.isfinite(self.losses) & torch.isfinite(self.features).all(dim=1)


def gradient_features(
    model: Any,
    batch: Mapping[str, Any],
    *,
    layer: str | None = None,
    width: int | None = None,
    normalise: Any = None,
    moments: str = "optimizer",
    momentum: bool = False,
    align_after: int = 1,
    seed: int = 0,
    score_batch_size: int | None = None,
    loss_fn: LossFunction | None = None,
) -> Scored:
    """Per-example gradients of the LoRA parameters of the last block's value projection.

    For a layer without LoRA, the gradients of its weight; for a fused QKV layer, of the part that
    computes values. Each equals the `.grad` of a backward pass on that example alone, with dropout
    off.

    Args:
        model: a causal language model of transformers, as it is or wrapped by peft, by
            DistributedDataParallel or by torch.compile.
        batch: what the collator returns: input_ids, labels (−100: not counted), attention_mask…
        layer: the linear layer to take instead, such as "model.layers.11.self_attn.v_proj".
        width: the most dimensions to keep, by a random projection that preserves inner products in
            expectation; it is the same at every call with the same seed.
        normalise: the Adam optimizer whose moments scale each coordinate.
        moments: `optimizer`, `pool` or `example` (see `adam_moments.py`).
        momentum: with `pool`, also multiply by m_t, as the paper does for GradNorm.
        align_after: with `optimizer`, plain gradients before this step.
        seed: of the random projection.
        score_batch_size: examples per pass. Default: all, or a quarter of them if much of the batch
            is padding.
        loss_fn: for models other than causal language models: `loss_fn(model, batch)` returns each
            example's loss, which must depend on its own rows only. A layer must be named.

    Returns float32 features (float64 for a model in float64).
    """
    model = unwrapped(model)
    projection = value_projection(model, layer)
    require_name("moments", moments, MOMENTS)
    parts = projection.parts()
    linear = moments == "optimizer"  # the others need whole gradients
    divisor = None
    if normalise is not None and linear:
        divisor = adam_divisor(normalise, parts, align_after)
    if width is not None:
        require_int("width", width, too_small="None keeps all dimensions.")
    features, losses, places = [], [], []
    with preserve_state(model), torch.inference_mode(False):
        for inputs, labels, rows in micro_batches(model, batch, score_batch_size, loss_fn):
            activations, gradients, loss = _differentiated(
                model, projection, inputs, labels, loss_fn
            )
            at_once = width if linear or normalise is None else None
            features.append(
                _assembled(projection, activations, gradients, divisor, at_once, seed).detach()
            )
            losses.append(loss)
            places.append(rows)
    found = in_pool_order(features, places)
    if normalise is not None and not linear:
        found = with_moments(found, normalise, parts, moments, momentum)
        found = found if width is None else projected(found, width, seed)
    return scored(found, in_pool_order(losses, places))


def scored(features: Tensor, losses: Tensor) -> Scored:
    """Mark the whole row of an example as NaN if any of its values is not finite."""
    losses = losses.to(features.device)
    spoilt = ~(torch.isfinite(losses) & torch.isfinite(features).all(dim=1))
    return Scored(features.masked_fill(spoilt[:, None], torch.nan), losses)


def _differentiated(
    model: nn.Module,
    projection: Projection,
    inputs: dict[str, Any],
    labels: Any,
    loss_fn: LossFunction | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer's inputs, the gradients of its outputs, and the losses."""
    with torch.no_grad(), watched([projection], cut=True) as seen:
        run = run_model(model, inputs, labels, loss_fn)
        (calls,) = seen
        if len(calls.inputs) != 1 or not run.end.requires_grad:
            raise UniprotoError(
                f"The layer {projection.name} was expected to run once, on the way to the loss. "
                f"It ran {len(calls.inputs)} times"
                f"{'' if run.end.requires_grad else ', and the loss does not depend on it'}. "
                "Name another layer: layer='…'."
            )
    with torch.enable_grad():
        losses, (gradients,) = run.gradients(calls.outputs)
    return (
        _by_example(calls.inputs[0], len(losses), projection),
        _by_example(gradients, len(losses), projection),
        losses,
    )


def _by_example(values: Tensor, examples: int, projection: Projection) -> Tensor:
    """A layer's inputs or outputs as (examples, tokens, width)."""
    if values.ndim < 2 or len(values) != examples:
        raise InvalidInputError(
            f"layer {projection.name} ran on shape {tuple(values.shape)}, not on one row for each "
            f"of {examples} examples. Name a layer that sees the examples one by one."
        )
    return values[:, None] if values.ndim == 2 else values.flatten(1, -2)


def _assembled(
    projection: Projection,
    activations: Tensor,
    gradients: Tensor,
    divisor: Tensor | None,
    width: int | None,
    seed: int,
) -> Tensor:
    """Rows of features, in chunks of examples if they are projected."""
    pairs = projection.factors(activations, gradients)
    dimensions = sum(left.shape[2] * right.shape[2] for left, right in pairs)
    examples = len(activations)
    at_once = examples
    if width is not None and width < dimensions:
        at_once = max(1, _GRADIENTS_AT_ONCE // (4 * dimensions))
    rows = []
    for first in range(0, examples, at_once):
        some = [(a[first : first + at_once], b[first : first + at_once]) for a, b in pairs]
        formed = torch.cat([outer_sums(left, right) for left, right in some], dim=1)
        if divisor is not None:
            formed /= divisor
        rows.append(formed if width is None else projected(formed, width, seed))
    return torch.cat(rows)


def outer_sums(left: Tensor, right: Tensor) -> Tensor:
    """Σ_t left_tᵀ right_t of each example, as one row each: (examples, p·q)."""
    return torch.bmm(left.transpose(1, 2), right).flatten(start_dim=1)


def projected(rows: Tensor, width: int, seed: int) -> Tensor:
    """Project rows to fewer dimensions, preserving inner products in expectation.

    A count sketch with balanced buckets: coordinates are assigned at random to `width` buckets of
    equal size and summed with random signs. It needs no matrix and is deterministic.
    """
    dimensions = rows.shape[1]
    if width >= dimensions:
        return rows
    order, signs = _hands(dimensions, seed, rows.device)
    dealt = rows.index_select(1, order).mul_(signs)
    if lacking := -dimensions % width:
        dealt = torch.nn.functional.pad(dealt, (0, lacking))
    return dealt.reshape(len(rows), -1, width).sum(dim=1)


@lru_cache(maxsize=2048)  # for all parts of an adapter: drawing takes longer than projecting
def _hands(dimensions: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(dimensions, generator=generator).to(torch.int32)
    signs = torch.randint(2, (dimensions,), generator=generator).to(torch.int8) * 2 - 1
    return order.to(device), signs.to(device)


@dataclass
class Calls:
    """The captured inputs and outputs of one layer."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(projections: Sequence[Projection], *, cut: bool) -> Iterator[list[Calls]]:
    """Capture inputs and outputs of layers while the model runs.

    `cut` starts the graph at the layer's output and enables gradients from there on. The caller's
    gradient mode is restored when its `torch.no_grad()` ends.
    """
    seen = [Calls() for _ in projections]

    def hook(calls: Calls) -> Any:
        def keep(_: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
            calls.inputs.append(arguments[0].detach())
            if cut or not output.requires_grad:
                output = output.detach().requires_grad_()
            calls.outputs.append(output)
            if cut:
                torch.set_grad_enabled(True)
            return output

        return keep

    handles = []
    try:
        for projection, calls in zip(projections, seen, strict=True):
            handles.append(projection.module.register_forward_hook(hook(calls)))
        yield seen
    finally:
        for handle in handles:
            handle.remove()


# --- by two forward passes ------------------------------------------------------------------------
# Simultaneous perturbation (SPSA), for CoLM: g_i = [(ℓ_i(θ + εz) − ℓ_i(θ − εz)) / 2ε] · z, with one
# random direction z for all examples. These have rank one: examples differ only by their slope
# along z, so cosines are ±1 and L1 distances |slope_i − slope_j|·‖z‖₁. CoLM takes Adam's step on
# each of them, m̂_i / (ε + √v̂_i) with the example's own gradient in both moments
# (`adam_moments.py`), which is not a multiple of z.


COLM_WIDTH = 2560


def zeroth_order_features(
    model: Any,
    batch: Mapping[str, Any],
    *,
    layer: str | None = None,
    epsilon: float = 1e-3,
    width: int | None = COLM_WIDTH,
    normalise: Any = None,
    moments: str = "optimizer",
    align_after: int = 1,
    seed: int = 0,
    score_batch_size: int | None = None,
    loss_fn: LossFunction | None = None,
) -> Scored:
    """SPSA estimates of the gradients that `gradient_features` computes, along one direction.

    `width` keeps the coordinates of largest mean magnitude over the batch. `seed` determines z:
    pass the step number for a new direction at each step. The returned losses are means of the two
    evaluations. Parameters are replaced by perturbed copies and back, never modified.
    """
    model = unwrapped(model)
    projection = value_projection(model, layer)
    parts = projection.parts()
    for part in parts:
        if not part.parameter.is_floating_point() or part.parameter.ndim != 2:
            raise InvalidInputError(
                f"layer {projection.name} has weights of type {part.parameter.dtype}. Name one "
                "with floating-point weights, or adapt this one by LoRA."
            )
    linear = normalise is None or moments == "optimizer"
    divisor = None
    if normalise is not None and linear:
        divisor = adam_divisor(normalise, parts, align_after)
    direction = _direction(parts, seed)
    losses = []
    with preserve_state(model), torch.inference_mode(False), torch.no_grad():
        for sign in (1.0, -1.0):
            with _moved(parts, direction, sign * epsilon):
                losses.append(forward_losses(model, batch, score_batch_size, loss_fn))
    slopes = (losses[0] - losses[1]) / (2 * epsilon)
    along = direction if divisor is None else direction / divisor
    if linear and width is not None and width < len(along):  # multiples of it, so long as it is
        along = along[along.abs().topk(width).indices.sort().values]
    features = slopes[:, None] * along.to(slopes.dtype)
    if not linear:
        features = with_moments(features, normalise, parts, moments, momentum=False)
        if width is not None and width < features.shape[1]:
            magnitude = features.nan_to_num(0.0).abs().mean(dim=0)
            features = features[:, magnitude.topk(width).indices.sort().values]
    return scored(features, (losses[0] + losses[1]) / 2)


def _direction(parts: list[ParameterPart], seed: int) -> Tensor:
    """A standard normal vector over the parts' coordinates; the same on every device."""
    size = sum(part.of(part.parameter).numel() for part in parts)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator).to(parts[0].parameter.device)


@contextmanager
def _moved(parts: list[ParameterPart], direction: Tensor, by: float) -> Iterator[None]:
    """Move the parameters along the direction; afterwards, restore the original tensors."""
    originals = [part.parameter.data for part in parts]
    try:
        first = 0
        for part in parts:
            copy = part.parameter.data.clone()
            target = copy[part.index]
            size = target.numel()
            step = by * direction[first : first + size].reshape(target.shape)
            copy[part.index] = (target + step).to(copy.dtype)
            part.parameter.data = copy
            first += size
        yield
    finally:
        for part, before in zip(parts, originals, strict=True):
            part.parameter.data = before
