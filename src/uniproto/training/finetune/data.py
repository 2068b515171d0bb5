"""Instruction data for fine-tuning: read from files, tokenised, split, padded.

The prompt is the template with the instruction filled in; the answer follows it directly, and ends
with the model's end-of-text token. With the template `chat`, and for rows of messages, the
tokenizer's own chat template lays out the turns. Only answer tokens count in the loss.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.files import json_objects, unpacked
from uniproto.errors import InputFileError, MissingExtraError, UniprotoError, invalid, require_name
from uniproto.features.language import CHAT, FURTHER, has_further, whole_prompt
from uniproto.features.text import is_unicode
from uniproto.training.finetune.chats import Turns, as_turns, encoded_chat
from uniproto.training.finetune.settings import TOO_LONG, FinetuneSettings
from uniproto.training.losses import NO_LABEL

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error

_AT_ONCE = 1000
_ENDINGS = (".jsonl", ".jsonl.zst", ".parquet")


# --- rows of a file ------------------------------------------------------------------------------


@dataclass(frozen=True)
class InstructionRow:
    """A question and its answer, or the turns of a chat."""

    source: str
    prompt: str
    answer: str
    turns: Turns = ()


def read_files(settings: FinetuneSettings, names: Sequence[str]) -> list[InstructionRow]:
    """The rows of files, or of data sets on the hub, one after another."""
    rows: list[InstructionRow] = []
    for name in names:
        rows += read_rows(
            name,
            prompt=settings.prompt,
            answer=settings.answer,
            source=settings.source,
            messages=settings.messages,
        )
    return rows


def read_rows(
    path: str | Path,
    *,
    prompt: str,
    answer: str,
    source: str | None,
    messages: str | None = None,
) -> list[InstructionRow]:
    """Rows of a .jsonl, .jsonl.zst or .parquet file; without a source column, all are `all`.

    The file streams through: only these columns stay in memory. A name that is no file and could
    be one on the Hugging Face hub is looked for there, with the package datasets.
    """
    columns = {"--prompt": prompt, "--answer": answer}
    if messages is not None:
        columns = {"--messages": messages}
    if source is not None:
        columns["--source"] = source
    path = Path(path)
    if is_on_the_hub(str(path)):
        return _filled(list(_checked(_hub_rows(str(path)), path, columns)), path)
    if not any(path.name.lower().endswith(ending) for ending in _ENDINGS):
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(_ENDINGS)}. Got "
            f"{path.suffix or 'no ending'!r} instead. Convert the file to one of those."
        )
    try:
        table = (
            _parquet(path, list(columns.values()))
            if path.suffix.lower() == ".parquet"
            else _json_lines(path)
        )
        rows = list(_checked(table, path, columns))
    except (UniprotoError, MemoryError):
        raise
    except Exception as error:  # what a parser makes of a damaged file can be anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputFileError(
            f"{path}: the file must hold one object per line, or a Parquet table. It could not be "
            f"read ({getattr(error, 'strerror', None) or reason}). Check that it is there and "
            "complete."
        ) from error
    return _filled(rows, path)


def _filled(rows: list[InstructionRow], path: Path) -> list[InstructionRow]:
    if not rows:
        raise InputFileError(f"{path}: the file must hold training examples. It is empty.")
    return rows


def is_on_the_hub(name: str) -> bool:
    """Whether a name can be a data set on the hub: OWNER/NAME, perhaps with a :SPLIT.

    >>> is_on_the_hub("TIGER-Lab/MathInstruct"), is_on_the_hub("runs/train.jsonl")
    (True, False)
    """
    place = name.partition(":")[0]
    return (
        place.count("/") == 1
        and not place.startswith((".", "/", "~"))
        and not place.lower().endswith((*_ENDINGS, ".csv", ".json"))
        and not Path(place).parent.is_dir()
    )


def _hub_rows(name: str) -> Iterator[dict[str, Any]]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise InputFileError(
            f"{name}: a data set on the Hugging Face hub needs the package datasets, which is not "
            "installed. Run: pip install datasets"
        ) from error
    place, _, split = name.partition(":")
    try:
        yield from datasets.load_dataset(place, split=split or "train")
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise InputFileError(
            f"{name}: the data must be a file here or a data set on the Hugging Face hub. There is "
            f"no such file, and the hub did not give it ({reason}). Check the name, or download "
            "it: .jsonl and .parquet files are read as they are."
        ) from error


def _checked(
    table: Iterable[dict[str, Any]], path: Path, columns: dict[str, str]
) -> Iterator[InstructionRow]:
    """Rows whose columns are there and hold texts; a source can be anything but nothing."""
    source, messages = columns.get("--source"), columns.get("--messages")
    for number, row in enumerate(table):
        for option, column in columns.items():
            if column not in row:
                raise invalid(
                    option,
                    f"must name a column of {path.name} ({', '.join(row)})",
                    f"{column!r}, which row {number} does not have",
                    "Name another column.",
                )
            if column == messages:
                continue
            if row[column] is None or (column != source and not isinstance(row[column], str)):
                raise InputFileError(
                    f"{path}: column {column!r} must hold a text in every row. Row {number} has "
                    f"{type(row[column]).__name__} instead. Correct or drop that row."
                )
        label = "all" if source is None else str(row[source])
        if messages is not None:
            found = InstructionRow(label, "", "", as_turns(row[messages], path, number))
        else:
            question, answer = columns["--prompt"], columns["--answer"]
            more = row[FURTHER] if has_further(row, question, answer) else None
            found = InstructionRow(label, whole_prompt(row[question], more), row[answer])
        _require_unicode(found, path, number)
        yield found


def _require_unicode(row: InstructionRow, path: Path, number: int) -> None:
    texts = (row.source, row.prompt, row.answer, *itertools.chain(*row.turns))
    if not all(map(is_unicode, texts)):
        raise InputFileError(
            f"{path}: every row must hold Unicode text. Row {number} has half of a surrogate pair "
            "in it. Correct or drop that row."
        )


# Files are opened here, not by Arrow: it takes every path for UTF-8, which not every one is.


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with unpacked(path) as lines:
        for _, row in json_objects(lines, path):
            yield row


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with path.open("rb") as file, pq.ParquetFile(file) as table:
        # Where a column is missing, the others are shown.
        present = table.schema_arrow.names
        further = {FURTHER} & set(present)  # of the prompt, perhaps
        wanted = list({*columns, *further}) if set(columns) <= set(present) else None
        for batch in table.iter_batches(_AT_ONCE, columns=wanted):
            yield from batch.to_pylist()


# --- tokens --------------------------------------------------------------------------------------


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
        return [
            "\n\n".join(text for _, text in row.turns) or f"{row.prompt}\n\n{row.answer}"
            for row in self.rows
        ]

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
    _require_sense(max_length, too_long, template)
    fitting: list[InstructionRow] = []
    tokens, ends, learned = array("i"), array("q"), array("b")
    longer = 0
    for number, (row, prompt, answer, known) in enumerate(encoded(rows, tokenizer, template)):
        length = len(prompt) + len(answer)
        if length > max_length:
            longer += 1
            if too_long == "refuse":
                raise invalid(
                    "--max-length",
                    "must hold every example, with --too-long refuse",
                    f"{length} tokens in row {number} ({row.source}), more than {max_length}",
                    "Raise it, or choose --too-long truncate or skip.",
                )
            if too_long == "skip":
                continue
            prompt, answer = cut_to_length(prompt, answer, max_length)
            known = known[len(known) - len(prompt) :]
        fitting.append(row)
        tokens.extend([*prompt, *answer])
        learned.extend([*known, *[1] * len(answer)])
        ends.append(len(tokens))
    if not fitting:
        raise invalid(
            "--data",
            f"must hold examples of at most {max_length} tokens",
            f"{longer} longer ones",
            "Raise --max-length, or choose --too-long truncate.",
        )
    found = TokenisedRows(
        fitting,
        np.frombuffer(tokens, np.int32),
        np.frombuffer(ends, np.int64),
        np.frombuffer(learned, np.int8),
    )
    return found, longer


def _require_sense(max_length: int, too_long: str, template: str) -> None:
    require_name("--too-long", too_long, TOO_LONG)
    if max_length < 2:
        raise invalid("--max-length", "must be at least 2", max_length, "512 is usual.")
    if "{instruction}" not in template and template != CHAT:
        raise invalid(
            "--template",
            "must hold {instruction}",
            repr(template),
            "Say where the prompt goes, or pass 'chat' for the tokenizer's own template.",
        )


def cut_to_length(
    prompt: list[int], answer: list[int], max_length: int
) -> tuple[list[int], list[int]]:
    """At least one token of the answer stays; the prompt is cut at the front.

    >>> cut_to_length([1, 2, 3], [4, 5], 4), cut_to_length([1, 2, 3], [4, 5], 2)
    (([1, 2, 3], [4]), ([3], [4]))
    """
    answer = answer[: max(1, max_length - len(prompt))]
    return prompt[-(max_length - len(answer)) :], answer


def encoded(
    rows: Sequence[InstructionRow], tokenizer: Any, template: str
) -> Iterator[tuple[InstructionRow, list[int], list[int], list[int]]]:
    """Of every row: the tokens before its last answer, those of that answer with the end of the
    text, and which of the first (1) belong to earlier answers."""
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    for first in range(0, len(rows), _AT_ONCE):
        some = rows[first : first + _AT_ONCE]
        if template == CHAT or some[0].turns:
            for row in some:
                turns = row.turns or (("user", row.prompt), ("assistant", row.answer))
                yield row, *encoded_chat(tokenizer, turns)
            continue
        prompts_in_full = [template.replace("{instruction}", row.prompt) for row in some]
        prompts = tokenizer(prompts_in_full, verbose=False)["input_ids"]
        answers = tokenizer([row.answer for row in some], verbose=False, add_special_tokens=False)[
            "input_ids"
        ]
        for row, prompt, answer in zip(some, prompts, answers, strict=True):
            ends_already = bool(end) and prompt[-1:] == end  # some tokenizers end every text
            before = list(prompt[:-1] if ends_already else prompt)
            yield row, before, [*answer, *end], [0] * len(before)


@dataclass(frozen=True)
class PaddingCollator:
    """Pads to the longest example; labels of padding do not count."""

    pad_token_id: int

    def __call__(self, examples: list[Mapping[str, Any]]) -> dict[str, Any]:
        longest = max(len(each["input_ids"]) for each in examples)
        shape = len(examples), longest
        batch = {
            "input_ids": torch.full(shape, self.pad_token_id),
            "attention_mask": torch.zeros(shape, dtype=torch.int64),
            "labels": torch.full(shape, NO_LABEL),
        }
        for place, each in enumerate(examples):
            length = len(each["input_ids"])
            batch["input_ids"][place, :length] = torch.tensor(each["input_ids"])
            batch["attention_mask"][place, :length] = 1
            batch["labels"][place, :length] = torch.tensor(each["labels"])
        return batch


# --- training and validation ---------------------------------------------------------------------


@dataclass(frozen=True)
class Examples:
    """What is trained on, what is held out, and how many examples were too long as they stood."""

    train: TokenisedRows
    validation: TokenisedRows | None
    too_long: int


def prepare_examples(
    settings: FinetuneSettings, rows: Sequence[InstructionRow], tokenizer: Any, model: Any
) -> Examples:
    """Tokenise the rows, then split them.

    Rows skipped as too long go first: a source might otherwise lose all that was held out of it.
    """
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and settings.max_length > most:
        raise invalid(
            "--max-length",
            f"must not exceed the model's context of {most} tokens",
            settings.max_length,
            f"Pass --max-length {most}.",
        )
    options = (tokenizer, settings.max_length, settings.too_long, settings.template)
    tokens, too_long = tokenise(rows, *options)
    if settings.validation_data is not None:
        held_rows = read_files(settings, [settings.validation_data])
        held, also_too_long = tokenise(held_rows, *options)
        return Examples(_enough(tokens, settings.pool), held, too_long + also_too_long)
    train, places = split_places(
        [row.source for row in tokens.rows],
        settings.validation,
        settings.validation_least,
        settings.seed,
    )
    training = _enough(tokens.part(train), settings.pool)
    return Examples(training, tokens.part(places) if places else None, too_long)


def _enough(train: TokenisedRows, pool: int) -> TokenisedRows:
    if len(train) < pool:
        raise invalid(
            "--pool",
            f"must not exceed the {len(train)} training examples",
            pool,
            "Lower it, or bring more data.",
        )
    return train


def split_places(
    sources: Sequence[str], share: float, least: int, seed: int
) -> tuple[list[int], list[int]]:
    """Which rows are for training and which for validation: a share of every source is held out.

    At least so many of each; but a source is never left without training rows: of one too small
    for both, at most half goes to validation.

    >>> train, validation = split_places(["a"] * 100 + ["b"] * 6, 0.02, least=4, seed=0)
    >>> len(train), [place < 100 for place in validation]
    (99, [True, True, True, True, False, False, False])
    """
    random = np.random.default_rng(seed)
    of_source: dict[str, list[int]] = {}
    for place, source in enumerate(sources):
        of_source.setdefault(source, []).append(place)
    held: set[int] = set()
    if share > 0:
        for source in sorted(of_source):
            places = of_source[source]
            count = min(max(least, round(share * len(places))), len(places) // 2)
            held.update(random.choice(places, count, replace=False).tolist())
    return [place for place in range(len(sources)) if place not in held], sorted(held)
