"""Classification by likelihood: how probable each label word is as the answer to a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uniproto.errors import MissingExtraError
from uniproto.judging.batches import (
    Batches,
    context_of,
    left_padded,
    padding_of,
    prompt_tokens,
)

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error


def label_scores(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    words: Sequence[Sequence[str]],
    *,
    batches: Batches,
) -> list[list[float]]:
    """log p(word | prompt) of each prompt's words: the sum over the word's tokens alone."""
    ways = [
        [tokenizer(word, add_special_tokens=False)["input_ids"] for word in each] for each in words
    ]
    longest = max((len(way) for each in ways for way in each), default=1)
    context = context_of(model)
    room = None if context is None else context - longest + 1
    begun = [row if room is None else row[-room:] for row in prompt_tokens(tokenizer, prompts)]
    # A word's last token is predicted, never read. So words of one token share one pass over the
    # prompt, and longer ones share it with those that begin alike.
    reading = sorted(
        {(place, tuple(way[:-1])) for place, each in enumerate(ways) for way in each},
        key=lambda each: (-len(begun[each[0]]) - len(each[1]), each),
    )

    def read(some: Sequence[tuple[int, tuple[int, ...]]]) -> list[Any]:
        rows = [[*begun[place], *beginning] for place, beginning in some]
        return _last_log_probabilities(model, rows, padding_of(tokenizer), longest)

    scores = [[0.0] * len(each) for each in words]
    for (place, beginning), table in zip(reading, batches.map(reading, read), strict=True):
        for number, way in enumerate(ways[place]):
            if tuple(way[:-1]) == beginning:
                rows = torch.arange(len(table) - len(way), len(table))
                scores[place][number] = float(table[rows, torch.tensor(way)].sum())
    return scores


@torch.inference_mode()
def _last_log_probabilities(
    model: Any, rows: Sequence[Sequence[int]], padding: int, last: int
) -> list[Any]:
    """Of each row, log p(next token) at its last places: (last or fewer, vocabulary)."""
    inputs = left_padded(rows, padding, model.device)
    places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    logits = model(**inputs, position_ids=places, use_cache=False, logits_to_keep=last).logits
    return list(logits[:, -last:].float().log_softmax(-1).cpu())
