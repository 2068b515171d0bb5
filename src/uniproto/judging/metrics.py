"""Scores and how sure they are: accuracy, and F1 as SuperGLUE defines it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A share between 0 and 1 with its standard error (None where it has no simple one)."""

    value: float
    error: float | None = None


def accuracy(right: Sequence[bool]) -> Score:
    """The share that is right; its standard error is sqrt(p (1 − p) / n).

    >>> accuracy([True, True, True, False])
    Score(value=0.75, error=0.21650635094610965)
    """
    share = sum(right) / len(right)
    return Score(share, math.sqrt(share * (1 - share) / len(right)))


def f1(predicted: Sequence[str | None], gold: Sequence[str], positive: str) -> float:
    """The harmonic mean of precision and recall of one class; 0 where it was never found.

    >>> f1(["yes", "yes", "no"], ["yes", "no", "no"], "yes")
    0.6666666666666666
    """
    pairs = list(zip(predicted, gold, strict=True))
    both = sum(p == positive and g == positive for p, g in pairs)
    either = sum((p == positive) + (g == positive) for p, g in pairs)
    return 2 * both / either if either else 0.0


def macro_f1(predicted: Sequence[str | None], gold: Sequence[str]) -> float:
    """The mean of F1 over the classes that occur on either side, as CB is scored.

    >>> macro_f1(["a", "b", "b"], ["a", "b", "a"])
    0.6666666666666666
    """
    classes = sorted({*gold, *(each for each in predicted if each is not None)})
    return math.fsum(f1(predicted, gold, each) for each in classes) / len(classes)


def exact_match(right: Iterable[tuple[str, bool]]) -> Score:
    """MultiRC per question: the share of groups in which every answer was judged rightly.

    >>> exact_match([("q1", True), ("q1", False), ("q2", True)]).value
    0.5
    """
    groups: dict[str, bool] = {}
    for group, each in right:
        groups[group] = groups.get(group, True) and each
    return accuracy(list(groups.values()))


def mean(scores: Sequence[Score]) -> Score:
    """The plain mean of several data sets' scores, each counting the same.

    >>> mean([Score(0.5, 0.03), Score(0.7, 0.04)])
    Score(value=0.6, error=0.025)
    """
    errors = [each.error for each in scores if each.error is not None]
    value = math.fsum(each.value for each in scores) / len(scores)
    known = len(errors) == len(scores)
    return Score(value, math.hypot(*errors) / len(scores) if known else None)


def by_dataset(items: Iterable[Mapping[str, object]]) -> dict[str, list[Mapping[str, object]]]:
    """Items in one list per data set, in the order of their first appearance."""
    found: dict[str, list[Mapping[str, object]]] = {}
    for item in items:
        found.setdefault(str(item["dataset"]), []).append(item)
    return found
