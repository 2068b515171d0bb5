"""Instruction data for fine-tuning: read, split, put into the prompt, cut into tokens.

The prompt is TEMPLATE with the instruction filled in; the answer follows it directly, and ends
with the model's end-of-text token. Only answer tokens count in the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.data.json_lines import json_objects
from uniproto.errors import InputFileError, MissingExtraError, invalid, require_name
from uniproto.training.answer_loss import NO_LABEL

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error

TEMPLATE = (
    "Below is an instruction that describes a task. Write a response that answers it.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
TOO_LONG = ("truncate", "skip", "refuse")
_AT_ONCE = 1000
_ENDINGS = (".jsonl", ".jsonl.zst", ".parquet")


@dataclass(frozen=True)
class TuningRow:
    source: str
    prompt: str
    answer: str


def read_rows(path: str | Path, *, prompt: str, answer: str, source: str | None) -> list[TuningRow]:
    """Rows of a .jsonl, .jsonl.zst or .parquet file; without a source column, all are `all`."""
    path = Path(path)
    if not any(path.name.lower().endswith(ending) for ending in _ENDINGS):
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(_ENDINGS)}. Got "
            f"{path.suffix or 'no ending'!r} instead. Convert the file to one of those."
        )
    try:
        table = _parquet(path) if path.suffix.lower() == ".parquet" else _json_lines(path)
    except InputFileError:
        raise
    except Exception as error:  # what a parser makes of a damaged file can be anything
        raise InputFileError(
            f"{path}: the file must hold one object per line, or a Parquet table. It could not be "
            f"read ({str(error).splitlines()[0] if str(error) else type(error).__name__}). Check "
            "that it is there and complete."
        ) from error
    if not table:
        raise InputFileError(f"{path}: the file must hold training examples. It is empty.")
    rows = []
    for number, row in enumerate(table):
        for option, column in (("--prompt", prompt), ("--answer", answer), ("--source", source)):
            if column is None:
                continue
            if column not in row:
                raise invalid(
                    option,
                    f"must name a column of {path.name} ({', '.join(row)})",
                    f"{column!r}, which row {number} does not have",
                    "Name another column.",
                )
            if row[column] is None or (column != source and not isinstance(row[column], str)):
                raise InputFileError(
                    f"{path}: column {column!r} must hold a text in every row. Row {number} has "
                    f"{type(row[column]).__name__} instead. Correct or drop that row."
                )
        label = "all" if source is None else str(row[source])
        rows.append(TuningRow(label, row[prompt], row[answer]))
    return rows


def _json_lines(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa

    compression = "zstd" if path.suffix.lower() == ".zst" else None
    with pa.input_stream(str(path), compression=compression) as stream:
        return [row for _, row in json_objects(stream.read().split(b"\n"), path)]


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return list(pq.read_table(path).to_pylist())


def split_rows(
    rows: Sequence[TuningRow], share: float, least: int, seed: int
) -> tuple[list[TuningRow], list[TuningRow]]:
    """Training and validation rows: a share of every source, at least so many of each.

    A source is never left without training rows: of a source too small for both, at most half goes
    to validation.

    >>> rows = [TuningRow("a", str(n), "") for n in range(100)] + [TuningRow("b", "x", "")] * 6
    >>> train, validation = split_rows(rows, 0.02, least=4, seed=0)
    >>> len(train), sorted(row.source for row in validation)
    (99, ['a', 'a', 'a', 'a', 'b', 'b', 'b'])
    """
    if not 0 <= share < 1:
        raise invalid("--validation", "must lie between 0 and 1", share, "Pass 0.02 for 2 %.")
    random = np.random.default_rng(seed)
    of_source: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        of_source.setdefault(row.source, []).append(place)
    held = set()
    if share > 0:
        for source in sorted(of_source):
            places = of_source[source]
            count = min(max(least, round(share * len(places))), len(places) // 2)
            held.update(random.choice(places, count, replace=False).tolist())
    train = [row for place, row in enumerate(rows) if place not in held]
    return train, [rows[place] for place in sorted(held)]


class TunedRows(torch.utils.data.Dataset):
    """Tokens of rows, with sources: what a Trainer takes."""

    def __init__(self, tokens: list[dict[str, Any]], texts: list[str], truncated: int) -> None:
        self.tokens, self.texts, self.truncated = tokens, texts, truncated
        self.sources: Counter[str] = Counter(each["source"] for each in tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.tokens[row]


def tokenise(
    rows: Sequence[TuningRow], tokenizer: Any, max_length: int, too_long: str, template: str
) -> TunedRows:
    """Prompt and answer as tokens, the prompt without labels.

    An example longer than `max_length` is truncated (the end of its answer is lost; its prompt is
    cut at the front where it alone is too long, so that answer tokens remain), skipped or refused.
    All are counted in `truncated`.
    """
    require_name("--too-long", too_long, TOO_LONG)
    if max_length < 2:
        raise invalid("--max-length", "must be at least 2", max_length, "512 is usual.")
    if "{instruction}" not in template:
        raise invalid(
            "--template", "must hold {instruction}", repr(template), "Say where the prompt goes."
        )
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    prompts = _tokens(tokenizer, [template.replace("{instruction}", row.prompt) for row in rows])
    answers = _tokens(tokenizer, [row.answer for row in rows], add_special_tokens=False)
    found, texts, truncated = [], [], 0
    for number, (row, prompt, answer) in enumerate(zip(rows, prompts, answers, strict=True)):
        if end and prompt[-1:] == end:  # some tokenizers end every text
            prompt = prompt[:-1]
        answer = [*answer, *end]
        if len(prompt) + len(answer) > max_length:
            truncated += 1
            if too_long == "refuse":
                raise invalid(
                    "--max-length",
                    "must hold every example, with --too-long refuse",
                    f"{len(prompt) + len(answer)} tokens in row {number} ({row.source}), more than "
                    f"{max_length}",
                    "Raise it, or choose --too-long truncate or skip.",
                )
            if too_long == "skip":
                continue
            answer = answer[: max(1, max_length - len(prompt))]  # at least one token stays
            prompt = prompt[-(max_length - len(answer)) :]
        found.append(
            {
                "input_ids": prompt + answer,
                "labels": [NO_LABEL] * len(prompt) + answer,
                "source": row.source,
            }
        )
        texts.append(f"{row.prompt}\n\n{row.answer}")
    if not found:
        raise invalid(
            "--data",
            f"must hold examples of at most {max_length} tokens",
            f"{truncated} longer ones",
            "Raise --max-length, or choose --too-long truncate.",
        )
    return TunedRows(found, texts, truncated)


def _tokens(tokenizer: Any, texts: list[str], **options: Any) -> list[list[int]]:
    found: list[list[int]] = []
    for first in range(0, len(texts), _AT_ONCE):
        some = tokenizer(texts[first : first + _AT_ONCE], verbose=False, **options)
        found += map(list, some["input_ids"])
    return found


@dataclass(frozen=True)
class PaddingCollator:
    """Pads to the longest example; labels of padding do not count."""

    pad_token_id: int

    def __call__(self, examples: list[Mapping[str, Any]]) -> dict[str, Any]:
        longest = max(len(each["input_ids"]) for each in examples)
        shape = len(examples), longest
        batch = {
            "input_ids": torch.full(shape, self.pad_token_id),
            "attention_mask": torch.zeros(shape, dtype=torch.int64),
            "labels": torch.full(shape, NO_LABEL),
        }
        for place, each in enumerate(examples):
            length = len(each["input_ids"])
            batch["input_ids"][place, :length] = torch.tensor(each["input_ids"])
            batch["attention_mask"][place, :length] = 1
            batch["labels"][place, :length] = torch.tensor(each["labels"])
        return batch
