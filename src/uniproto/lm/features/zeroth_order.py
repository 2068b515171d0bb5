"""Gradient features from two forward passes, for CoLM: simultaneous perturbation (SPSA).

g_i = [(ℓ_i(θ + εz) − ℓ_i(θ − εz)) / 2ε] · z, with one random direction z for all examples. These
have rank one: they tell examples apart by their slope along z alone, so cosines are ±1 and L1
distances |slope_i − slope_j|·‖z‖₁. CoLM takes Adam's step on each of them, m̂_i / (ε + √v̂_i) with
the example's own gradient in both moments (`adam_moments.py`), which is no multiple of z.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from uniproto.errors import MissingExtraError, invalid, require_name
from uniproto.lm.batches.config import MOMENTS
from uniproto.lm.features.adam_moments import adam_divisor, with_moments
from uniproto.lm.features.gradient_features import Scored, check_width, scored
from uniproto.lm.features.layers import ParameterPart, unwrapped, value_projection
from uniproto.lm.features.losses import LossFunction, forward_losses
from uniproto.lm.features.preserved_state import preserve_state

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Scoring training examples", "train") from error

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

    `width` keeps the coordinates of largest mean magnitude over the batch. `seed` draws z: pass
    the number of the step, for another direction at each. The losses returned are means of the
    two evaluations. Parameters are swapped for perturbed copies and back, never written to.
    """
    model = unwrapped(model)
    if not epsilon > 0:
        raise invalid("epsilon", "must be above 0", repr(epsilon), "CoLM takes 1e-3.")
    check_width(width)
    projection = value_projection(model, layer)
    parts = projection.parts()
    for part in parts:
        if not part.parameter.is_floating_point() or part.parameter.ndim != 2:
            raise invalid(
                "layer",
                "must have floating-point weights, to be perturbed",
                f"{projection.name} with {part.parameter.dtype}",
                "Name another layer, or adapt this one by LoRA.",
            )
    require_name("moments", moments, MOMENTS)
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
    """The parameters moved along the direction; the very same memory is put back afterwards."""
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
