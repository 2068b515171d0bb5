"""LoRA layers that cost a card three products and nothing else: the numbers are those of peft.

A small model on a large card waits for memory: peft's own forward copies the inputs to float32,
scales and adds in passes of their own, and keeps what each of them needs for the way back. Here
scaling and adding happen inside the products, forwards and backwards, and layers that read the same
input keep it once. Norms run as one kernel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import functional


def make_lean(model: Any) -> None:
    """Run the LoRA layers and norms of a peft model by the kernels below; parameters stay.

    For plain LoRA: one adapter, no dropout, no bias.
    """
    from peft.tuners.lora import Linear

    for module in model.modules():
        if isinstance(module, Linear):
            (adapter,) = module.active_adapters
            assert module.base_layer.bias is None
            module.forward = partial(_lora, module, adapter)
        elif type(module).__name__ == "LlamaRMSNorm":
            module.forward = partial(_norm, module)


def _lora(module: Any, adapter: str, x: torch.Tensor) -> torch.Tensor:
    down, up = (each[adapter].weight for each in (module.lora_A, module.lora_B))
    weight = module.base_layer.weight
    return _LowRank.apply(
        x, weight, down.to(weight.dtype), up.to(weight.dtype), module.scaling[adapter]
    )


def _norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return functional.rms_norm(x, (x.shape[-1],), module.weight, module.variance_epsilon)


class _LowRank(torch.autograd.Function):
    """x (W + scaling · up down)ᵀ, with gradients for x, down and up."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, down: Any, up: Any, scaling: float) -> Any:
        rows = x.flatten(0, -2)
        narrow = rows @ down.T
        ctx.save_for_backward(x, weight, down, up, narrow)
        ctx.scaling = scaling
        found = (rows @ weight.T).addmm_(narrow, up.T, alpha=scaling)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight, down, up, narrow = ctx.saved_tensors
        rows, wide = x.flatten(0, -2), gradient.flatten(0, -2)
        slim = (wide @ up).mul_(ctx.scaling)
        by_x = (wide @ weight).addmm_(slim, down).view_as(x)
        return by_x, None, slim.T @ rows, (wide.T @ narrow).mul_(ctx.scaling), None
