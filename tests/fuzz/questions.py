"""Whole calls of `select`: a sensible question, of which some arguments may then be spoilt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from hypothesis import strategies as st

from uniproto import (
    Balanced,
    Compute,
    Density,
    Entropic,
    FasterPAM,
    Greedy,
    Groups,
    KMeansNearest,
    MMDCritic,
    ProtoDash,
    UniProto,
)
from uniproto.methods import METHODS

from .matrices import Given, matrices, no_matrices

FEATURES = ("cosine", "euclidean", "sqeuclidean", "l1", "dot")
MATRICES = ("precomputed", "similarity")
_FEW, _MORE = 9, 70  # rows of a source or target


@dataclass(frozen=True)
class Question:
    """One call of `select`, and what is known of it beforehand."""

    source: Given
    k: Any
    target: Given | None
    options: dict[str, Any] = field(default_factory=dict)
    spoilt: tuple[str, ...] = ()

    def arguments(self) -> dict[str, Any]:
        target = {} if self.target is None else {"target": self.target.value}
        options = {
            name: value.value if isinstance(value, Given) else value
            for name, value in self.options.items()
        }
        return {"source": self.source.value, "k": self.k, **target, **_joined(options)}


def _joined(options: dict[str, Any]) -> dict[str, Any]:
    """What is drawn one by one, as the values that `select` takes."""
    joined = dict(options)
    if "target_labels" in joined:
        joined["target_weights"] = Balanced(joined.pop("target_labels"))
    named = {"target_groups": "target", "budgets": "budgets"}
    own = {new: joined.pop(old) for old, new in named.items() if old in joined}
    if own:
        joined["groups"] = Groups(joined.get("groups"), **own)
    named = {"memory": "memory", "device": "device", "neighbours": "neighbours"}
    own = {new: joined.pop(old) for old, new in named.items() if old in joined}
    return {**joined, "compute": Compute(**own)} if own else joined


class _Unhelpful:
    """Breaks whenever it is compared, counted or turned into a text, except by `repr`."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __hash__(self) -> int:
        raise TypeError("no hash")

    def __bool__(self) -> bool:
        raise ValueError("no truth")


def _misbehaving(answer: Any) -> Callable[..., Any]:
    def metric(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return metric


# What no parameter takes, whatever it is for.
_ODDITIES: dict[str, Callable[[], Any]] = {
    "float": lambda: 2.5,
    "NaN": lambda: math.nan,
    "infinity": lambda: math.inf,
    "negative": lambda: -1,
    "huge": lambda: 10**30,
    "True": lambda: True,
    "NumPy True": lambda: np.True_,
    "text": lambda: "cosin",
    "empty text": lambda: "",
    "text of a NUL": lambda: "\x00",
    "half a character": lambda: "\ud800",
    "bytes": lambda: b"cosine",
    "list": lambda: [1],
    "nested list": lambda: [[0, 1], [2]],
    "empty list": list,
    "mapping": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "object": object,
    "array": lambda: np.array([1.0, 2.0]),
    "array of texts": lambda: np.array(["a", "b"]),
    "scalar array": lambda: np.array(2),
    "tensor": lambda: torch.tensor([1, 2]),
    "scalar tensor": lambda: torch.tensor(2),
    "complex": lambda: 1j,
    "fraction": lambda: Fraction(1, 2),
    "decimal": lambda: Decimal("1.5"),
    "unhelpful": _Unhelpful,
    "missing": lambda: pd.NA,
    "not a time": lambda: pd.NaT,
    "a class": lambda: UniProto,
    "a function that raises": lambda: _misbehaving(RuntimeError("no")),
    "a function of NaN": lambda: _misbehaving(math.nan),
    "a function of negatives": lambda: _misbehaving(np.full((2, 2), -1.0)),
    "a function of another shape": lambda: _misbehaving(np.ones(3)),
    "generator": lambda: (row for row in (0, 1)),
    "path": lambda: Path("picks.npz"),
    "column": lambda: pd.Series([0.5, 0.5]),
    "Arrow column": lambda: pa.array([0, 1]),
    "0-d text": lambda: np.array("cosine"),
}


def _oddities() -> st.SearchStrategy[Any]:
    return st.sampled_from(sorted(_ODDITIES)).map(lambda name: _ODDITIES[name]())


def _vector(values: Any, length: int) -> list[Any]:
    return [values[place % len(values)] for place in range(length)]


_WEIGHTS = {
    "equal": [1.0],
    "different": [1.0, 2.0, 3.5],
    "with zeros": [0.0, 1.0, 0.0, 3.0],
    "one only": [1.0, *[0.0] * 8],
    "tiny": [1e-300, 2e-300],
    "denormal": [5e-324, 1e-323, 0.0],
    "huge": [1e308, 1.7e308],
    "from tiny to huge": [5e-324, 1e308, 1.0],
    "nearly nothing": [1.0, 1e-20, 1e-15],
    "whole": [1, 2, 3],
    "huge whole numbers": [10**18, 1],
    "truths": [True, False, True],
    "fractions": [Fraction(1, 3), Fraction(2, 3)],
    "zero below zero": [-0.0, 1.0],
}
_BAD_WEIGHTS = {
    "all zero": [0.0],
    "negative": [1.0, -1e-9],
    "NaN": [1.0, math.nan],
    "infinite": [1.0, math.inf],
    "texts": ["a", "b"],
    "numbers as text": ["1", "2"],
    "complex": [1j],
    "too large": [10**400],
    "None": [None, 1.0],
    "dates": [np.datetime64("2020-01-01")],
}


@st.composite
def _weights(draw: st.DrawFn, n: int) -> Any:
    kind = draw(st.sampled_from(sorted(_WEIGHTS)))
    values = _vector(_WEIGHTS[kind], n)
    return draw(st.sampled_from([values, tuple(values), np.array(values)]))


@st.composite
def _bad_weights(draw: st.DrawFn, n: int) -> Any:
    kind = draw(st.sampled_from(sorted(_BAD_WEIGHTS)))
    values = _vector(_BAD_WEIGHTS[kind], max(2, n))
    shapes = [values, values[:-1], [values], [*values, *values], []]
    return draw(st.sampled_from(shapes))


def methods() -> st.SearchStrategy[Any]:
    """Methods by name, and method objects with options that are legal, also odd ones."""
    objects = [
        Greedy(plan="resolve"),
        Greedy(plan=Entropic()),
        Greedy(plan=Entropic(reg=1e-12)),
        Greedy(plan=Entropic(reg=1e300)),
        Greedy(plan=Entropic(reg=5e-324, iterations=3)),
        Greedy(plan=Entropic(iterations=1)),
        Greedy(gains="exact"),
        Greedy(gains="exact", plan="resolve", sample=0.3),
        Greedy(sample=0.999999),
        Greedy(sample=5e-324),
        UniProto(seconds=0.02),
        MMDCritic(bandwidth=1e-300),
        MMDCritic(bandwidth=1e300),
        ProtoDash(bandwidth=1e-9),
        ProtoDash(bandwidth=0.5),
        KMeansNearest(),
        FasterPAM(iterations=1),
    ]
    return st.one_of(
        st.just("uniproto"),
        st.sampled_from(sorted(set(METHODS) - {"dsir"})),  # which takes counts only
        st.sampled_from(objects),
    )


def _misfit_methods() -> st.SearchStrategy[Any]:
    """Options that methods must refuse; made inside the case, because making them is refused."""
    makers: list[Callable[[Any], Any]] = [
        lambda odd: Greedy(plan=odd),
        lambda odd: Greedy(gains=odd),
        lambda odd: Greedy(plan=Entropic(reg=odd)),
        lambda odd: Greedy(plan=Entropic(iterations=odd)),
        lambda odd: UniProto(search=odd),
        lambda odd: UniProto(seconds=odd),
        lambda odd: Greedy(sample=odd),
        lambda odd: MMDCritic(bandwidth=odd),
        lambda odd: ProtoDash(bandwidth=odd),
        lambda odd: FasterPAM(iterations=odd),
        lambda odd: Density(q=odd),
        lambda odd: Density(alpha=odd),
    ]
    return st.tuples(st.sampled_from(makers), _oddities())


@st.composite
def _rows(draw: st.DrawFn, m: int, most: int) -> Any:
    rows = draw(st.lists(st.integers(0, m - 1), max_size=most, unique=True))
    mask = np.zeros(m, bool)
    mask[rows] = True
    kinds = [rows, tuple(rows), np.array(rows, np.uint8), np.array(rows, np.int64), mask]
    return draw(st.sampled_from(kinds))


@st.composite
def _bad_rows(draw: st.DrawFn, m: int) -> Any:
    bad = [[m], [-1], [0, 0], [0.0], ["0"], [[0]], 0, [True], [10**30], [None], range(m + 1)]
    return draw(st.one_of(st.sampled_from(bad), _oddities()))


_LABELS = {
    "numbers": [0, 1],
    "texts": ["a", "b", "a"],
    "one": ["all"],
    "floats": [0.5, -1.5],
    "truths": [True, False],
    "bytes": [b"a", b"b"],
    "empty texts": ["", "a"],
    "odd texts": ["a\x00b", "\ud800"],
    "infinite": [math.inf, 0.0],
}
_BAD_LABELS = {
    "missing": ["a", None],
    "NaN": [1.0, math.nan],
    "pandas' missing": ["a", pd.NA],
    "mixed": ["a", 1, 2.5],
    "lists": [[1], [2, 3]],
    "mappings": [{"a": 1}],
    "objects": [object(), object()],
    "no times": [np.datetime64("NaT")],
}


@st.composite
def _labels(draw: st.DrawFn, length: int, kind: str) -> Any:
    values = _vector(_LABELS[kind], length)
    places = draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    names = list(dict.fromkeys(values))
    chosen = [names[place % len(names)] for place in places]
    dresses = [list, np.array, partial(np.array, dtype=object)]
    if kind != "odd texts":  # which pandas refuses
        dresses.append(pd.Series)
    return draw(st.sampled_from(dresses))(chosen)


@st.composite
def _bad_labels(draw: st.DrawFn, length: int) -> Any:
    values = _vector(_BAD_LABELS[draw(st.sampled_from(sorted(_BAD_LABELS)))], max(2, length))
    array = np.empty(len(values), object)
    array[:] = values
    return draw(st.one_of(st.sampled_from([values, values[1:], array]), _oddities()))


@st.composite
def _budgets(draw: st.DrawFn, labels: Any, k: int) -> Any:
    if draw(st.booleans()):
        return draw(st.sampled_from(["proportional", "balanced"]))
    names = list(dict.fromkeys(np.asarray(labels).tolist()))
    first = draw(st.integers(0, k))
    return {names[0]: first, names[-1]: k - first} if len(names) > 1 else {names[0]: k}


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """A question with an answer, or nearly one."""
    largest = draw(st.sampled_from([_FEW] * 9 + [_MORE]))
    m, n = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    width = draw(st.integers(1, 4))
    metric = draw(st.sampled_from(FEATURES + MATRICES))
    as_matrix = metric in MATRICES
    own_target = not as_matrix and draw(st.booleans())
    n = n if own_target or as_matrix else m
    poisoned = draw(st.integers(0, 29)) == 17
    source = draw(matrices((m, n) if as_matrix else (m, width), poisoned))
    target = draw(matrices((n, width))) if own_target else None
    k = draw(st.integers(1, m))
    options: dict[str, Any] = {"metric": metric, "progress": False, "method": draw(methods())}
    if width == 1:
        options["features"] = False  # or a table would be scaled, and its numbers be others

    def add(name: str, values: st.SearchStrategy[Any], one_in: int) -> None:
        if draw(st.integers(1, one_in)) == one_in:
            options[name] = draw(values)

    add(
        "target_weights",
        st.one_of(
            _weights(n),
            _weights(n),
            st.sampled_from([Density(), Density(q=1), Density(q=2, alpha=700.0)]),
        ),
        2,
    )
    if options.get("target_weights") is None and draw(st.integers(1, 8)) == 8:
        options["target_labels"] = draw(_labels(n, draw(st.sampled_from(sorted(_LABELS)))))
    if draw(st.integers(1, 3)) == 3:
        kind = draw(st.sampled_from(sorted(_LABELS)))
        options["groups"] = draw(_labels(m, kind))
        if own_target or as_matrix:
            options["target_groups"] = draw(_labels(n, kind))
        options["budgets"] = draw(_budgets(options["groups"], k))
    add("include", _rows(m, k), 3)
    add("exclude", _rows(m, max(0, m - k)), 3)
    add(
        "min_distance",
        st.sampled_from(["auto", 0, 0.0, 1e-9, 0.3, np.float32(0.1), 5e-324, 1e300]),
        4,
    )
    add("seed", st.sampled_from([1, 2**31, 2**64, np.uint8(7), 10**30]), 4)
    add("memory", st.sampled_from([1, 100, 10**6, "1KB", "64MB", 1e9, np.int64(10**7)]), 4)
    add("device", st.sampled_from(["cpu", "auto", "cuda"]), 4)
    add("neighbours", st.sampled_from(["exact", "faiss"]), 8)
    add("certify", st.just(True), 4)
    return Question(source, k, target, options)


@st.composite
def spoilt_questions(draw: st.DrawFn) -> Question:
    """A question of which one to three arguments make no sense."""
    question = draw(questions())
    shape = None if question.source.numbers is None else question.source.numbers.shape
    assert shape is not None
    m = shape[0]
    n = shape[1] if question.options["metric"] in MATRICES else m
    n = n if question.target is None else question.target.numbers.shape[0]  # type: ignore[union-attr]
    spoilers: dict[str, st.SearchStrategy[Any]] = {
        "source": no_matrices(),
        "target": st.one_of(no_matrices(), matrices((n, 5))),
        "k": st.one_of(st.sampled_from([0, m + 1, -(10**30)]), _oddities()),
        "metric": _oddities(),
        "method": st.one_of(_oddities(), _misfit_methods()),
        "target_weights": st.one_of(_bad_weights(n), _oddities()),
        "target_labels": st.one_of(_bad_labels(n), _oddities()),
        "groups": st.one_of(_bad_labels(m), _oddities()),
        "target_groups": st.one_of(_bad_labels(n), _oddities()),
        "budgets": st.one_of(_oddities(), st.dictionaries(st.integers(0, 2), _oddities())),
        "include": _bad_rows(m),
        "exclude": st.one_of(_bad_rows(m), st.just(list(range(m)))),
        "min_distance": _oddities(),
        "seed": _oddities(),
        "memory": st.one_of(_oddities(), st.sampled_from(["1e400", "-1GB", "1XB", "", "NaN", 0])),
        "device": _oddities(),
        "neighbours": _oddities(),
        "certify": _oddities(),
    }
    names = draw(st.lists(st.sampled_from(sorted(spoilers)), min_size=1, max_size=3, unique=True))
    options = dict(question.options)
    source, k, target = question.source, question.k, question.target
    for name in names:
        value = draw(spoilers[name])
        if name == "source":
            source = value
        elif name == "k":
            k = value
        elif name == "target":
            target = value
        else:
            options[name] = value
    return Question(source, k, target, options, tuple(names))
