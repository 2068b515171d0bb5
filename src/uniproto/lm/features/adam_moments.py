"""Gradients on the scale of Adam's steps, from the optimizer's moments of the same parameters.

The options, `MOMENTS` in `language.py`:

- `optimizer`: φ_i = g_i / (ε + √v), with v after the last step and Adam's bias correction. The
  gradient is not scaled before the first step, nor for a coordinate that never had a gradient (v is
  exactly 0, as for LoRA's A after one step from B = 0), which would otherwise be divided by ε alone
  and dominate all others.
- `pool`: as printed in the paper, φ_i = g_i / (ε + √v_t) with v_t = β₂ v + (1 − β₂) ḡ², where ḡ is
  the mean gradient of the pool, without bias correction. For GradNorm there is one more factor,
  m_t = β₁ m + (1 − β₁) ḡ.
- `example`: CoLM's, Adam's step on that example alone: φ_i = m̂_i / (ε + √v̂_i) with
  m_i = β₁ m + (1 − β₁) g_i and v_i = β₂ v + (1 − β₂) g_i².

The default is `optimizer`: with β₂ = 0.999, v_t differs from v by a thousandth of ḡ², and φ is
linear in the gradient, so that it can be projected in pieces.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.features.layers import ParameterPart

_OR_NOT = "For plain gradients: normalise=None, or SelectionConfig(adam_aligned=False)."


def with_moments(
    features: Tensor, optimizer: Any, parts: list[ParameterPart], moments: str, momentum: bool
) -> Tensor:
    """Features (examples, dimensions) by the moments `pool` or `example`; NaN rows stay NaN.

    `momentum` multiplies by m_t, as the paper does for GradNorm.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> adam = torch.optim.Adam([weight], betas=(0.9, 0.99), eps=0.0)
    >>> part = ParameterPart(weight, (slice(None),))
    >>> gradients = torch.tensor([[1.0, 4.0], [3.0, 4.0]])
    >>> with_moments(gradients, adam, [part], "pool", False)  # v_t = 0.01 · (2², 4²)
    tensor([[ 5., 10.],
            [15., 10.]])
    """
    inner, found, first = _inner(optimizer), [], 0
    for part in parts:
        size = part.of(part.parameter).numel()
        gradients = features[:, first : first + size]
        first += size
        group, state = _trained(inner, part)
        step = 0.0 if state is None else float(state["step"])
        zeros = torch.zeros_like(gradients[0])
        before = zeros if state is None else part.of(state["exp_avg"])
        squares = zeros if state is None else part.of(state["exp_avg_sq"])
        slow, slower = group["betas"]
        tiny = float(group["eps"])
        if moments == "pool":
            usable = torch.isfinite(gradients).all(dim=1)
            mean = gradients[usable].mean(dim=0) if usable.any() else zeros
            second = slower * squares + (1 - slower) * mean**2
            scale = (slow * before + (1 - slow) * mean) if momentum else torch.ones_like(zeros)
            # 0 / 0 if there never was a gradient and ε is 0
            found.append((gradients * scale / (tiny + second.sqrt())).nan_to_num_(0.0, 0.0, 0.0))
            found[-1][~usable] = torch.nan
            continue
        mine = (slow * before + (1 - slow) * gradients) / (1 - slow ** (step + 1))
        own = (slower * squares + (1 - slower) * gradients**2) / (1 - slower ** (step + 1))
        found.append(torch.where(own > 0, mine / (tiny + own.sqrt()), mine))
    return torch.cat(found, dim=1)


def adam_divisor(optimizer: Any, parts: list[ParameterPart], after: int = 1) -> Tensor | None:
    """ε + √v for the coordinates of the parts, in order; None before `after` steps.

    Supports torch's Adam, AdamW and NAdam (also fused, foreach and amsgrad), wrapped by accelerate
    or not. 8-bit, sharded and other optimizers, which keep no such v, are refused.

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
    found = [_divisor(optimizer, part, after) for part in parts]
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
            raise InvalidInputError(
                "must be the Adam optimizer itself, such as trainer.optimizer, not "
                f"{type(optimizer).__name__}. {_OR_NOT}",
                parameter="normalise",
            )
        optimizer = optimizer.optimizer
    return optimizer


def _divisor(optimizer: Any, part: ParameterPart, after: int) -> Tensor | None:
    group, state = _trained(optimizer, part)
    if state is None or float(state["step"]) < after:
        return None
    correction = 1.0 - group["betas"][1] ** float(state["step"])
    second = part.of(state.get("max_exp_avg_sq", state["exp_avg_sq"]))
    divisor = float(group["eps"]) + (second / correction).sqrt()
    return torch.where(second > 0, divisor, torch.ones_like(divisor))


def _trained(optimizer: Any, part: ParameterPart) -> tuple[Any, Any]:
    """The optimizer's options for a parameter, and Adam's moments, if there has been a step."""
    parameter = part.parameter
    holding = (
        group
        for group in optimizer.param_groups
        if any(each is parameter for each in group["params"])
    )
    group, state = next(holding, None), optimizer.state.get(parameter) or None
    if group is None:
        raise InvalidInputError(
            f"normalise: {type(optimizer).__name__} does not hold the parameters whose gradients "
            "are taken. Build it from the model's trainable parameters, or name a layer that it "
            f"trains (layer='…'). {_OR_NOT}"
        )
    is_adam = "betas" in group and "eps" in group
    if state is not None:
        moment = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
        whole = isinstance(moment, Tensor) and moment.shape == parameter.shape
        is_adam &= whole and moment.is_floating_point() and "step" in state
    if not is_adam:
        name = f"{type(optimizer).__module__.partition('.')[0]}.{type(optimizer).__name__}"
        raise InvalidInputError(
            f"normalise: {name} keeps no second moment for every coordinate (exp_avg_sq). Use "
            f"torch.optim.AdamW. {_OR_NOT}"
        )
    return group, state


# --- gradients as steps of Adam -------------------------------------------------------------------
# LESS compares the step of Adam on an example with plain gradients of the target:
# Γ(g) = m' / √(v' + ε) with m' = β₁ m + (1 − β₁) g and v' = β₂ v + (1 − β₂) g².


_FILE = "optimizer.pt"


@dataclass(frozen=True)
class Moments:
    """Adam's moments of one parameter, as rows."""

    mean: Tensor
    square: Tensor
    betas: tuple[float, float]
    eps: float


def adam_steps(gradients: Tensor, moments: Moments) -> Tensor:
    """Γ(g) of each row of gradients.

    >>> moments = Moments(torch.zeros(2), torch.zeros(2), (0.0, 0.0), 0.0)
    >>> adam_steps(torch.tensor([[3.0, -2.0]]), moments)
    tensor([[ 1., -1.]])
    """
    first, second = moments.betas
    # As few passes as possible: on a GPU they take most of the time.
    mean = torch.lerp(gradients, moments.mean.to(gradients), first)
    past = second * moments.square.to(gradients) + moments.eps
    square = torch.addcmul(past, gradients, gradients, value=1 - second)
    return mean.div_(square.sqrt_())


def read_moments(folder: str | os.PathLike[str], model: Any) -> dict[Any, Moments]:
    """The moments of a model's trained parameters, from the folder of a checkpoint.

    The saved states are matched by order with the model's trainable parameters.
    """
    path = Path(folder).expanduser() / _FILE
    found = {}
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        numbers = [(group, n) for group in saved["param_groups"] for n in group["params"]]
        trainable = [each for each in model.parameters() if each.requires_grad]
        for parameter, (group, number) in zip(trainable, numbers, strict=True):
            mean, square = (saved["state"][number][name] for name in ("exp_avg", "exp_avg_sq"))
            if mean.shape != parameter.shape:
                raise ValueError("its parameters are not those of the adapter")
            rows = mean.reshape(-1).float(), square.reshape(-1).float()
            found[parameter] = Moments(*rows, tuple(group["betas"]), group["eps"])
    except Exception as error:  # parsers raise anything on a damaged file
        reason = str(error).partition("\n")[0] or repr(error)
        raise InputFileError(
            f"{path}: the optimizer of the checkpoint could not be read ({reason}). Name a "
            "checkpoint-… folder of 'uniproto finetune', or leave Adam out."
        ) from error
    return found
