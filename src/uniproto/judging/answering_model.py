"""What a model must be able to do to be judged. Reads nothing of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Completion:
    """What came after a prompt; `stopped` is "end", or "length" where the tokens ran out."""

    text: str
    stopped: str


@runtime_checkable
class AnsweringModel(Protocol):
    """Whatever can be judged. `LanguageModel` is one; a wrapper of your own server may be, too."""

    name: str

    def generate(self, prompts: Sequence[str]) -> Sequence[Completion]:
        """What the model writes after each prompt."""
        ...

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[float]]:
        """The log-likelihood of each prompt's words."""
        ...
