"""The pools of a training run: how their examples reach the selection, and what is logged of it.

The Trainer drops columns that the model does not take before they reach a batch. `PoolCollator`
puts each example's source and row number into the batch under names of its own; the selection takes
them out again before the model sees the batch.

A row of the data is one example, or several that were packed: then it says their lengths, as TRL's
packing does.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.lm.batches.flat_batches import as_rows, end_to_end, spans
from uniproto.lm.features.layers import language_model, unwrapped
from uniproto.lm.features.losses import batch_size, chosen_rows, trimmed_rows, used_lengths

SOURCES, ROWS, DRAWN = "uniproto_sources", "uniproto_rows", "uniproto_drawn"
_LENGTHS = "seq_lengths"  # the column that TRL's packing adds: of the examples in a row


@dataclass(frozen=True)
class PoolCollator:
    """Wraps a collator and adds each example's source and row number to its batch."""

    inner: Callable[[list[Any]], Any]
    source_column: str
    required: bool  # whether every example must have a source
    sees_all: bool = False  # whether the inner collator is given the source column, too
    adds_metadata: bool = True  # False where a batch may hold tensors only
    trains: bool = True  # False for evaluation, where batches are whatever they are

    def __call__(self, examples: list[Any]) -> Any:
        batch = self._collated(examples)
        if self.trains:
            _require_all(batch, sum(map(_examples_in, examples)))
        return batch

    def _collated(self, examples: list[Any]) -> Any:
        if not all(isinstance(each, Mapping) for each in examples):
            if self.required:
                raise no_source_column(self.source_column, [type(examples[0]).__name__])
            return self.inner(examples)
        labels = [self._labels(each) for each in examples]
        sources = [label for each in labels for label in each]
        rows = [each.get(ROWS) for each in examples]
        known = all(source is not None for source in sources)
        if self.required and not known:
            lacking = next(each for each, of in zip(examples, labels, strict=True) if None in of)
            if self.source_column in lacking:
                raise InvalidInputError(
                    f"source_column {self.source_column!r} must hold a label in every row. Fill or "
                    "drop rows with None, or use mode='batch'."
                )
            raise no_source_column(self.source_column, list(lacking))
        aside = {ROWS} if self.sees_all else {ROWS, self.source_column}
        batch = self.inner(
            [{key: value for key, value in each.items() if key not in aside} for each in examples]
        )
        if known and self.adds_metadata:
            batch[SOURCES] = sources
        if self.adds_metadata and all(row is not None for row in rows):
            batch[ROWS] = rows
        if self.adds_metadata and any(_LENGTHS in each for each in examples):
            batch[DRAWN] = len(examples)
        return batch

    def _labels(self, row: Mapping[str, Any]) -> list[Any]:
        """The source of each example in a row of the data: one for all of them, or one each."""
        label, count = row.get(self.source_column), _examples_in(row)
        if _LENGTHS in row and isinstance(label, list | tuple):
            return [_plain(each) for each in label]
        return [_plain(label)] * count


class NumberedRows(torch.utils.data.Dataset):
    """A data set whose examples hold their row number."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.inner[row], ROWS: row}


def _examples_in(row: Any) -> int:
    """How many examples a row of the data holds: several if it was packed.

    >>> _examples_in({"input_ids": [5, 3, 4]}), _examples_in({"seq_lengths": [2, 1]})
    (1, 2)
    """
    lengths = row.get(_LENGTHS) if isinstance(row, Mapping) else None
    return len(lengths) if isinstance(lengths, Sized) else 1


def _require_all(batch: Any, examples: int) -> None:
    """Refuse a batch from which no example can be taken alone: merged, or of several rows each."""
    if not isinstance(batch, Mapping):
        return  # which `as_pool` refuses
    parts = spans(batch)
    size = batch_size(batch) if parts is None else len(parts)
    if size != examples:
        raise InvalidInputError(
            f"data_collator returned {size} rows for {examples} examples, of which none can be "
            "chosen alone. Pack as TRL does with packing_strategy='bfd', without "
            "pad_to_multiple_of, or not at all; pairs of answers cannot be chosen from."
        )


@dataclass(frozen=True)
class BatchPool:
    """One micro-batch before selection: the model's inputs, and each example's source and row.

    `inputs` has one row per example. A batch without padding is kept as it came in `flat`. `drawn`
    rows of the data were put together: fewer than there are examples if those were packed.
    """

    inputs: dict[str, Any]
    size: int
    sources: list[Any] | None
    rows: list[int] | None
    flat: dict[str, Any] | None = None
    drawn: int | None = None

    def examples_in(self, rows: int) -> int:
        """The average number of examples in that many rows of the data; at least one.

        >>> BatchPool({}, size=20, sources=None, rows=None, drawn=8).examples_in(4)
        10
        """
        return max(1, round(rows * self.size / (self.drawn or self.size)))

    def chosen(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """The batch of these examples, in this order, laid out as it came."""
        if self.flat is None:
            return chosen_rows(self.inputs, self.size, rows)
        return end_to_end(self.flat, spans(self.flat) or [], rows.tolist())


def as_pool(batch: Any, source_column: str) -> BatchPool:
    """Separate the model's inputs from the sources and rows that `PoolCollator` added."""
    if not isinstance(batch, Mapping):
        raise InvalidInputError(
            "must return a mapping with input_ids, as "
            f"transformers.DataCollatorForSeq2Seq does, not {type(batch).__name__}.",
            parameter="data_collator",
        )
    inputs = dict(batch)
    sources, rows, drawn = (inputs.pop(each, None) for each in (SOURCES, ROWS, DRAWN))
    inputs.pop(source_column, None)  # the model would not know it
    parts = spans(inputs)
    if parts is None:
        return BatchPool(inputs, batch_size(inputs), sources, rows, drawn=drawn)
    return BatchPool(as_rows(inputs, parts), len(parts), sources, rows, inputs, drawn)


def require_within_context(model: Any, pool: BatchPool) -> None:
    """Refuse an example with more tokens than the model can read, before the model fails on it."""
    config = getattr(language_model(unwrapped(model)), "config", None)
    most = getattr(config, "max_position_embeddings", None)
    ids, mask = pool.inputs.get("input_ids"), pool.inputs.get("attention_mask")
    if ids is None or not isinstance(most, int) or most < 1 or ids.shape[-1] <= most:
        return
    longest = ids.shape[-1] if mask is None else int((mask != 0).sum(dim=-1).max())
    if longest > most:
        raise InvalidInputError(
            f"train_dataset holds an example of {longest} tokens, beyond the model's context of "
            f"{most}. Truncate it, or raise config.max_position_embeddings if the model can read "
            "further."
        )


def pieces(inputs: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """Split a batch into parts of examples of similar length, which need less padding."""
    parts = spans(inputs)
    if parts is not None:
        groups = torch.arange(len(parts)).split(most)
        return [end_to_end(inputs, parts, group.tolist()) for group in groups]
    lengths = used_lengths(inputs, inputs["labels"])
    groups = lengths.argsort(stable=True).split(most)
    return [trimmed_rows(inputs, group, lengths) for group in groups]


def columns_of(dataset: Any) -> list[str] | None:
    """The columns of a data set, where they are known without reading all of it."""
    names = getattr(dataset, "column_names", None)
    if isinstance(names, Sequence) and not isinstance(names, str):
        return list(names)
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        return None
    first = dataset[0]
    return list(first) if isinstance(first, Mapping) else None


def rows_per_source(dataset: Any, column: str, *, read_all: bool) -> Counter[Any]:
    """How many examples there are of every source.

    Where counting means reading all of the data, it is only done with `read_all`.

    >>> rows_per_source([{"source": "web"}, {"source": "law"}] * 2, "source", read_all=True)
    Counter({'web': 2, 'law': 2})
    """
    if isinstance(getattr(dataset, "sources", None), Counter):
        return dataset.sources
    if hasattr(dataset, "column_names") and hasattr(dataset, "__len__"):  # of datasets
        labels = dataset[column] if column in dataset.column_names else []
    else:
        labels = [dataset[row][column] for row in range(len(dataset))] if read_all else []
    several = (label if isinstance(label, list) else [label] for label in labels)
    return Counter(_plain(each) for label in several for each in label)


def no_source_column(column: str, present: list[str]) -> InvalidInputError:
    return InvalidInputError(
        f"source_column: {column!r} is not a column of every training example "
        f"({', '.join(map(str, present)) or 'none'}). Name the column of sources, or use "
        "mode='batch'."
    )


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


# --- what is logged with the loss ----------------------------------------------------------------


class Window:
    """Counts, times and costs of the selection since the last log."""

    def __init__(self, sources: Iterable[str] = ()) -> None:
        self._steps: set[int] = set()
        self.chosen = self.pooled = self.unusable = 0
        self.selection_seconds = 0.0
        self.began: float | None = None
        self.per_source: Counter[str] = Counter(dict.fromkeys(sources, 0))
        self.record: Any = None

    @property
    def steps(self) -> int:
        return len(self._steps)

    def begin(self, step: int) -> None:
        """Called before the pools of a step are fetched.

        Data of unknown length may end within a step; the same step then begins again.
        """
        self._steps.add(step)
        if self.began is None:
            self.began = time.perf_counter()

    def add(self, record: Any, pool: BatchPool, measured: bool) -> None:
        self.record = record if measured else None
        self.chosen += len(record.indices)
        self.pooled += pool.size
        self.unusable += len(record.left_out)
        if pool.sources is not None:
            self.per_source.update(dict.fromkeys(map(str, pool.sources), 0))
            self.per_source.update(str(pool.sources[row]) for row in record.indices.tolist())

    def summary(self, processes: int) -> dict[str, float]:
        """Numbers for the log: counts per step over all processes, times of this one."""
        seconds = max(time.perf_counter() - (self.began or 0.0), 1e-9)
        counted = {"kept": self.chosen, "pool": self.pooled, "left_out": self.unusable}
        counts = {f"selection/{name}": number for name, number in counted.items()}
        counts |= {f"selected/{source}": self.per_source[source] for source in self.per_source}
        found: dict[str, float] = {
            name: number // self.steps if number % self.steps == 0 else number / self.steps
            for name, number in sorted(over_processes(counts, processes).items())
        }
        found["selection/left_out"] = round(found["selection/left_out"] * self.steps)
        found["selection/seconds"] = self.selection_seconds / self.steps
        found["selection/step_seconds"] = seconds / self.steps
        found["selection/share"] = min(1.0, self.selection_seconds / seconds)
        if self.record is not None and not math.isnan(self.record.cost):
            found["selection/cost"] = self.record.cost
            found["selection/random_cost"] = self.record.random_cost
            if not math.isnan(self.record.share_of_possible):
                found["selection/share_of_possible"] = self.record.share_of_possible
        return found


def over_processes(counts: dict[str, int], processes: int) -> dict[str, int]:
    """Sums over all processes, which log the same steps."""
    if processes <= 1:
        return counts
    from accelerate.utils import gather_object

    together: Counter[str] = Counter()
    for each in gather_object([counts]):
        together.update(each)
    return dict(together)
