"""The examples of a fine-tuning run: what is trained on, and what is held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.errors import invalid
from uniproto.training.finetune_settings import FinetuneSettings
from uniproto.training.tuning_data import TunedRows, split_places, tokenise
from uniproto.training.tuning_rows import TuningRow


@dataclass(frozen=True)
class TuningExamples:
    """What is trained on, what is held out, and how many examples were too long as they stood."""

    train: TunedRows
    validation: TunedRows | None
    too_long: int


def tuning_examples(
    settings: FinetuneSettings, rows: Sequence[TuningRow], tokenizer: Any, model: Any
) -> TuningExamples:
    """The rows as tokens, split. What is left out as too long is left out first.

    Else a source might lose all that was held out of it.
    """
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and settings.max_length > most:
        raise invalid(
            "--max-length",
            f"must not exceed the model's context of {most} tokens",
            settings.max_length,
            f"Pass --max-length {most}.",
        )
    tokens, too_long = tokenise(
        rows, tokenizer, settings.max_length, settings.too_long, settings.template
    )
    train, held = split_places(
        [row.source for row in tokens.rows],
        settings.validation,
        settings.validation_least,
        settings.seed,
    )
    if len(train) < settings.pool:
        raise invalid(
            "--pool",
            f"must not exceed the {len(train)} training examples",
            settings.pool,
            "Lower it, or bring more data.",
        )
    return TuningExamples(tokens.part(train), tokens.part(held) if held else None, too_long)
