"""Token batches for a causal model: prompts as they were tuned on, padded on the left."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from uniproto.errors import MissingExtraError

try:
    import torch
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error

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
