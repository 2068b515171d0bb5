"""Gradients on the scale of Adam's steps, by the optimizer's own moments of the same parameters.

`config.MOMENTS` names what they are divided by:

- `optimizer`: φ_i = g_i / (ε + √v), with v as the last step left it, corrected for its start at
  zero as Adam corrects it. Where there is none yet, the gradient stays as it is: before the first
  step, and for a coordinate that never had a gradient (v exactly 0, such as LoRA's A after one
  step from B = 0), which would otherwise be divided by ε alone and drown all others.
- `pool`: as the paper prints it, φ_i = g_i / (ε + √v_t) with v_t = β₂ v + (1 − β₂) ḡ², ḡ the mean
  gradient of the pool, not corrected. For GradNorm it prints one factor more, m_t = β₁ m +
  (1 − β₁) ḡ.
- `example`: CoLM's, Adam's step on that example alone: φ_i = m̂_i / (ε + √v̂_i) with
  m_i = β₁ m + (1 − β₁) g_i and v_i = β₂ v + (1 − β₂) g_i².

The default is `optimizer`: with β₂ = 0.999, v_t differs from v by a thousandth of ḡ², and φ is
linear in the gradient, so that it can be projected piece by piece.
"""

from __future__ import annotations

from typing import Any

from uniproto.errors import InvalidInputError, MissingExtraError, invalid
from uniproto.lm.features.layers import ParameterPart

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Scoring training examples", "train") from error

_OR_NOT = "For plain gradients: normalise=None, or SelectionConfig(adam_aligned=False)."


def with_moments(
    features: Tensor, optimizer: Any, parts: list[ParameterPart], moments: str, momentum: bool
) -> Tensor:
    """Features (examples, dimensions) by the moments `pool` or `example`; NaN rows stay NaN.

    `momentum` multiplies by m_t, which the paper prints for GradNorm.

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
        group, state = _group(inner, part), _adam_state(inner, part)
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
            # 0 / 0 where there never was a gradient and ε is 0: nothing to scale
            found.append((gradients * scale / (tiny + second.sqrt())).nan_to_num_(0.0, 0.0, 0.0))
            found[-1][~usable] = torch.nan
            continue
        mine = (slow * before + (1 - slow) * gradients) / (1 - slow ** (step + 1))
        own = (slower * squares + (1 - slower) * gradients**2) / (1 - slower ** (step + 1))
        found.append(torch.where(own > 0, mine / (tiny + own.sqrt()), mine))
    return torch.cat(found, dim=1)


def adam_divisor(optimizer: Any, parts: list[ParameterPart], after: int = 1) -> Tensor | None:
    """ε + √v for the coordinates of the parts, in order; None before so many steps.

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
            raise invalid(
                "normalise",
                "must be the Adam optimizer that trains the model, or None",
                type(optimizer).__name__,
                f"Pass the optimizer itself, such as trainer.optimizer. {_OR_NOT}",
            )
        optimizer = optimizer.optimizer
    return optimizer


def _divisor(optimizer: Any, part: ParameterPart, after: int) -> Tensor | None:
    group, state = _group(optimizer, part), _adam_state(optimizer, part)
    if state is None or float(state["step"]) < after:
        return None
    correction = 1.0 - group["betas"][1] ** float(state["step"])
    second = part.of(state.get("max_exp_avg_sq", state["exp_avg_sq"]))
    divisor = float(group["eps"]) + (second / correction).sqrt()
    return torch.where(second > 0, divisor, torch.ones_like(divisor))


def _group(optimizer: Any, part: ParameterPart) -> Any:
    """The options with which an optimizer trains a parameter."""
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
            "(layer='…'); optimizers that shard or flatten parameters are not supported. "
            + _OR_NOT,
        )
    if "betas" not in group or "eps" not in group:
        raise _not_adam(optimizer)
    return group


def _adam_state(optimizer: Any, part: ParameterPart) -> Any:
    """Adam's moments of a parameter; None before the first step."""
    parameter = part.parameter
    state = optimizer.state.get(parameter, {})
    if not state:
        return None
    moment = state.get("max_exp_avg_sq", state.get("exp_avg_sq"))
    if not isinstance(moment, Tensor) or moment.shape != parameter.shape or "step" not in state:
        raise _not_adam(optimizer)
    if not moment.is_floating_point():
        raise _not_adam(optimizer)
    return state


def _not_adam(optimizer: Any) -> InvalidInputError:
    name = f"{type(optimizer).__module__.partition('.')[0]}.{type(optimizer).__name__}"
    return invalid(
        "normalise",
        "must be an optimizer that keeps Adam's second moment for every coordinate (exp_avg_sq)",
        name,
        f"Use torch.optim.AdamW. {_OR_NOT}",
    )
