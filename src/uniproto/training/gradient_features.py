"""Each example's gradient by the last block's value projection, for a whole pool in one pass.

The model runs without a graph up to that layer and with one from there on; its inputs and the
gradients of its outputs are captured by hooks, and each example's weight gradient is a sum of their
outer products (`layers.py`). No parameter's `.grad` is ever written.

Adam-aligned features are gradients on the scale of Adam's steps: φ = g / (ε + √v), with the
optimizer's own v, its running mean of squared gradients of the same parameters, corrected for its
start at zero as Adam corrects it. Where there is none yet, the gradient stays as it is: before the
first step, and for a coordinate that never had a gradient (v exactly 0, such as LoRA's A after one
step from B = 0), which would otherwise be divided by ε alone and drown all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from uniproto.errors import (
    InvalidInputError,
    MissingExtraError,
    UniprotoError,
    invalid,
    require_int,
)
from uniproto.training.layers import ParameterPart, Projection, unwrapped, value_projection
from uniproto.training.losses import (
    answer_losses,
    before_the_head,
    in_pool_order,
    micro_batches,
    preserve_state,
)

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Scoring training examples", "train") from error

_GRADIENTS_AT_ONCE = 2**28  # bytes of gradients formed before they are projected


@dataclass(frozen=True)
class Scored:
    """Features (examples, dimensions) and losses (examples,) of a pool, on the model's device.

    An example whose loss or gradient is not finite has a row of NaN and is not `usable`; so has
    one without an answer token, whose loss is a mean over nothing.
    """

    features: Tensor
    losses: Tensor

    @property
    def usable(self) -> Tensor:
        """Which examples may be selected, (examples,) bool."""
        return torch.isfinite(self.losses) & torch.isfinite(self.features).all(dim=1)


def gradient_features(
    model: Any,
    batch: Mapping[str, Any],
    *,
    layer: str | None = None,
    width: int | None = None,
    normalise: Any = None,
    seed: int = 0,
    score_batch_size: int | None = None,
) -> Scored:
    """Per-example gradients of the LoRA parameters of the last block's value projection.

    A layer without LoRA gives the gradient of its weight; of a fused QKV layer, the part that
    makes values. Each equals what a backward pass of that example alone would leave in `.grad`,
    with dropout off.

    Args:
        model: a causal language model of transformers, as it is or wrapped by peft, by
            DistributedDataParallel or by torch.compile.
        batch: what the collator returns: input_ids, labels (−100: not counted), attention_mask…
        layer: the linear layer to take instead, such as "model.layers.11.self_attn.v_proj".
        width: at most so many dimensions, by a random projection that keeps inner products in
            expectation; the same one at every call with the same seed.
        normalise: the Adam optimizer whose second moment scales each coordinate.
        seed: of the random projection.
        score_batch_size: examples per pass, where memory is short; by default all at once, or
            a quarter where much of the batch is padding.

    Returns float32 features (float64 for a model in float64).
    """
    model = unwrapped(model)
    projection = value_projection(model, layer)
    divisor = None if normalise is None else adam_divisor(normalise, projection.parts())
    check_width(width)
    features, losses, places = [], [], []
    with preserve_state(model), torch.inference_mode(False):
        for inputs, labels, rows in micro_batches(model, batch, score_batch_size):
            activations, gradients, loss = _differentiated(model, projection, inputs, labels)
            features.append(
                _assembled(projection, activations, gradients, divisor, width, seed).detach()
            )
            losses.append(loss)
            places.append(rows)
    return scored(in_pool_order(features, places), in_pool_order(losses, places))


def scored(features: Tensor, losses: Tensor) -> Scored:
    """Spread any value that is not finite over its example's whole row."""
    losses = losses.to(features.device)
    spoilt = ~(torch.isfinite(losses) & torch.isfinite(features).all(dim=1))
    return Scored(features.masked_fill(spoilt[:, None], torch.nan), losses)


def check_width(width: int | None) -> None:
    if width is not None:
        require_int("width", width, too_small="None keeps all dimensions.")


def _differentiated(
    model: nn.Module, projection: Projection, inputs: dict[str, Any], labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer's inputs, the gradients of its outputs, and the losses."""
    with torch.no_grad(), watched([projection], cut=True) as seen:
        hidden, head = before_the_head(model, inputs)
        (calls,) = seen
        if len(calls.inputs) != 1 or not hidden.requires_grad:
            raise UniprotoError(
                f"The layer {projection.name} was expected to run once, on the way to the loss. "
                f"It ran {len(calls.inputs)} times"
                f"{'' if hidden.requires_grad else ', and the loss does not depend on it'}. "
                "Name another layer: layer='…'."
            )
    losses, by_hidden = answer_losses(hidden, labels, head, differentiate=True)
    (gradients,) = torch.autograd.grad(hidden, calls.outputs, by_hidden)
    return calls.inputs[0], gradients, losses


def _assembled(
    projection: Projection,
    activations: Tensor,
    gradients: Tensor,
    divisor: Tensor | None,
    width: int | None,
    seed: int,
) -> Tensor:
    """Rows of features, some examples at a time where they are projected."""
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
    """Fewer dimensions, with the inner products of rows preserved in expectation.

    Coordinates are dealt at random into `width` equal hands and added there with random signs:
    a count sketch with balanced hands. It needs no matrix, and gives the same bits every time.
    """
    dimensions = rows.shape[1]
    if width >= dimensions:
        return rows
    order, signs = _hands(dimensions, seed, rows.device)
    dealt = rows.index_select(1, order) * signs
    dealt = torch.nn.functional.pad(dealt, (0, -dimensions % width))
    return dealt.reshape(len(rows), -1, width).sum(dim=1)


@lru_cache(maxsize=16)
def _hands(dimensions: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(dimensions, generator=generator).to(torch.int32)
    signs = torch.randint(2, (dimensions,), generator=generator).to(torch.int8) * 2 - 1
    return order.to(device), signs.to(device)


@dataclass
class Calls:
    """What went through one layer."""

    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)


@contextmanager
def watched(projections: Sequence[Projection], *, cut: bool) -> Iterator[list[Calls]]:
    """Keep inputs and outputs of layers while the model runs.

    `cut` starts the graph at the layer's output, and switches gradients on from there: whatever
    lies before it has run without a graph. The caller's own gradient mode comes back when its
    `torch.no_grad()` ends.
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


# --- Adam's second moment ------------------------------------------------------------------------


def adam_divisor(optimizer: Any, parts: list[ParameterPart]) -> Tensor | None:
    """ε + √v for the coordinates of the parts, in order; None before the first step.

    For Adam, AdamW and NAdam of torch (fused, foreach and amsgrad too), also when accelerate has
    wrapped them. 8-bit, sharded and other optimizers keep no such v: they are refused by name.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> adam = torch.optim.Adam([weight], eps=0.0)
    >>> adam_divisor(adam, [ParameterPart(weight, (slice(None),))]) is None
    True
    >>> weight.grad = torch.tensor([3.0, 0.0])
    >>> _ = adam.step()
    >>> [round(x, 3) for x in adam_divisor(adam, [ParameterPart(weight, (slice(None),))]).tolist()]
    [3.0, 1.0]
    """
    optimizer = _inner(optimizer)
    found = [_divisor(optimizer, part) for part in parts]
    if all(each is None for each in found):
        return None
    filled = [
        torch.ones(part.of(part.parameter).shape, device=part.parameter.device)
        if each is None
        else each
        for part, each in zip(parts, found, strict=True)
    ]
    return torch.cat(filled)


def _inner(optimizer: Any) -> Any:
    """The torch optimizer inside accelerate's wrapper."""
    while not hasattr(optimizer, "param_groups") or type(optimizer).__name__.startswith("Accel"):
        if not hasattr(optimizer, "optimizer"):
            raise invalid(
                "normalise",
                "must be the Adam optimizer that trains the model, or None",
                type(optimizer).__name__,
                "Pass the optimizer itself, such as trainer.optimizer.",
            )
        optimizer = optimizer.optimizer
    return optimizer


def _divisor(optimizer: Any, part: ParameterPart) -> Tensor | None:
    parameter = part.parameter
    group = next(
        (
            group
            for group in optimizer.param_groups
            if any(each is parameter for each in group["params"])
        ),
        None,
    )
    if group is None:
        raise invalid(
            "normalise",
            "must be the optimizer of the parameters whose gradients are the features",
            f"{type(optimizer).__name__}, which does not hold them",
            "Build it from the model's trainable parameters, or name a layer that it trains "
            "(layer='…'); optimizers that shard or flatten parameters are not supported.",
        )
    if "betas" not in group or "eps" not in group:
        raise _not_adam(optimizer)
    state = optimizer.state.get(parameter, {})
    if not state:
        return None
    moment = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if not isinstance(moment, Tensor) or moment.shape != parameter.shape or "step" not in state:
        raise _not_adam(optimizer)
    if not moment.is_floating_point():
        raise _not_adam(optimizer)
    correction = 1.0 - group["betas"][1] ** float(state["step"])
    second = part.of(moment)
    divisor = float(group["eps"]) + (second / correction).sqrt()
    return torch.where(second > 0, divisor, torch.ones_like(divisor))


def _not_adam(optimizer: Any) -> InvalidInputError:
    name = f"{type(optimizer).__module__.partition('.')[0]}.{type(optimizer).__name__}"
    return invalid(
        "normalise",
        "must be an optimizer that keeps Adam's second moment for every coordinate (exp_avg_sq)",
        name,
        "Use torch.optim.AdamW, or normalise=None for plain gradients.",
    )
