"""Instruction data as tokens: laid out, tokenised, padded.

The prompt is the template with the instruction filled in; the answer follows it directly, and ends
with the model's end-of-text token. With the template `chat`, and for rows of messages, the
tokenizer's own chat template lays out the turns. Only answer tokens count in the loss.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from uniproto.errors import InvalidInputError
from uniproto.lm.features.language import CHAT
from uniproto.lm.features.losses import NO_LABEL

_AT_ONCE = 1000


@dataclass(frozen=True)
class InstructionRow:
    """A question and its answer, the turns of a chat, or (without a prompt) a plain text."""

    source: str
    prompt: str | None
    answer: str
    turns: Turns = ()

    @property
    def question(self) -> str:
        """The prompt, what comes before the answers of a chat, or the text."""
        if self.turns:
            return "\n".join(text for role, text in self.turns if role != "assistant")
        return self.answer if self.prompt is None else self.prompt

    @property
    def text(self) -> str:
        """The row as people read it."""
        if self.turns:
            return "\n\n".join(text for _, text in self.turns)
        return self.answer if self.prompt is None else f"{self.prompt}\n\n{self.answer}"


def as_row(example: Any, source: str = "") -> InstructionRow:
    """An example that nothing is wrong with, as a row to train on.

    >>> as_row(("1 + 1?", "2")), as_row("a text").prompt
    (InstructionRow(source='', prompt='1 + 1?', answer='2', turns=()), None)
    """
    if isinstance(example, str):
        return InstructionRow(source, None, example)
    if isinstance(example, tuple):
        return InstructionRow(source, *example)
    turns = tuple((message["role"], message["content"]) for message in example)
    return InstructionRow(source, "", "", turns)


class TokenisedRows(torch.utils.data.Dataset):
    """Rows as tokens, with sources: what a Trainer takes.

    All tokens lie in one array, four bytes each: as lists of numbers they would take ten times as
    much. A part of the rows looks at the same array.
    """

    def __init__(
        self,
        rows: Sequence[InstructionRow],
        tokens: NDArray[np.int32],
        ends: NDArray[np.int64],
        learned: NDArray[np.int8],
    ) -> None:
        self.rows = rows
        self._tokens = tokens
        self._ends = ends  # of every row: where its tokens end (and those of the next begin)
        self._learned = learned  # of every token: 1 in an answer, 0 in a prompt
        self._starts = np.concatenate([[0], ends[:-1]])

    @property
    def sources(self) -> Counter[str]:
        """How many rows there are of every source."""
        return Counter(row.source for row in self.rows)

    @property
    def texts(self) -> list[str]:
        """The rows as people read them, for methods that look at texts."""
        return [row.text for row in self.rows]

    def part(self, places: Sequence[int]) -> TokenisedRows:
        """Some of the rows."""
        some = TokenisedRows(
            [self.rows[place] for place in places],
            self._tokens,
            self._ends[places],
            self._learned,
        )
        some._starts = self._starts[places]
        return some

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        place = slice(self._starts[row], self._ends[row])
        tokens = self._tokens[place]
        return {
            "input_ids": tokens.tolist(),
            "labels": np.where(self._learned[place] == 1, tokens, NO_LABEL).tolist(),
            "source": self.rows[row].source,
        }


def tokenise(
    rows: Sequence[InstructionRow], tokenizer: Any, max_length: int, too_long: str, template: str
) -> tuple[TokenisedRows, int]:
    """Prompt and answer as tokens, the prompt without labels; and how many were too long.

    An example longer than `max_length` is truncated (the end of its answer is lost; its prompt is
    cut at the front where it alone is too long, so that answer tokens remain), skipped or refused.
    """
    fitting: list[InstructionRow] = []
    tokens, ends, learned = array("i"), array("q"), array("b")
    longer = 0
    found = encoded(rows, tokenizer, template, max_length)
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
        tokens.extend(one.tokens)
        learned.extend(one.learned)
        ends.append(len(tokens))
    if not fitting:
        raise InvalidInputError(
            f"--data holds no example of at most {max_length} tokens. Raise --max-length, or "
            "choose --too-long truncate."
        )
    arrays = map(np.frombuffer, (tokens, ends, learned), (np.int32, np.int64, np.int8))
    return TokenisedRows(fitting, *arrays), longer


@dataclass(frozen=True)
class ExampleTokens:
    """The tokens of an example, cut to what fits; `learned` says which (1) belong to answers."""

    tokens: list[int]
    learned: list[int]
    length: int  # before it was cut

    @property
    def labels(self) -> list[int]:
        """What is to be predicted: the tokens of answers."""
        return [
            token if own else NO_LABEL for token, own in zip(self.tokens, self.learned, strict=True)
        ]


def encoded(
    rows: Sequence[InstructionRow], tokenizer: Any, template: str, max_length: int
) -> Iterator[ExampleTokens]:
    """The tokens of every row, the end of the text included."""
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        texts = [row for row in some if not _is_chat(row, template)]
        prompts: Iterator[list[int]] = iter(())
        answers: Iterator[list[int]] = iter(())
        if texts:
            laid_out = [_laid_out(row, template) for row in texts]
            said = [row.answer for row in texts]
            prompts = iter(tokenizer(laid_out, verbose=False)["input_ids"])
            answers = iter(tokenizer(said, verbose=False, add_special_tokens=False)["input_ids"])
        for row in some:
            if _is_chat(row, template):
                turns = row.turns or (("user", row.prompt or ""), ("assistant", row.answer))
                yield cut_to_length(*encoded_chat(tokenizer, turns), max_length)
                continue
            before = list(next(prompts))
            if end and before[-1:] == end:  # some tokenizers end every text
                before.pop()
            answer = [*next(answers), *end]
            yield cut_to_length(before, answer, [0] * len(before), max_length)


def cut_to_length(
    prompt: list[int], answer: list[int], known: list[int], max_length: int
) -> ExampleTokens:
    """At least one token of the answer stays; the prompt is cut at the front.

    `known` says which tokens of the prompt (1) belong to earlier answers.

    >>> cut_to_length([1, 2, 3], [4, 5], [0, 0, 0], 4).tokens
    [1, 2, 3, 4]
    >>> cut_to_length([1, 2, 3], [4, 5], [0, 0, 0], 2)
    ExampleTokens(tokens=[3, 4], learned=[0, 1], length=5)
    """
    length = len(prompt) + len(answer)
    if length > max_length:
        answer = answer[: max(1, max_length - len(prompt))]
        prompt = prompt[-(max_length - len(answer)) :]
        known = known[len(known) - len(prompt) :]
    return ExampleTokens([*prompt, *answer], [*known, *[1] * len(answer)], length)


def _is_chat(row: InstructionRow, template: str) -> bool:
    return bool(row.turns) or (template == CHAT and row.prompt is not None)


def _laid_out(row: InstructionRow, template: str) -> str:
    """What comes before the answer; nothing before a plain text."""
    return "" if row.prompt is None else template.replace("{instruction}", row.prompt)


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


Turns = tuple[tuple[str, str], ...]  # (role, text)
ANSWERS = "assistant"


def encoded_chat(tokenizer: Any, turns: Turns) -> tuple[list[int], list[int], list[int]]:
    """The tokens before the last answer, those of that answer, and which of the first (1) belong
    to earlier answers.

    An answer is what a turn adds after the template's prompt for one, its end included.
    """
    before: list[int] = []
    answered: list[int] = []
    answer: list[int] = []
    for place, (role, _) in enumerate(turns):
        if role != ANSWERS:
            continue
        prompt = _turns_laid_out(tokenizer, turns[:place], asks=True)
        whole = _turns_laid_out(tokenizer, turns[: place + 1], asks=False)
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
    return str(_turns_laid_out(tokenizer, (("user", "{instruction}"),), asks=True, tokenize=False))


def _turns_laid_out(tokenizer: Any, turns: Turns, asks: bool, tokenize: bool = True) -> Any:
    if not getattr(tokenizer, "chat_template", None):
        raise InvalidInputError(
            "--template: the tokenizer has no chat template of its own. Use a model tuned for "
            "chats, or leave --messages and --template chat out."
        )
    messages = [{"role": role, "content": text} for role, text in turns]
    found = tokenizer.apply_chat_template(
        messages, add_generation_prompt=asks, tokenize=tokenize, return_dict=False
    )
    return list(found) if tokenize else found
