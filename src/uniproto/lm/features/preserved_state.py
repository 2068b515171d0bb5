"""Scoring without a trace: a model, its gradients and all random states stay as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from uniproto.errors import MissingExtraError

try:
    import torch
    from torch import nn
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Scoring training examples", "train") from error


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Score inside; afterwards the model, its gradients and every random state are as before.

    Inside, the model is in evaluation mode: dropout (LoRA's too) is off and gradient
    checkpointing rests, since both act in training mode only. Restored afterwards: each module's
    own train/eval flag, `.grad` and `requires_grad` of every parameter, the buffers, and the
    random states of Python, NumPy, torch and the model's accelerators. The optimizer is never
    touched.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    >>> with preserve_state(model):
    ...     drawn = torch.rand(3), model[1].training
    >>> drawn[1], model[1].training, bool((torch.rand(3) == drawn[0]).all())
    (False, True, True)
    """
    modes = [(module, module.training) for module in model.modules()]
    parameters = [(each, each.grad, each.requires_grad) for each in model.parameters()]
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    states = _random_states(model)
    with ExitStack() as eager:
        if hasattr(torch.compiler, "set_stance"):  # compiled modules would not run our hooks
            eager.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            model.eval()
            yield
        finally:
            for module, training in modes:
                module.training = training
            for parameter, gradient, requires_grad in parameters:
                parameter.requires_grad_(requires_grad)
                parameter.grad = gradient
            for held, before in buffers:
                held.update(before)
            # Autocast keeps the weights it has cast; those cast without a graph would leave the
            # next training step inside the same autocast region without gradients.
            torch.clear_autocast_cache()
            _restore_random_states(states)


def _random_states(model: nn.Module) -> dict[Any, Any]:
    states: dict[Any, Any] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 (a model may draw from it)
        "cpu": torch.get_rng_state(),
    }
    for device in {each.device for each in model.parameters()}:
        if device.type not in ("cpu", "meta"):
            states[device] = torch.get_device_module(device).get_rng_state(device)
    return states


def _restore_random_states(states: dict[Any, Any]) -> None:
    random.setstate(states.pop("python"))
    np.random.set_state(states.pop("numpy"))  # noqa: NPY002
    torch.set_rng_state(states.pop("cpu"))
    for device, state in states.items():
        torch.get_device_module(device).set_rng_state(state, device)
