"""Gradients as the steps that Adam would make of them, by the moments a checkpoint has kept.

LESS compares what an example would do to the model with plain gradients of the target:
Γ(g) = m' / √(v' + ε) with m' = β₁ m + (1 − β₁) g and v' = β₂ v + (1 − β₂) g².
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Gradients of examples", "train") from error

_FILE = "optimizer.pt"


@dataclass(frozen=True)
class Moments:
    """Adam's running means of gradients and of their squares, of one parameter, as rows."""

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
    mean = first * moments.mean.to(gradients) + (1 - first) * gradients
    square = second * moments.square.to(gradients) + (1 - second) * gradients**2
    return mean / torch.sqrt(square + moments.eps)


class AdamMoments:
    """The moments of a model's trained parameters, from the folder of a checkpoint."""

    def __init__(self, by_parameter: dict[int, Moments]) -> None:
        self._by_parameter = by_parameter

    def of(self, parameter: Any) -> Moments:
        return self._by_parameter[id(parameter)]

    @classmethod
    def read(cls, folder: str, model: Any) -> AdamMoments:
        """Match what the optimizer has saved, by order, with the model's trainable parameters."""
        path = Path(folder).expanduser() / _FILE
        try:
            saved = torch.load(path, map_location="cpu", weights_only=True)
            groups, states = saved["param_groups"], saved["state"]
            numbers = [(group, number) for group in groups for number in group["params"]]
            found = {}
            trainable = [each for each in model.parameters() if each.requires_grad]
            for parameter, (group, number) in zip(trainable, numbers, strict=True):
                state = states[number]
                if state["exp_avg"].shape != parameter.shape:
                    raise ValueError("its parameters are not those of the adapter")
                found[id(parameter)] = Moments(
                    state["exp_avg"].reshape(-1).float(),
                    state["exp_avg_sq"].reshape(-1).float(),
                    (float(group["betas"][0]), float(group["betas"][1])),
                    float(group["eps"]),
                )
        except Exception as error:  # what is made of a damaged file can be anything
            raise InputFileError(
                f"{path}: gradients as steps of Adam need the optimizer of the checkpoint. It "
                f"could not be read ({str(error).splitlines()[0] if str(error) else error!r}). "
                "Name a checkpoint-… folder of 'uniproto finetune', or leave Adam out."
            ) from error
        return cls(found)
