"""Greedy generation in batches: what a model writes after a prompt, and where it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from uniproto.errors import MissingExtraError
from uniproto.judging.answering_model import Completion
from uniproto.judging.batches import (
    Batches,
    context_of,
    left_padded,
    padding_of,
    prompt_tokens,
)
from uniproto.runtime.threads import finish

try:
    import torch
    import transformers
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error

# A batch runs until its last answer ends. Most answers are short; the few long ones are set aside
# after so many tokens and finished together, so that they do not hold up every batch.
FIRST_ROUND = 256


@dataclass
class _Writing:
    """An answer on its way."""

    prompt: list[int]
    room: int
    written: list[int]
    text: str = ""
    stopped: str | None = None


def complete(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    batches: Batches,
    max_new_tokens: int,
    stops: Sequence[str] = (),
) -> list[Completion]:
    """One completion per prompt: the likeliest token every time, until the end or a stop string.

    A prompt longer than the model's context loses its beginning, as it does in tuning.
    """
    context = context_of(model)
    answers = []
    for tokens in prompt_tokens(tokenizer, prompts):
        if context is not None:  # at least a quarter of the context remains to answer in
            tokens = tokens[-max(1, context - min(max_new_tokens, context // 4)) :]
        room = max_new_tokens if context is None else min(max_new_tokens, context - len(tokens))
        answers.append(_Writing(tokens, room, []))
    limit = FIRST_ROUND
    while waiting := [answer for answer in answers if answer.stopped is None]:
        # Longest first: what does not fit into memory shows at once, and batches pad little.
        waiting.sort(key=lambda answer: -len(answer.prompt) - len(answer.written))
        finish(batches.map(waiting, partial(_write, model, tokenizer, limit, stops)))
        limit = max_new_tokens
    return [Completion(answer.text, answer.stopped or "length") for answer in answers]


@torch.inference_mode()
def _write(
    model: Any, tokenizer: Any, limit: int, stops: Sequence[str], some: Sequence[_Writing]
) -> Sequence[_Writing]:
    """Let some answers grow to at most `limit` tokens, and none beyond its room."""
    ends = end_tokens(model, tokenizer)
    steps = min(max(1, min(answer.room, limit) - len(answer.written)) for answer in some)
    rows = [answer.prompt + answer.written for answer in some]
    inputs = left_padded(rows, padding_of(tokenizer), model.device)
    config = transformers.GenerationConfig(
        do_sample=False,
        max_new_tokens=steps,
        eos_token_id=ends or None,
        pad_token_id=padding_of(tokenizer),
        stop_strings=list(stops) or None,
        use_cache=True,
    )
    made = model.generate(**inputs, generation_config=config, tokenizer=tokenizer)
    made = made[:, inputs["input_ids"].shape[1] :].tolist()
    for answer, fresh in zip(some, made, strict=True):
        end = next((place for place, token in enumerate(fresh) if token in ends), None)
        answer.written += fresh[:end]
        answer.text = tokenizer.decode(answer.written, skip_special_tokens=True)
        places = [answer.text.find(stop) for stop in stops if stop in answer.text]
        if places:
            answer.text = answer.text[: min(places)]
        if places or end is not None:
            answer.stopped = "end"
        elif len(answer.written) >= answer.room:
            answer.stopped = "length"
    return some


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a text, by the model's word or the tokenizer's."""
    given = getattr(model.generation_config, "eos_token_id", None)
    listed = given if isinstance(given, list) else [given]
    return sorted({int(each) for each in (*listed, tokenizer.eos_token_id) if each is not None})
