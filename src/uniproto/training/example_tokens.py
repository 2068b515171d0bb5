"""Examples as tokens for scoring, as `uniproto finetune` would train on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.errors import InputFileError
from uniproto.features.language import CHAT
from uniproto.features.text import what_is_wrong
from uniproto.training.finetune.data import InstructionRow, cut_to_length, encoded
from uniproto.training.losses import NO_LABEL

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
            if not isinstance(text, str):
                return f"{name}: {what_is_wrong(text)}"
        return None if example[1].strip() else NO_ANSWER
    if not isinstance(example, list):
        return what_is_wrong(example)
    for message in example:
        if not (isinstance(message, Mapping) and isinstance(message.get("content"), str)):
            return "a message without a text"
        if not isinstance(message.get("role"), str):
            return "a message without a role"
    answers = [message for message in example if message["role"] == "assistant"]
    return None if any(message["content"].strip() for message in answers) else NO_ANSWER


def tokens_of(
    examples: Sequence[Any], tokenizer: Any, template: str, max_length: int
) -> list[ExampleTokens]:
    """The tokens of examples that nothing is wrong with."""
    if template == CHAT:
        examples = [_as_messages(example) for example in examples]
    found: dict[int, ExampleTokens] = {}
    pairs: dict[int, InstructionRow] = {}
    for place, example in enumerate(examples):
        if isinstance(example, list):
            found[place] = _chat_tokens(example, tokenizer, max_length)
        elif isinstance(example, tuple):
            pairs[place] = InstructionRow("", *example)
    for place, (_, prompt, answer) in zip(
        pairs, encoded(list(pairs.values()), tokenizer, template), strict=True
    ):
        found[place] = _from_pair(prompt, answer, max_length)
    texts = {place: text for place, text in enumerate(examples) if isinstance(text, str)}
    rows = [InstructionRow("", "", text) for text in texts.values()]
    for place, (_, prompt, answer) in zip(
        texts, encoded(rows, tokenizer, "{instruction}"), strict=True
    ):
        found[place] = _from_pair(prompt, answer, max_length)
    return [found[place] for place in range(len(examples))]


def _from_pair(prompt: list[int], answer: list[int], max_length: int) -> ExampleTokens:
    is_cut = len(prompt) + len(answer) > max_length
    if is_cut:
        prompt, answer = cut_to_length(prompt, answer, max_length)
    return ExampleTokens([*prompt, *answer], [NO_LABEL] * len(prompt) + answer, is_cut)


def _as_messages(example: Any) -> Any:
    """A prompt and its answer as a conversation, for the model's own template."""
    if not isinstance(example, tuple):
        return example
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for role, text in zip(roles, example, strict=True)]


def _chat_tokens(messages: list[Any], tokenizer: Any, max_length: int) -> ExampleTokens:
    """A conversation by the tokenizer's template; what the assistant says has labels.

    The end of a conversation that is too long is lost, but its first answer begins it where the
    prompt alone is too long.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise InputFileError(
            f"{tokenizer.name_or_path}: the model must have a chat template for messages. It has "
            "none. Use the instruction-tuned version of the model, or name columns of prompts and "
            "answers: --prompt, --answer."
        )
    tokens: list[int] = []
    labels: list[int] = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = _by_template(tokenizer, messages[:place], add_generation_prompt=True)
        whole = _by_template(tokenizer, messages[: place + 1])
        if whole[: len(prompt)] != prompt:  # a template that does not simply go on
            prompt = _common(prompt, whole)
        labels += [NO_LABEL] * (len(prompt) - len(labels)) + whole[max(len(prompt), len(labels)) :]
        tokens = whole
    first = next(place for place, label in enumerate(labels) if label != NO_LABEL)
    if len(tokens) <= max_length:
        return ExampleTokens(tokens, labels, False)
    begin = (
        max(0, min(first - max_length // 2, len(tokens) - max_length)) if first >= max_length else 0
    )
    part = slice(begin, begin + max_length)
    return ExampleTokens(tokens[part], labels[part], True)


def _by_template(tokenizer: Any, messages: list[Any], **options: Any) -> list[int]:
    plain = [dict(message) for message in messages]
    text = tokenizer.apply_chat_template(plain, tokenize=False, **options)
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def _common(first: list[int], second: list[int]) -> list[int]:
    count = next(
        (
            place
            for place, pair in enumerate(zip(first, second, strict=False))
            if pair[0] != pair[1]
        ),
        min(len(first), len(second)),
    )
    return second[:count]
