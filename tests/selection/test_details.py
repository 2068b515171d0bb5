"""What a selection shows, and what is in its details."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import uniproto
from uniproto import Selection

POINTS = np.random.default_rng(3).normal(size=(30, 3))
GREEDY = uniproto.Greedy()
SHOWN = {
    *("indices", "cost", "weights", "plan", "certificate", "details", "rows", "assign", "nearest"),
    *("to_frame", "to_csv", "summary", "report", "save", "load", "certify", "improve"),
}


@pytest.fixture(scope="module")
def selection() -> Selection:
    return uniproto.select(POINTS, 4, metric="euclidean", method=GREEDY)


def test_what_completion_offers(selection: Selection) -> None:
    assert set(dir(selection)) == SHOWN
    assert all(hasattr(selection, name) for name in SHOWN)


def test_details_are_kept_when_saved(selection: Selection, tmp_path: Path) -> None:
    loaded = Selection.load(selection.save(tmp_path / "out")).details
    for details in (selection.details, loaded):
        assert details.shape == (30, 30)
        assert (details.method, details.metric, details.seed) == ("greedy", "euclidean", 0)
    np.testing.assert_array_equal(loaded.gains, selection.details.gains)
    assert loaded.beta == selection.details.beta
    assert set(loaded.timings) == set(selection.details.timings)


def test_the_nearest_prototype_of_every_row_alone(selection: Selection) -> None:
    apart = np.linalg.norm(POINTS[:, None] - POINTS[selection.indices][None], axis=2)
    found = selection.nearest(POINTS)
    np.testing.assert_array_equal(found.prototype, apart.argmin(axis=1))
    np.testing.assert_allclose(found.distance, apart.min(axis=1), atol=1e-12)
    by_plan = selection.assign()  # all prototypes have equal weight there
    assert (np.bincount(by_plan.prototype, minlength=4) >= 5).all()


def test_no_public_method_asks_for_much() -> None:
    for name in ("nearest", "assign", "rows", "certify", "improve", "to_csv"):
        assert len(inspect.signature(getattr(Selection, name)).parameters) <= 12
