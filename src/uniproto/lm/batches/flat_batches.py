"""Batches without padding: examples laid end to end in one row, as by padding-free collators.

Each example begins where its positions restart. `as_rows` gives every example a padded row of its
own, to be scored as if it were alone; `end_to_end` lays the chosen ones out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from uniproto.errors import InvalidInputError
from uniproto.lm.features.losses import NO_LABEL

_CUMULATED = ("cu_seq_lens_q", "cu_seq_lens_k")  # where examples begin, for flash attention
_LONGEST = ("max_length_q", "max_length_k")
_NUMBERS = "seq_idx"
_ABOUT_LAYOUT = ("position_ids", "attention_mask", _NUMBERS, *_CUMULATED, *_LONGEST)


def spans(inputs: Mapping[str, Any]) -> list[tuple[int, int]] | None:
    """Where each example of a row begins and ends; None for a batch of one row per example.

    >>> spans({"input_ids": torch.zeros(1, 5), "position_ids": torch.tensor([[0, 1, 2, 0, 1]])})
    [(0, 3), (3, 5)]
    >>> spans({"input_ids": torch.zeros(2, 5)}) is None
    True
    """
    ids = inputs.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        return None
    starts = _starts(inputs, ids)
    if starts is None:
        return None
    if len(ids) != 1:
        raise InvalidInputError(
            f"data_collator returned {len(ids)} rows with several examples each. Lay all of them "
            "end to end, as TRL does with packing_strategy='bfd', or pack nothing."
        )
    return list(pairwise([*starts, ids.shape[1]]))


def _starts(inputs: Mapping[str, Any], ids: Tensor) -> list[int] | None:
    """The places where examples begin, if some begin inside a row."""
    bounds = inputs.get(_CUMULATED[0])
    if isinstance(bounds, Tensor):
        return [int(place) for place in bounds.reshape(-1)[:-1]]
    positions = inputs.get("position_ids")
    if not isinstance(positions, Tensor) or positions.shape != ids.shape:
        return None
    restarts = positions[:, 1:] != positions[:, :-1] + 1
    mask = inputs.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        restarts &= (mask[:, 1:] != 0) & (mask[:, :-1] != 0)  # positions of padding have no meaning
    if not restarts.any():
        return None
    if len(ids) != 1:
        return []  # which `spans` refuses
    return [0, *(int(place) + 1 for place in restarts[0].nonzero()[:, 0])]


def as_rows(inputs: Mapping[str, Any], parts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The same examples padded, one per row, with an attention mask."""
    ids = inputs["input_ids"]
    longest = max(end - start for start, end in parts)
    found: dict[str, Any] = {}
    for key, value in inputs.items():
        if key in _ABOUT_LAYOUT:
            continue
        found[key] = value
        if isinstance(value, Tensor) and value.shape[:2] == ids.shape:
            filling = NO_LABEL if key == "labels" else 0
            rows = value.new_full((len(parts), longest, *value.shape[2:]), filling)
            for place, (start, end) in enumerate(parts):
                rows[place, : end - start] = value[0, start:end]
            found[key] = rows
    columns = torch.arange(longest, device=ids.device)
    lengths = torch.tensor([end - start for start, end in parts], device=ids.device)
    found["attention_mask"] = (columns < lengths[:, None]).long()
    return found


def end_to_end(
    inputs: Mapping[str, Any], parts: Sequence[tuple[int, int]], rows: Sequence[int]
) -> dict[str, Any]:
    """The same batch with these examples only, in this order."""
    ids = inputs["input_ids"]
    chosen = [parts[row] for row in rows]
    places = torch.cat([torch.arange(start, end) for start, end in chosen]).to(ids.device)
    lengths = [end - start for start, end in chosen]
    found = dict(inputs)
    for key, value in inputs.items():
        if key == _NUMBERS and isinstance(value, Tensor):
            counted = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor(lengths))
            found[key] = counted[None].to(value)
        elif key in _CUMULATED and isinstance(value, Tensor):
            found[key] = torch.tensor([0, *lengths]).cumsum(0).to(value)
        elif key in _LONGEST:
            longest = max(lengths)
            found[key] = torch.full_like(value, longest) if isinstance(value, Tensor) else longest
        elif isinstance(value, Tensor) and value.shape[:2] == ids.shape:
            found[key] = value[:, places]
            if key == "labels":
                # An example's first token must not be predicted from the previous example.
                found[key][:, torch.tensor([0, *lengths[:-1]]).cumsum(0)] = NO_LABEL
    return found


# --- a loss in which every example counts equally -------------------------------------------------
# The usual loss is a mean over the answer tokens of all chosen examples: one with 200 counts twenty
# times as much as one with 10. Prototypes have equal weights, so their losses should, too:
# Σ_i (mean over the answer tokens of i) / n, over the n examples of a step.


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
