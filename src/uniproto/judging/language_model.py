"""A causal language model that is judged: what it writes after prompts, how likely words are."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pickle import UnpicklingError
from typing import Any, TypeVar

from uniproto.errors import InputFileError, MissingExtraError
from uniproto.judging.asking import Completion

try:
    import torch
    import transformers
    from safetensors import SafetensorError

    from uniproto.judging.model_files import ModelPlace, unreadable_weights
    from uniproto.training.finetune.model import load_model
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error

# A batch runs until its last answer ends. Most answers are short; the few long ones are set aside
# after so many tokens and finished together, so that they do not hold up every batch.
FIRST_ROUND = 256

Part = TypeVar("Part")
Answer = TypeVar("Answer")


def prompt_tokens(tokenizer: Any, prompts: Sequence[str]) -> list[list[int]]:
    """Every prompt with the special tokens it begins with, as in tuning; none that end it."""
    if not prompts:
        return []
    rows = [list(row) for row in tokenizer(list(prompts), verbose=False)["input_ids"]]
    end = tokenizer.eos_token_id
    return [row[:-1] if end is not None and row[-1:] == [end] else row for row in rows]


def left_padded(rows: Sequence[Sequence[int]], padding: int, device: Any) -> dict[str, Any]:
    """Rows of one length that end together, so that what comes next is at the same place in all.

    >>> left_padded([[5, 6], [7]], padding=0, device="cpu")["input_ids"].tolist()
    [[5, 6], [0, 7]]
    """
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), padding)
    mask = torch.zeros((len(rows), longest), dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, longest - len(row) :] = torch.tensor(row)
        mask[place, longest - len(row) :] = 1
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def padding_of(tokenizer: Any) -> int:
    """Any token will do: padding is masked out."""
    known = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return int(next(token for token in known if token is not None))


def context_of(model: Any) -> int | None:
    """How many tokens the model can look at, None where it does not say."""
    most = getattr(model.config, "max_position_embeddings", None)
    return most if isinstance(most, int) else None


class Batches:
    """Cuts work into batches: smaller ones for good, once a GPU's memory does not hold one."""

    def __init__(self, size: int, tell: Callable[[str], None]) -> None:
        self.size, self.tell = size, tell

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
                self.tell(f"a batch of {len(some)} does not fit into memory: {self.size} from here")
                gc.collect()
                torch.cuda.empty_cache()
                continue
            yield from answers
            place += len(some)


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
        for _ in batches.map(waiting, partial(_write, model, tokenizer, limit, stops)):
            pass
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


# What reading damaged weights raises, besides what `load_model` explains itself.
_DAMAGED = (
    SafetensorError,
    RuntimeError,
    AssertionError,
    IndexError,
    TypeError,
    OverflowError,
    EOFError,
    UnpicklingError,
    struct.error,
)


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
        tell: Callable[[str], None] = print,
    ) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.batches = Batches(batch_size, tell)
        self.max_new_tokens, self.stops = max_new_tokens, list(stops)
        # Sampling that a model recommends for chatting has no place in a test.
        ends = model.generation_config.eos_token_id
        model.generation_config = transformers.GenerationConfig(eos_token_id=ends)

    def generate(self, prompts: Sequence[str]) -> list[Completion]:
        return complete(
            self.model,
            self.tokenizer,
            prompts,
            batches=self.batches,
            max_new_tokens=self.max_new_tokens,
            stops=self.stops,
        )

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        return label_scores(self.model, self.tokenizer, prompts, words, batches=self.batches)


def load_language_model(
    place: ModelPlace, *, bf16: bool = False, device: str = "auto", **options: Any
) -> LanguageModel:
    """Load the weights, melt an adapter into them, and put them on the device."""
    try:
        model, tokenizer = load_model(place.base, half=bf16 and place.adapter is None)
    except _DAMAGED as error:
        raise unreadable_weights(place.base, error) from error
    name = place.base
    if place.adapter is not None:
        import peft

        try:
            model = peft.PeftModel.from_pretrained(model, str(place.adapter)).merge_and_unload()
        except SafetensorError as error:
            raise unreadable_weights(place.adapter, error) from error
        except (ValueError, RuntimeError, KeyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputFileError(
                f"{place.adapter}: the adapter must fit the model {place.base}. It does not "
                f"({reason}). Name the model it was made for with --base."
            ) from error
        name = f"{place.base} + {place.adapter}"
    if bf16:  # only now: merged in full precision, and rounded once
        model = model.to(torch.bfloat16)
    model.config.use_cache = True
    on_gpu = device == "auto" and torch.cuda.is_available()
    model = model.to("cuda" if on_gpu else "cpu")
    return LanguageModel(model, tokenizer, name=name, **options)
