"""What travels beside the model's inputs: each example's source, and its row in the data.

The Trainer drops columns that the model does not take before they reach a batch. The collator
here sets them aside, and puts them into the batch under names of its own, for the selection to
take out again before the model sees the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, MissingExtraError, UniprotoError, invalid
from uniproto.training.answer_loss import used_lengths
from uniproto.training.last_block import language_model, unwrapped

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Selection inside a training run", "train") from error

SOURCES, ROWS = "uniproto_sources", "uniproto_rows"


@dataclass(frozen=True)
class CarryingCollator:
    """A collator that carries sources and row numbers around the one it wraps."""

    inner: Callable[[list[Any]], Any]
    source_column: str
    required: bool  # whether every example must have a source
    sees_all: bool = False  # whether the inner collator is given the source column, too
    carries: bool = True  # False where nothing but tensors may travel

    def __call__(self, examples: list[Any]) -> Any:
        if not all(isinstance(each, Mapping) for each in examples):
            if self.required:
                raise no_source_column(self.source_column, [type(examples[0]).__name__])
            return self.inner(examples)
        sources = [_plain(each.get(self.source_column)) for each in examples]
        rows = [each.get(ROWS) for each in examples]
        known = all(source is not None for source in sources)
        if self.required and not known:
            lacking = next(e for e, source in zip(examples, sources, strict=True) if source is None)
            if self.source_column in lacking:
                raise invalid(
                    "source_column",
                    "must hold a label in every row",
                    f"None in {self.source_column!r}",
                    "Fill or drop those rows, or use mode='batch'.",
                )
            raise no_source_column(self.source_column, list(lacking))
        aside = {ROWS} if self.sees_all else {ROWS, self.source_column}
        batch = self.inner(
            [{key: value for key, value in each.items() if key not in aside} for each in examples]
        )
        if known and self.carries:
            batch[SOURCES] = sources
        if self.carries and all(row is not None for row in rows):
            batch[ROWS] = rows
        return batch


class NumberedRows(torch.utils.data.Dataset):
    """A data set whose examples know their place in it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.inner[row], ROWS: row}


@dataclass(frozen=True)
class Pool:
    """One micro-batch before selection: what the model takes, and what travelled beside it."""

    inputs: dict[str, Any]
    size: int
    sources: list[Any] | None
    rows: list[int] | None


def as_pool(batch: Any, source_column: str) -> Pool:
    """Take apart what the collator put together."""
    if not isinstance(batch, Mapping) or "input_ids" not in batch:
        raise invalid(
            "data_collator",
            "must return a mapping with input_ids",
            type(batch).__name__ if not isinstance(batch, Mapping) else ", ".join(batch),
            "Use a collator such as transformers.DataCollatorForSeq2Seq.",
        )
    inputs = dict(batch)
    sources, rows = inputs.pop(SOURCES, None), inputs.pop(ROWS, None)
    inputs.pop(source_column, None)  # the model would not know it
    size = len(inputs["input_ids"])
    carried = next((each for each in (sources, rows) if each is not None), None)
    if carried is not None and len(carried) != size:
        raise UniprotoError(
            f"A batch must hold one row per example, so that some can be chosen. Got {size} rows "
            f"for {len(carried)} examples instead. Turn packing and padding-free collation off."
        )
    return Pool(inputs, size, sources, rows)


def require_within_context(model: Any, pool: Pool) -> None:
    """Refuse an example with more tokens than the model can read, before the model fails on it."""
    config = getattr(language_model(unwrapped(model)), "config", None)
    most = getattr(config, "max_position_embeddings", None)
    ids, mask = pool.inputs["input_ids"], pool.inputs.get("attention_mask")
    if not isinstance(most, int) or most < 1 or ids.shape[-1] <= most:
        return
    longest = ids.shape[-1] if mask is None else int((mask != 0).sum(dim=-1).max())
    if longest > most:
        raise invalid(
            "train_dataset",
            f"must hold examples within the model's context of {most} tokens",
            f"one of {longest} tokens",
            "Truncate it, or raise config.max_position_embeddings if the model can read further.",
        )


def chosen_rows(inputs: Mapping[str, Any], size: int, rows: NDArray[np.int64]) -> dict[str, Any]:
    """The same batch with these examples only, in this order."""
    chosen: dict[str, Any] = {}
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.ndim and len(value) == size:
            chosen[key] = value[torch.from_numpy(rows).to(value.device)]
        elif isinstance(value, list | tuple) and len(value) == size:
            chosen[key] = [value[row] for row in rows.tolist()]
        else:
            chosen[key] = value
    return chosen


def pieces(inputs: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """The same batch in parts of at most so many examples of like length, with less padding."""
    shape = inputs["input_ids"].shape
    lengths = used_lengths(inputs, inputs["labels"]).cpu().numpy()
    order = np.argsort(lengths, kind="stable")
    found = []
    for first in range(0, len(order), most):
        rows = order[first : first + most]
        part = chosen_rows(inputs, len(order), rows)
        padded = (len(rows), *shape[1:])
        for key, value in part.items():
            if isinstance(value, torch.Tensor) and tuple(value.shape) == padded:
                part[key] = value[:, : lengths[rows].max()]
        found.append(part)
    return found


def columns_of(dataset: Any) -> list[str] | None:
    """The columns of a data set, where it can be told without running through it."""
    names = getattr(dataset, "column_names", None)
    if isinstance(names, Sequence) and not isinstance(names, str):
        return list(names)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        return None
    first = dataset[0]
    return list(first) if isinstance(first, Mapping) else None


def no_source_column(column: str, present: list[str]) -> InvalidInputError:
    return invalid(
        "source_column",
        "must be a column that every training example has",
        f"{column!r}, and the columns {', '.join(map(str, present)) or 'none'}",
        "Name the column of sources, or use mode='batch'.",
    )


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label
