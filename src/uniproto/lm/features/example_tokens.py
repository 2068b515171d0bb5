"""Examples as tokens for scoring, as `uniproto finetune` would train on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.lm.features.losses import NO_LABEL
from uniproto.lm.finetune.tokens import as_row, cut_to_length, encoded


@dataclass(frozen=True)
class ExampleTokens:
    """The tokens of an example, its labels, and whether it was longer than the model reads."""

    input_ids: list[int]
    labels: list[int]
    cut: bool


def tokens_of(
    examples: Sequence[Any], tokenizer: Any, template: str, max_length: int
) -> list[ExampleTokens]:
    """The tokens of examples that nothing is wrong with."""
    rows = encoded(list(map(as_row, examples)), tokenizer, template)
    return [_tokens(prompt, answer, known, max_length) for _, prompt, answer, known in rows]


def _tokens(
    prompt: list[int], answer: list[int], known: list[int], max_length: int
) -> ExampleTokens:
    """The tokens of an example; `known` says which of its prompt (1) are earlier answers."""
    is_cut = len(prompt) + len(answer) > max_length
    if is_cut:
        prompt, answer = cut_to_length(prompt, answer, max_length)
        known = known[len(known) - len(prompt) :]
    labels = [token if own else NO_LABEL for token, own in zip(prompt, known, strict=True)]
    return ExampleTokens([*prompt, *answer], [*labels, *answer], is_cut)
