"""Draw rows by class: long-tailed, skewed or balanced, and sources apart from targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, distinct_labels
from uniproto.errors import InfeasibleError, invalid, require_int


def long_tailed(
    labels: Any,
    imbalance: float,
    *,
    size: int | None = None,
    order: Sequence[Any] | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Rows whose classes shrink exponentially: class c of C gets n_max · imbalance^(−c/(C−1)).

    Args:
        labels: one label per row.
        imbalance: the largest class over the smallest, at least 1.
        size: how many rows in all. Default: as many as the classes have rows for.
        order: every class once, the largest first. Default: the sorted labels.
        seed: which rows of each class are drawn.

    Returns:
        Row numbers, ascending.

    >>> labels = [0] * 100 + [1] * 100 + [2] * 100
    >>> rows = long_tailed(labels, imbalance=100)
    >>> np.bincount(np.array(labels)[rows])
    array([100, 10, 1])
    """
    values = _labels(labels)
    counts = _long_tail(_rows_by_class(values), imbalance, size, order)
    return _draw(values, counts, _generator(seed))


def skewed(
    labels: Any, classes: Sequence[Any], share: float, size: int, *, seed: int = 0
) -> NDArray[np.int64]:
    """`size` rows of which each of `classes` makes up `share`; the others share the rest evenly.

    >>> labels = [0] * 50 + [1] * 50 + [2] * 50
    >>> rows = skewed(labels, classes=[2], share=0.05, size=60)
    >>> np.bincount(np.array(labels)[rows])
    array([29, 28, 3])
    """
    values = _labels(labels)
    counts = _skew(_rows_by_class(values), classes, share, size)
    return _draw(values, counts, _generator(seed))


def balanced(labels: Any, per_class: int, *, seed: int = 0) -> NDArray[np.int64]:
    """`per_class` rows of every class, ascending.

    >>> balanced(["a", "b", "a", "b"], per_class=2)
    array([0, 1, 2, 3])
    """
    values = _labels(labels)
    counts = dict.fromkeys(_rows_by_class(values), require_int("per_class", per_class))
    return _draw(values, counts, _generator(seed))


def balanced_source_and_target(
    labels: Any,
    per_class: int,
    *,
    imbalance: float | None = None,
    classes: Sequence[Any] | None = None,
    share: float | None = None,
    size: int | None = None,
    order: Sequence[Any] | None = None,
    seed: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A balanced source and a target of other rows, as in the paper: S ∩ T = ∅.

    The source has `per_class` rows of every class. The target is drawn from the rest as
    `long_tailed` does (with `imbalance`, and `size` and `order` if wanted) or as `skewed` does
    (with `classes`, `share` and `size`).

    >>> labels = np.repeat([0, 1], 100)
    >>> source, target = balanced_source_and_target(labels, 20, imbalance=8, size=90)
    >>> np.bincount(labels[source]), np.bincount(labels[target])
    (array([20, 20]), array([80, 10]))
    >>> np.intersect1d(source, target).size
    0
    """
    if (imbalance is None) == (classes is None and share is None):
        raise invalid(
            "imbalance",
            "must be given for a long-tailed target, or 'classes' and 'share' for a skewed one",
            "both" if imbalance is not None else "neither",
            "Describe the target in one of the two ways.",
        )
    values = _labels(labels)
    random = _generator(seed)
    source_counts = dict.fromkeys(_rows_by_class(values), require_int("per_class", per_class))
    source = _draw(values, source_counts, random)
    rest = np.ones(len(values), bool)
    rest[source] = False
    left = _rows_by_class(values[rest]) | {
        name: 0 for name, count in _rows_by_class(values).items() if count == per_class
    }
    left = {name: left[name] for name in source_counts}
    if imbalance is not None:
        counts = _long_tail(left, imbalance, size, order)
    elif classes is None or share is None or size is None:
        given = [
            name
            for name, value in (("classes", classes), ("share", share), ("size", size))
            if value is not None
        ]
        raise invalid(
            "share",
            "must come with 'classes' and 'size', which say how a target is skewed",
            f"only {', '.join(given)}",
            "Pass all three.",
        )
    else:
        counts = _skew(left, classes, share, size)
    target = np.flatnonzero(rest)[
        _draw(values[rest], counts, random, also=" in addition to the source's")
    ]
    return source, target


def _long_tail(
    available: dict[Any, int], imbalance: float, size: int | None, order: Sequence[Any] | None
) -> dict[Any, int]:
    if not (isinstance(imbalance, int | float | np.number) and 1 <= imbalance < np.inf):
        raise invalid(
            "imbalance",
            "must be a number of at least 1: the largest class over the smallest",
            repr(imbalance),
            "Pass 1 for equal classes, 50 or 100 for a long tail.",
        )
    names = list(available) if order is None else [_plain(name) for name in order]
    if sorted(names, key=str) != sorted(available, key=str):
        raise invalid(
            "order",
            f"must name every class once ({', '.join(map(str, available))})",
            f"{', '.join(map(str, names))}",
            "List the classes, the largest first.",
        )
    profile = float(imbalance) ** (-np.arange(len(names)) / max(1, len(names) - 1))
    rows = np.array([available[name] for name in names])
    if size is None:
        largest = (rows / profile).min()  # the class that runs out first decides
        counts = np.maximum(1, np.floor(profile * largest + 1e-9)).astype(np.int64)
    else:
        counts = _shared_out(require_int("size", size, least=len(names)), profile)
        counts = _each_has_one(counts)
    return dict(zip(names, counts.tolist(), strict=True))


def _skew(
    available: dict[Any, int], classes: Sequence[Any], share: float, size: int
) -> dict[Any, int]:
    chosen = [_plain(name) for name in classes]
    absent = [name for name in chosen if name not in available]
    if absent or not chosen or len(set(chosen)) < len(chosen):
        raise invalid(
            "classes",
            f"must name some of the classes once ({', '.join(map(str, available))})",
            ", ".join(map(str, absent or chosen)) or "none",
            "Take names from 'labels'.",
        )
    others = [name for name in available if name not in chosen]
    if not isinstance(share, int | float | np.number) or not (
        share > 0 and share * len(chosen) < (1 if others else 1 + 1e-9)
    ):
        raise invalid(
            "share",
            f"must be above 0, and {len(chosen)} times it below 1",
            repr(share),
            "Pass the part of the target that each of the classes makes up, such as 0.05.",
        )
    total = require_int("size", size, least=len(available))
    few = round(share * total)
    if few < 1:
        raise invalid(
            "share", "must give each class at least one row", f"{share} of {total}", "Raise 'size'."
        )
    if not others:
        return dict(zip(chosen, _shared_out(total, np.ones(len(chosen))).tolist(), strict=True))
    rest = _shared_out(total - few * len(chosen), np.ones(len(others)))
    counts = dict(zip(others, rest.tolist(), strict=True)) | dict.fromkeys(chosen, few)
    return {name: counts[name] for name in available}


def _shared_out(total: int, profile: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers in proportion to a profile; the largest remainders get what is left over."""
    exact = total * profile / profile.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def _each_has_one(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """No class vanishes: the largest ones pay for it, so that the order stays."""
    for empty in np.flatnonzero(counts == 0):
        counts[np.flatnonzero(counts == counts.max())[-1]] -= 1
        counts[empty] = 1
    return counts


def _draw(
    labels: NDArray[Any], counts: dict[Any, int], random: np.random.Generator, also: str = ""
) -> NDArray[np.int64]:
    """Rows of each class, without repeats, ascending."""
    drawn = []
    for name, count in counts.items():
        rows = np.flatnonzero(labels == name)
        if len(rows) < count:
            raise InfeasibleError(
                f"'labels' must have {count} rows of class {name!r}. Got {len(rows)}{also} "
                "instead. Ask for fewer rows."
            )
        drawn.append(random.choice(rows, count, replace=False))
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def _labels(labels: Any) -> NDArray[Any]:
    values = np.asarray(labels)
    if values.ndim != 1 or not len(values):
        raise invalid(
            "labels",
            "must hold one label per row",
            f"shape {values.shape}",
            "Pass a one-dimensional sequence.",
        )
    return as_labels(values, "labels", len(values))


def _rows_by_class(labels: NDArray[Any]) -> dict[Any, int]:
    """How many rows each class has, in the order of the sorted labels."""
    names, codes = distinct_labels(labels, "labels")
    return dict(zip(names.tolist(), np.bincount(codes).tolist(), strict=True))


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name


def _generator(seed: Any) -> np.random.Generator:
    return np.random.default_rng(require_int("seed", seed, least=0))
