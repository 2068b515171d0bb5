"""Gradients on the scale of Adam's steps: φ = g / (ε + √v), with the optimizer's own v.

v is the optimizer's running mean of squared gradients of the very same parameters, corrected for
its start at zero as Adam corrects it. Where there is none yet, the gradient stays as it is: before
the first step, and for a coordinate that never had a gradient (v exactly 0, such as LoRA's A after
one step from B = 0), which would otherwise be divided by ε alone and drown all others.
"""

from __future__ import annotations

from typing import Any

from uniproto.errors import InvalidInputError, MissingExtraError, invalid
from uniproto.training.last_block import ParameterPart

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Scoring training examples", "train") from error


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
