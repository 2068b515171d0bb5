"""Accuracy of nearest-prototype classification, and the skew of learned weights.

The nearest prototype is that in the metric of the selection: Euclidean neighbours after a selection
by cosine would evaluate another geometry.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, distinct_labels
from uniproto.errors import InvalidInputError, unknown_name
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_for, pieces_of

_BLOCK_ENTRIES = 2**21  # costs computed at once, of all k × n
_SMALL = 0.5  # a class below this share of the mean class size is a minority


class LabelsWarning(UserWarning):
    """The labels are valid, but limit what an accuracy can show."""


@dataclass(frozen=True)
class Accuracy:
    """Shares of target rows whose nearest prototype has their label.

    `overall` counts every row once, `balanced` is the mean over classes, `minority` the mean over
    minority classes (None where there are none). `per_class` is in the order of the labels. A
    class without a prototype scores 0.
    """

    overall: float
    balanced: float
    minority: float | None
    per_class: dict[Hashable, float]


def nearest_prototype(costs: Costs, prototypes: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """For every target, the position of its nearest prototype; ties to the earliest.

    >>> from uniproto.geometry.costs import make_costs
    >>> points = np.array([[0.0], [1.0], [9.0]])
    >>> nearest_prototype(make_costs(points, points, "euclidean"), np.array([2, 0]))
    array([1, 1, 0])
    """
    n = costs.shape[1]
    if isinstance(costs, FeatureCosts):
        costs = costs.unsaturated()  # else all prototypes tie for a far target
    chosen = costs.restrict(np.asarray(prototypes, np.intp), EVERY)
    nearest = np.empty(n, np.intp)

    def search(piece: slice) -> None:
        nearest[piece] = np.argmin(chosen.exact_block(EVERY, piece), axis=0)

    parallel_for(search, pieces_of(n, max(1, _BLOCK_ENTRIES // len(prototypes))))
    return nearest


def accuracy(
    predicted: NDArray[Any], labels: NDArray[Any], minority: Collection[Hashable] = ()
) -> Accuracy:
    """Compare predicted labels with the true ones.

    >>> accuracy(np.array(["a", "a", "a", "b"]), np.array(["a", "a", "b", "b"]), ["b"])
    Accuracy(overall=0.75, balanced=0.75, minority=0.5, per_class={'a': 1.0, 'b': 0.5})
    """
    classes, true = _classes(labels)
    names, given = _classes(predicted)
    place = {name: position for position, name in enumerate(classes)}
    code = np.array([place.get(name, -1) for name in names])
    right = code[given] == true
    shares = np.bincount(true, right) / np.bincount(true)
    per_class = dict(zip(classes, shares.tolist(), strict=True))
    small = [per_class[name] for name in minority]
    return Accuracy(
        overall=float(right.mean()),
        balanced=float(shares.mean()),
        minority=float(np.mean(small)) if small else None,
        per_class=per_class,
    )


def minority_classes(
    labels: NDArray[Any], minority: Collection[Hashable] | None = None
) -> list[Hashable]:
    """The classes below half the mean class size, or those named.

    >>> minority_classes(np.array([0, 0, 0, 0, 0, 1, 2, 2, 2]))
    [1]
    """
    classes, codes = _classes(labels)
    if minority is None:
        sizes = np.bincount(codes)
        return [classes[place] for place in np.flatnonzero(sizes < _SMALL * sizes.mean())]
    if isinstance(minority, str) or not isinstance(minority, Collection):
        raise InvalidInputError(
            f"must be a list of classes, not {minority!r}.", parameter="minority"
        )
    by_text = {str(name): name for name in classes}  # as the command line names them
    named = [name if name in classes else by_text.get(str(name)) for name in minority]
    if None in named:
        raise unknown_name("minority", list(minority)[named.index(None)], by_text)
    return [classes[classes.index(name)] for name in dict.fromkeys(named)]


def checked_labels(labels: Any, problem: Problem) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """One label per source row and one per target row; None without labels."""
    if labels is None:
        return None
    of_source, of_target = problem.both_labels(labels, "labels")
    source = as_labels(of_source, "labels", problem.m)
    if of_target is None and not problem.same_set:
        raise InvalidInputError(
            "needs those of the target, too: labels=(of the source's rows, of the target's).",
            parameter="labels",
        )
    target = source if of_target is None else as_labels(of_target, "labels", problem.n)
    known, wanted = set(_classes(source, "labels")[0]), _classes(target, "labels")[0]
    if known.isdisjoint(wanted):
        raise InvalidInputError(
            f"must have at least one class of the target. The source has {_few(known)}, "
            f"the target {_few(wanted)}; the number 1 is not the text '1'.",
            parameter="labels",
        )
    return source, target


def doubts(source: NDArray[Any], target: NDArray[Any], k: int) -> list[str]:
    """Warnings about classes that no selection could get right."""
    known, wanted = set(source.tolist()), _classes(target)[0]
    found = []
    if missing := [name for name in wanted if name not in known]:
        found.append(
            f"No source row has the label {_few(missing)}: its target rows can never be right."
        )
    if k < len(wanted):
        found.append(
            f"k={k} is smaller than the number of classes in the target, {len(wanted)}: at least "
            f"{len(wanted) - k} of them get no prototype and score 0."
        )
    return found


def weight_skew(weights: NDArray[np.float64]) -> tuple[float, float]:
    """Largest weight over smallest (infinite if that is 0), and entropy over log k.

    Equal weights give (1, 1); if one prototype has all the weight, the entropy is 0.

    >>> ratio, entropy = weight_skew(np.array([0.5, 0.25, 0.25]))
    >>> ratio, round(entropy, 3)
    (2.0, 0.946)
    """
    shares = np.asarray(weights, np.float64) / np.sum(weights)
    smallest, largest = float(shares.min()), float(shares.max())
    ratio = largest / smallest if smallest > 0 else math.inf
    if len(shares) == 1 or smallest == largest:
        return ratio, 1.0
    positive = shares[shares > 0]
    entropy = -float(positive @ np.log(positive)) / math.log(len(shares))
    return ratio, min(1.0, max(0.0, entropy))


def _classes(
    labels: NDArray[Any], parameter: str = "labels"
) -> tuple[list[Hashable], NDArray[np.intp]]:
    """The sorted classes as Python values, and each row's index into them."""
    names, codes = distinct_labels(labels, parameter)
    return names.tolist(), codes


def _few(names: Collection[Hashable]) -> str:
    shown = sorted(map(repr, names))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
