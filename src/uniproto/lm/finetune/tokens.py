"""Instruction data as tokens: laid out, tokenised, padded.

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
    """The tokens of an example, cut to what fits; `learned` says which (1) belong to answers."""

    tokens: NDArray[np.int32]
    learned: NDArray[np.int8]
    length: int  # before it was cut

    def inputs(self) -> dict[str, list[int]]:
        """What a model takes: its tokens, and of those of answers that they are to be predicted."""
        labels = np.where(self.learned == 1, self.tokens, NO_LABEL)
        return {"input_ids": self.tokens.tolist(), "labels": labels.tolist()}


@dataclass(frozen=True, eq=False)
class TokenisedRows(torch.utils.data.Dataset):
    """Rows as tokens, with sources: what a Trainer takes."""

    rows: Sequence[SourcedExample]
    tokens: Sequence[ExampleTokens]

    @property
    def sources(self) -> Counter[str]:
        """How many rows there are of every source."""
        return Counter(row.source for row in self.rows)

    @property
    def texts(self) -> list[str]:
        """The rows as people read them, for methods that look at texts."""
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
    """Prompt and answer as tokens, the prompt without labels; and how many were too long.

    An example longer than `max_length` is truncated (the end of its answer is lost; its prompt is
    cut at the front where it alone is too long, so that answer tokens remain), skipped or refused.
    `name` is what errors call the rows.
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
    """The tokens of every example, the end of the text included."""
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    for first in range(0, len(examples), _AT_ONCE):
        some = [_laid_out(each, template) for each in examples[first : first + _AT_ONCE]]
        texts = [each for each in some if isinstance(each, tuple)]
        prompts: Iterator[list[int]] = iter(())
        answers: Iterator[list[int]] = iter(())
        if texts:
            asked, said = map(list, zip(*texts, strict=True))
            prompts = iter(tokenizer(asked, verbose=False)["input_ids"])
            answers = iter(tokenizer(said, verbose=False, add_special_tokens=False)["input_ids"])
        for each in some:
            if not isinstance(each, tuple):
                yield cut_to_length(*encoded_chat(tokenizer, each), max_length)
                continue
            before = list(next(prompts))
            if end and before[-1:] == end:  # some tokenizers end every text
                before.pop()
            answer = [*next(answers), *end]
            yield cut_to_length(before, answer, [0] * len(before), max_length)


def _laid_out(example: Any, template: str) -> tuple[str, str] | Messages:
    """What comes before the answer, and the answer; or the messages of a chat.

    Nothing comes before a plain text.
    """
    if isinstance(example, str):
        return "", example
    if isinstance(example, list):
        return [{"role": each["role"], "content": each["content"]} for each in example]
    prompt, answer = example
    if template == CHAT:
        return [{"role": "user", "content": prompt}, {"role": ANSWERS, "content": answer}]
    return template.replace("{instruction}", prompt), answer


def cut_to_length(
    prompt: list[int], answer: list[int], known: list[int], max_length: int
) -> ExampleTokens:
    """At least one token of the answer stays; the prompt is cut at the front.

    `known` says which tokens of the prompt (1) belong to earlier answers.

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
    """Pads to the longest example; labels of padding do not count."""

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


Messages = list[dict[str, str]]  # with role and content
ANSWERS = "assistant"


def encoded_chat(tokenizer: Any, messages: Messages) -> tuple[list[int], list[int], list[int]]:
    """The tokens before the last answer, those of that answer, and which of the first (1) belong
    to earlier answers.

    An answer is what a turn adds after the template's prompt for one, its end included.
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
                "--template: later turns of the tokenizer's chat template change earlier ones. "
                "Pass rows of one answer each, or a template with {instruction}."
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
            "--template: the tokenizer has no chat template of its own. Use a model tuned for "
            "chats, or leave --messages and --template chat out."
        )
    return tokenizer.apply_chat_template(
        messages, add_generation_prompt=asks, tokenize=tokenize, return_dict=False
    )
