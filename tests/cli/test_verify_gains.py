"""Gains that a run has written are never doubted, whatever was options and whatever the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uniproto
from uniproto import Stochastic, UniProto
from uniproto.methods import METHODS
from uniproto.selection.saved_record import gain_errors

OURS = [
    UniProto(),
    UniProto(plan="resolve"),
    UniProto(plan="entropic"),
    UniProto(plan="entropic", iterations=2),  # far from converged
    UniProto(gains="exact"),
    UniProto(polish=0.05),
    UniProto(plan="entropic", polish=0.05),
    UniProto(candidates=Stochastic(0.3)),
    UniProto(plan="resolve", candidates=Stochastic(0.3)),
]


def features(draw: np.random.Generator, kind: str, rows: int) -> np.ndarray:
    if kind == "many alike":
        return np.repeat(draw.normal(size=(-(-rows // 3), 2)), 3, axis=0)[:rows]
    if kind == "whole numbers":  # nearly all costs tie
        return draw.integers(0, 3, size=(rows, 2)) + 1.0
    scale = 10.0 ** draw.integers(-3, 4)
    return (draw.normal(size=(rows, 3)) * scale).astype(np.float32)


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["many alike", "whole numbers", "single precision"]),
    st.sampled_from(["cosine", "euclidean", "sqeuclidean", "l1", "dot"]),
    st.sampled_from([*OURS, *(METHODS[name]() for name in sorted(METHODS))]),
    st.integers(1, 8),
)
def test_honest_gains_are_never_doubted(
    seed: int, kind: str, metric: str, method: Any, k: int
) -> None:
    draw = np.random.default_rng(seed)
    source = features(draw, kind, int(draw.integers(max(k, 4), 40)))
    target = features(draw, kind, int(draw.integers(3, 40))) if draw.random() < 0.5 else None
    columns = len(source) if target is None else len(target)
    options: dict[str, Any] = {}
    if draw.random() < 0.3:
        options["initial"] = draw.choice(len(source), min(k, 2), replace=False)
    if draw.random() < 0.3:
        options["target_weights"] = draw.random(columns) + 0.01
    if draw.random() < 0.3 and target is None:
        options["groups"] = draw.integers(0, 2, len(source))
    try:
        selection = uniproto.select(
            source, k, target, metric=metric, method=method, progress=False, **options
        )
        assert selection.cost_is_exact
    except uniproto.UniprotoError:  # a question without an answer
        return
    assert gain_errors(selection, selection._problem) == []


@pytest.mark.parametrize("method", [UniProto(gains="exact"), UniProto(polish=0.05)])
def test_one_gain_that_is_changed_is_doubted(method: UniProto) -> None:
    source = np.random.default_rng(0).normal(size=(60, 4))
    selection = uniproto.select(source, 8, method=method, progress=False)
    honest = selection.gains.copy()
    for place in range(8):
        for change in (-1e-4, 1e-4):
            selection.gains[:] = honest
            selection.gains[place] += change
            assert gain_errors(selection, selection._problem)


@pytest.mark.parametrize("method", [UniProto(), UniProto(plan="resolve")])
def test_gains_of_another_magnitude_are_doubted(method: UniProto) -> None:
    source = np.random.default_rng(0).normal(size=(60, 4))
    selection = uniproto.select(source, 8, method=method, metric="sqeuclidean", progress=False)
    honest, beta = selection.gains.copy(), selection.beta
    for gains in (10 * honest, -honest, np.nan * honest, beta - 0.1 * (beta - honest)):
        selection.gains[:] = gains
        assert gain_errors(selection, selection._problem)
