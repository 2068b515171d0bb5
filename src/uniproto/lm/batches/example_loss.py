"""A training loss in which every example counts equally, whatever the length of its answer.

The usual loss is a mean over the answer tokens of all chosen examples: one with 200 of them counts
twenty times as much as one with 10. Prototypes have equal weights, so their losses should, too:
Σ_i (mean over the answer tokens of i) / n, over the n examples of a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uniproto.errors import MissingExtraError
from uniproto.lm.batches.flat_batches import spans
from uniproto.lm.features.losses import NO_LABEL

try:
    import torch
    from torch import Tensor
    from torch.nn import functional
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Selection inside a training run", "train") from error


def counted_examples(inputs: Mapping[str, Any]) -> int:
    """How many examples of a batch have an answer token.

    >>> counted_examples({"labels": torch.tensor([[1, 2], [3, -100], [4, 5]])})
    2
    """
    return int((_answer_tokens(inputs) > 0).sum())


class ExampleLoss:
    """For one batch: what a Trainer takes as its `compute_loss_func`.

    `num_items_in_batch` is the number of examples in the whole step, over all its batches.

    >>> batch = {"labels": torch.tensor([[0, 1, 1, 1], [0, 1, -100, -100]])}
    >>> logits = torch.zeros(2, 4, 2)
    >>> logits[1] += torch.tensor([3.0, 0.0])
    >>> loss = ExampleLoss(batch)({"logits": logits}, batch["labels"], num_items_in_batch=2)
    >>> round(float(loss), 4)  # (log 2 + log(1 + e³)) / 2
    1.8709
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        counts = _answer_tokens(inputs)
        self._weights = counts.clamp(min=1).reciprocal().to(torch.float32)[_owners(inputs)]
        self._examples = int((counts > 0).sum())
        self.used = False

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        self.used = True
        logits = outputs["logits"] if isinstance(outputs, Mapping) else outputs[0]
        # Labels move, not logits: those are large, and a part of them would be a copy.
        following = functional.pad(labels, (0, 1), value=NO_LABEL)[:, 1:].to(logits.device)
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(),
            following.flatten(),
            ignore_index=NO_LABEL,
            reduction="none",
        )
        weights = functional.pad(self._weights, (0, 1))[:, 1:].to(logits.device)
        total = (losses * weights.flatten()).sum()
        return total / (self._examples if num_items_in_batch is None else num_items_in_batch)


def _owners(inputs: Mapping[str, Any]) -> Tensor:
    """Which example each token belongs to, (rows, tokens)."""
    labels = inputs["labels"]
    parts = spans(inputs)
    if parts is None:
        rows = torch.arange(len(labels), device=labels.device)
        return rows[:, None].expand(labels.shape)
    lengths = torch.tensor([end - start for start, end in parts])
    return torch.repeat_interleave(torch.arange(len(parts)), lengths)[None].to(labels.device)


def _answer_tokens(inputs: Mapping[str, Any]) -> Tensor:
    """The number of answer tokens of each example; the first token of a row is never one."""
    labels = inputs["labels"]
    owners = _owners(inputs)
    counts = torch.zeros(int(owners.max()) + 1, dtype=torch.int64, device=labels.device)
    answered = (labels[:, 1:] != NO_LABEL).long()
    return counts.index_add_(0, owners[:, 1:].flatten(), answered.flatten())
