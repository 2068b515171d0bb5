"""The language model that is judged: its answers to prompts, and the likelihood of words."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence

from uniproto.errors import InputFileError
from uniproto.lm.finetune.folder import ModelPlace
from uniproto.lm.judging.session import Completion
from uniproto.lm.models import load_model, padding_token, with_adapter

# A batch runs until its last answer ends. Most answers are short; the few long ones are set aside
# after this many tokens and finished together, so that they do not hold up every batch.
FIRST_ROUND = 256

Part = TypeVar("Part")
Answer = TypeVar("Answer")


class Batches:
    """Splits work into batches, and halves them if one does not fit into GPU memory."""

    def __init__(self, size: int, log: Callable[[str], None]) -> None:
        self.size, self.log = size, log

    def map(
        self, parts: Sequence[Part], work: Callable[[Sequence[Part]], Sequence[Answer]]
    ) -> Iterator[Answer]:
        """`work` on every batch, in order.

        >>> list(Batches(2, print).map([1, 2, 3], lambda some: [sum(some)] * len(some)))
        [3, 3, 3]
        """
        place = 0
        while place < len(parts):
            some = parts[place : place + self.size]
            try:
                answers = work(some)
            except torch.cuda.OutOfMemoryError:
                if len(some) == 1:
                    raise
                answers = None
            if answers is None:  # outside of the handler, which would keep the tensors alive
                self.size = len(some) // 2
                self.log(f"a batch of {len(some)} does not fit into memory: {self.size} from here")
                gc.collect()
                torch.cuda.empty_cache()
                continue
            yield from answers
            place += len(some)


@dataclass
class _Draft:
    """An answer that is being written."""

    prompt: list[int]
    room: int  # tokens it may have
    tokens: list[int]
    text: str = ""
    stopped: str | None = None


class LanguageModel:
    """A causal language model with its tokenizer, ready to answer in batches."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "model",
        batch_size: int = 16,
        max_new_tokens: int = 2048,
        stops: Sequence[str] = (),
        log: Callable[[str], None] = print,
    ) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.batches = Batches(batch_size, log)
        self.max_new_tokens, self.stops = max_new_tokens, list(stops)
        # Ignore the sampling that a model recommends for chats.
        ends = model.generation_config.eos_token_id
        model.generation_config = transformers.GenerationConfig(eos_token_id=ends)
        listed = ends if isinstance(ends, list) else [ends]
        known = (*listed, tokenizer.eos_token_id)
        self.end_tokens = sorted({int(token) for token in known if token is not None})
        context = getattr(model.config, "max_position_embeddings", None)
        self.context = context if isinstance(context, int) else None  # tokens it can look at

    def generate(self, prompts: Sequence[str]) -> list[Completion]:
        """One completion per prompt: the likeliest token every time, until the end or a stop.

        A prompt longer than the model's context loses its beginning, as it does in tuning.
        """
        drafts = [self._draft(tokens) for tokens in self._prompt_tokens(prompts)]
        limit = FIRST_ROUND
        while waiting := [draft for draft in drafts if draft.stopped is None]:
            # Longest first: what does not fit into memory shows at once, and batches pad little.
            waiting.sort(key=lambda draft: -len(draft.prompt) - len(draft.tokens))
            for _ in self.batches.map(waiting, partial(self._write, limit)):
                pass
            limit = self.max_new_tokens
        return [Completion(draft.text, draft.stopped or "length") for draft in drafts]

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        """log p(word | prompt) of each prompt's words: the sum over the word's tokens alone."""
        labels = [
            [self.tokenizer(word, add_special_tokens=False)["input_ids"] for word in each]
            for each in words
        ]
        longest = max((len(label) for each in labels for label in each), default=1)
        rows = self._prompt_tokens(prompts)
        if self.context is not None:
            rows = [row[-(self.context - longest + 1) :] for row in rows]
        # A word's last token is predicted, never read. So words of one token share one pass over
        # the prompt, and longer ones share it with those that begin alike.
        passes = sorted(
            {(at, tuple(label[:-1])) for at, each in enumerate(labels) for label in each},
            key=lambda each: (-len(rows[each[0]]) - len(each[1]), each),
        )

        def read(some: Sequence[tuple[int, tuple[int, ...]]]) -> list[Any]:
            return self._log_probabilities([[*rows[at], *start] for at, start in some], longest)

        scores = [[0.0] * len(each) for each in words]
        for (at, start), table in zip(passes, self.batches.map(passes, read), strict=True):
            for number, label in enumerate(labels[at]):
                if tuple(label[:-1]) == start:
                    places = torch.arange(len(table) - len(label), len(table))
                    scores[at][number] = float(table[places, torch.tensor(label)].sum())
        return scores

    def _prompt_tokens(self, prompts: Sequence[str]) -> list[list[int]]:
        """Every prompt with the special tokens that begin it, as in tuning, and none at its end.

        A chat template begins with one itself: it is not added a second time.
        """
        if not prompts:
            return []
        rows = [list(row) for row in self.tokenizer(list(prompts), verbose=False)["input_ids"]]
        end = self.tokenizer.eos_token_id
        rows = [row[:-1] if end is not None and row[-1:] == [end] else row for row in rows]
        begin = self.tokenizer.bos_token_id
        twice = [begin, begin]
        return [row[1:] if begin is not None and row[:2] == twice else row for row in rows]

    def _draft(self, prompt: list[int]) -> _Draft:
        most, context = self.max_new_tokens, self.context
        if context is None:
            return _Draft(prompt, most, [])
        # At least a quarter of the context remains to answer in.
        prompt = prompt[-max(1, context - min(most, context // 4)) :]
        return _Draft(prompt, min(most, context - len(prompt)), [])

    @torch.inference_mode()
    def _write(self, limit: int, drafts: Sequence[_Draft]) -> Sequence[_Draft]:
        """Continue some answers to at most `limit` tokens, and none beyond its limit."""
        steps = min(max(1, min(draft.room, limit) - len(draft.tokens)) for draft in drafts)
        inputs = self._padded([draft.prompt + draft.tokens for draft in drafts])
        config = transformers.GenerationConfig(
            do_sample=False,
            max_new_tokens=steps,
            eos_token_id=self.end_tokens or None,
            pad_token_id=padding_token(self.tokenizer),
            stop_strings=self.stops or None,
            use_cache=True,
        )
        made = self.model.generate(**inputs, generation_config=config, tokenizer=self.tokenizer)
        made = made[:, inputs["input_ids"].shape[1] :].tolist()
        for draft, new in zip(drafts, made, strict=True):
            end = next((at for at, token in enumerate(new) if token in self.end_tokens), None)
            draft.tokens += new[:end]
            draft.text = self.tokenizer.decode(draft.tokens, skip_special_tokens=True)
            places = [draft.text.find(stop) for stop in self.stops if stop in draft.text]
            if places:
                draft.text = draft.text[: min(places)]
            if places or end is not None:
                draft.stopped = "end"
            elif len(draft.tokens) >= draft.room:
                draft.stopped = "length"
        return drafts

    @torch.inference_mode()
    def _log_probabilities(self, rows: Sequence[Sequence[int]], last: int) -> list[Any]:
        """log p(next token) at the last positions of each row: (last or fewer, vocabulary)."""
        inputs = self._padded(rows)
        places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        output = self.model(**inputs, position_ids=places, use_cache=False, logits_to_keep=last)
        return list(output.logits[:, -last:].float().log_softmax(-1).cpu())

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Rows padded on the left, so that all continue at the same position."""
        ids = [torch.tensor(row, dtype=torch.int64) for row in rows]
        mask = [torch.ones_like(row) for row in ids]
        padded = partial(pad_sequence, batch_first=True, padding_side="left")
        return {
            "input_ids": padded(ids, padding_value=padding_token(self.tokenizer)).to(
                self.model.device
            ),
            "attention_mask": padded(mask).to(self.model.device),
        }


def load_language_model(
    place: ModelPlace, *, bf16: bool = False, device: str = "auto", **options: Any
) -> LanguageModel:
    """Load the weights, merge an adapter into them, and put them on the device."""
    try:
        model, tokenizer = load_model(place.base, half=bf16 and place.adapter is None)
    except InputFileError as error:
        if place.adapter is None:
            raise
        raise InputFileError(
            f"{error} The adapter {place.adapter} was made for it; name where it is with --base."
        ) from error
    name = place.base
    if place.adapter is not None:
        remedy = "Name the model it was made for with --base; copy or download damaged files again."
        model = with_adapter(model, place.adapter, remedy).merge_and_unload()
        name = f"{place.base} + {place.adapter}"
    if bf16:  # only now: merged in full precision, and rounded once
        model = model.to(torch.bfloat16)
    model.config.use_cache = True
    on_gpu = device == "auto" and torch.cuda.is_available()
    model = model.to("cuda" if on_gpu else "cpu")
    return LanguageModel(model, tokenizer, name=name, **options)
