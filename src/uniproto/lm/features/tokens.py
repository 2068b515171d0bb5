"""Tokenisation of instruction data.

The prompt is the template with the instruction filled in; the answer follows it directly, and ends
with the model's end-of-text token. With the template `chat`, and for rows of messages, the
tokenizer's own chat template lays out the turns. Only answer tokens count in the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from uniproto.data.examples import as_text
from uniproto.data.files import first_line
from uniproto.errors import InvalidInputError
from uniproto.lm.features.language import CHAT
from uniproto.lm.features.losses import NO_LABEL

_AT_ONCE = 1000


class SourcedExample(NamedTuple):
    """An example to train on, (prompt, answer), messages or a plain text, and its source."""

    source: str
    example: Any


@dataclass(frozen=True, slots=True)
class ExampleTokens:
    """The truncated tokens of an example; `learned` is 1 for those of answers."""

    tokens: NDArray[np.int32]
    learned: NDArray[np.int8]
    length: int  # before truncation

    def inputs(self) -> dict[str, list[int]]:
        """The inputs of a model: tokens, and labels for those of answers."""
        labels = np.where(self.learned == 1, self.tokens, NO_LABEL)
        return {"input_ids": self.tokens.tolist(), "labels": labels.tolist()}


@dataclass(frozen=True, eq=False)
class TokenisedRows(torch.utils.data.Dataset):
    """A data set of tokenised rows with sources, for a Trainer."""

    rows: Sequence[SourcedExample]
    tokens: Sequence[ExampleTokens]

    @property
    def sources(self) -> Counter[str]:
        """The number of rows of each source."""
        return Counter(row.source for row in self.rows)

    @property
    def texts(self) -> list[str]:
        """The rows as plain texts, for methods that compare texts."""
        return [str(as_text(row.example)) for row in self.rows]

    def part(self, places: Sequence[int]) -> TokenisedRows:
        """Some of the rows."""
        return TokenisedRows([self.rows[n] for n in places], [self.tokens[n] for n in places])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.tokens[row].inputs(), "source": self.rows[row].source}


def tokenise(
    rows: Sequence[SourcedExample],
    tokenizer: Any,
    max_length: int,
    too_long: str,
    template: str,
    name: str = "--data",
) -> tuple[TokenisedRows, int]:
    """Tokenised rows, with labels for answers only; and the number of rows that were too long.

    A row longer than `max_length` is truncated (at the end of its answer; if the prompt alone is
    too long, at its front, so that an answer token remains), skipped or refused. `name` is used in
    errors.
    """
    fitting: list[SourcedExample] = []
    tokens: list[ExampleTokens] = []
    longer = 0
    found = encoded([row.example for row in rows], tokenizer, template, max_length)
    for number, (row, one) in enumerate(zip(rows, found, strict=True)):
        if one.length > max_length:
            longer += 1
            if too_long == "refuse":
                raise InvalidInputError(
                    f"Row {number} ({row.source}) has {one.length} tokens, more than --max-length "
                    f"{max_length}. Raise it, or choose --too-long truncate or skip."
                )
            if too_long == "skip":
                continue
        fitting.append(row)
        tokens.append(one)
    if not fitting:
        raise InvalidInputError(
            f"{name} holds no example of at most {max_length} tokens. Raise --max-length, or "
            "choose --too-long truncate."
        )
    return TokenisedRows(fitting, tokens), longer


def encoded(
    examples: Sequence[Any], tokenizer: Any, template: str, max_length: int
) -> Iterator[ExampleTokens]:
    """The tokens of every example, including the end-of-text token."""
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    for first in range(0, len(examples), _AT_ONCE):
        some = [_laid_out(each, template) for each in examples[first : first + _AT_ONCE]]
        texts = [each for each in some if isinstance(each, tuple)]
        prompts: Iterator[list[int]] = iter(())
        answers: Iterator[list[int]] = iter(())
        if texts:
            asked, replies = map(list, zip(*texts, strict=True))
            prompts = iter(tokenizer(asked, verbose=False)["input_ids"])
            answers = iter(tokenizer(replies, verbose=False, add_special_tokens=False)["input_ids"])
        for each in some:
            if not isinstance(each, tuple):
                yield cut_to_length(*encoded_chat(tokenizer, each), max_length)
                continue
            before = list(next(prompts))
            if end and before[-1:] == end:  # added by some tokenizers
                before.pop()
            answer = [*next(answers), *end]
            yield cut_to_length(before, answer, [0] * len(before), max_length)


def _laid_out(example: Any, template: str) -> tuple[str, str] | Messages:
    """The text before the answer (empty for a plain text) and the answer; or messages."""
    if isinstance(example, str):
        return "", example
    if isinstance(example, list):
        return [{"content": "", **message} for message in example]  # and tool calls
    prompt, answer = example
    if template == CHAT:
        return [{"role": "user", "content": prompt}, {"role": ANSWERS, "content": answer}]
    return template.replace("{instruction}", prompt), answer


def cut_to_length(
    prompt: list[int], answer: list[int], known: list[int], max_length: int
) -> ExampleTokens:
    """Truncate, keeping at least one token of the answer; the prompt is cut at the front.

    `known` is 1 for tokens of the prompt that belong to earlier answers.

    >>> cut_to_length([1, 2, 3], [4, 5], [0, 0, 0], 4).inputs()
    {'input_ids': [1, 2, 3, 4], 'labels': [-100, -100, -100, 4]}
    >>> cut_to_length([1, 2, 3], [4, 5], [0, 0, 0], 2).inputs()
    {'input_ids': [3, 4], 'labels': [-100, 4]}
    """
    length = len(prompt) + len(answer)
    if length > max_length:
        answer = answer[: max(1, max_length - len(prompt))]
        prompt = prompt[-(max_length - len(answer)) :]
        known = known[len(known) - len(prompt) :]
    learned = [*known, *[1] * len(answer)]
    return ExampleTokens(np.array([*prompt, *answer], np.int32), np.array(learned, np.int8), length)


@dataclass(frozen=True)
class PaddingCollator:
    """Pads to the longest example, without labels."""

    pad_token_id: int

    def __call__(self, examples: list[Mapping[str, Any]]) -> dict[str, Any]:
        ids, labels = (
            [torch.tensor(each[name], dtype=torch.int64) for each in examples]
            for name in ("input_ids", "labels")
        )
        return {
            "input_ids": pad_sequence(ids, True, self.pad_token_id),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], True),
            "labels": pad_sequence(labels, True, NO_LABEL),
        }


# --- chats, laid out by the tokenizer's own chat template -----------------------------------------


Messages = list[dict[str, Any]]  # with role and content, or tool calls
ANSWERS = "assistant"


def encoded_chat(tokenizer: Any, messages: Messages) -> tuple[list[int], list[int], list[int]]:
    """The tokens before the last answer, those of the last answer, and a mask (1) of earlier
    answers in the former.

    An answer is what a turn adds after the template's generation prompt, including its end.
    """
    before: list[int] = []
    answered: list[int] = []
    answer: list[int] = []
    for place, message in enumerate(messages):
        if message["role"] != ANSWERS:
            continue
        prompt = list(_by_template(tokenizer, messages[:place], asks=True))
        whole = list(_by_template(tokenizer, messages[: place + 1], asks=False))
        done = before + answer
        if whole[: len(prompt)] != prompt or prompt[: len(done)] != done:
            raise InvalidInputError(
                "is chat, and later turns of the tokenizer's chat template change earlier ones. "
                "Pass rows of one answer each, or a template with {instruction}.",
                parameter="template",
            )
        answered += [1] * len(answer) + [0] * (len(prompt) - len(done))
        before, answer = prompt, whole[len(prompt) :]
    return before, answer, answered


def chat_prompt(tokenizer: Any) -> str:
    """The tokenizer's chat template as a prompt with {instruction} in it."""
    asked = [{"role": "user", "content": "{instruction}"}]
    return str(_by_template(tokenizer, asked, asks=True, tokenize=False))


def _by_template(tokenizer: Any, messages: Messages, asks: bool, tokenize: bool = True) -> Any:
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidInputError(
            "is chat, and the tokenizer has no chat template of its own. Use a model tuned for "
            "chats, or leave --messages and --template chat out.",
            parameter="template",
        )
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(
            messages, add_generation_prompt=asks, tokenize=tokenize, return_dict=False
        )
    except TemplateError as error:
        roles = ", ".join(each["role"] for each in messages)
        raise InvalidInputError(
            f"hold a conversation of {roles} that the model's chat template refuses "
            f"({first_line(error)}). Change those rows, or use another model.",
            parameter="messages",
        ) from error
