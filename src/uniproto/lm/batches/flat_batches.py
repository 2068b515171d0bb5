"""Batches without padding: examples laid end to end in one row, as padding-free collators do it.

Each example begins where its positions restart. `as_rows` gives every example a padded row of its
own, to be scored as if it were alone; `end_to_end` lays the chosen ones out again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from uniproto.errors import MissingExtraError, invalid
from uniproto.lm.features.losses import NO_LABEL

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Selection inside a training run", "train") from error

_CUMULATED = ("cu_seq_lens_q", "cu_seq_lens_k")  # what flash attention is told of the examples
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
        raise invalid(
            "data_collator",
            "must return one row per example, or all examples end to end in a single row",
            f"{len(ids)} rows with several examples each",
            "Lay all of them end to end, as TRL does with packing_strategy='bfd', or pack nothing.",
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
        restarts &= (mask[:, 1:] != 0) & (mask[:, :-1] != 0)  # positions of padding say nothing
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
            if key == "labels":  # an example's first token is not to be told from another example
                found[key][:, torch.tensor([0, *lengths[:-1]]).cumsum(0)] = NO_LABEL
    return found
