"""One question of a benchmark, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What is asked and what is right.

    `words` are the label words of a classification task, empty where the answer is free text;
    `group` joins the answers to one question of MultiRC.
    """

    dataset: str
    id: str
    text: str
    gold: str
    words: tuple[str, ...] = ()
    group: str | None = None
