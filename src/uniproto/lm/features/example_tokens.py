"""Examples as tokens for scoring, as `uniproto finetune` would train on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.features.text import is_unicode, what_is_wrong
from uniproto.lm.features.language import CHAT
from uniproto.lm.features.losses import NO_LABEL
from uniproto.lm.finetune.data import cut_to_length, encoded
from uniproto.lm.finetune.rows import InstructionRow

NO_ANSWER = "no answer token"


@dataclass(frozen=True)
class ExampleTokens:
    """The tokens of an example, its labels, and whether it was longer than the model reads."""

    input_ids: list[int]
    labels: list[int]
    cut: bool


def what_is_wrong_with(example: Any) -> str | None:
    """Why an example cannot be scored.

    >>> what_is_wrong_with(("1 + 1?", "2")), what_is_wrong_with(("1 + 1?", " "))
    (None, 'no answer token')
    >>> what_is_wrong_with([{"role": "user", "content": "Hi"}])
    'no answer token'
    """
    if isinstance(example, tuple):
        if len(example) != 2:
            return f"no prompt and answer but {len(example)} texts"
        for name, text in zip(("prompt", "answer"), example, strict=True):
            if not isinstance(text, str) or not is_unicode(text):
                return f"{name}: {what_is_wrong(text)}"
        return None if example[1].strip() else NO_ANSWER
    if not isinstance(example, list):
        return what_is_wrong(example)
    for message in example:
        if not (isinstance(message, Mapping) and isinstance(message.get("content"), str)):
            return "a message without a text"
        if not isinstance(message.get("role"), str):
            return "a message without a role"
        if not is_unicode(message["content"]):
            return f"a message: {what_is_wrong(message['content'])}"
    answers = [message for message in example if message["role"] == "assistant"]
    return None if any(message["content"].strip() for message in answers) else NO_ANSWER


def tokens_of(
    examples: Sequence[Any], tokenizer: Any, template: str, max_length: int
) -> list[ExampleTokens]:
    """The tokens of examples that nothing is wrong with."""
    found: dict[int, ExampleTokens] = {}
    for kind, laid_out in ((tuple, template), (list, CHAT), (str, "{instruction}")):
        places = [place for place, each in enumerate(examples) if isinstance(each, kind)]
        rows = [_as_row(examples[place]) for place in places]
        tokens = encoded(rows, tokenizer, laid_out)
        for place, (_, prompt, answer, known) in zip(places, tokens, strict=True):
            found[place] = _tokens(prompt, answer, known, max_length)
    return [found[place] for place in range(len(examples))]


def _as_row(example: Any) -> InstructionRow:
    if isinstance(example, str):
        return InstructionRow("", "", example)
    if isinstance(example, tuple):
        return InstructionRow("", *example)
    turns = tuple((message["role"], message["content"]) for message in example)
    return InstructionRow("", "", "", turns)


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
