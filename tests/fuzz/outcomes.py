"""What may come out of a case: a selection whose numbers add up, or an error that helps."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto import Selection, UniprotoError
from uniproto.errors import DataWarning

from .guard import deadline

TALLY: Counter[str] = Counter()  # how cases ended, for the summary of a long run
_SHARES = 1e-9


def attempt(case: object, call: Callable[[], Any], allowed: str = "(?!)") -> Any:
    """The call's answer, or the `UniprotoError` it raised; nothing else may happen.

    `allowed` is a pattern of warnings that are another library's convention.
    """
    with deadline(case), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", allowed)
        warnings.simplefilter("ignore", DataWarning)  # true of what is drawn here
        try:
            answer = call()
        except UniprotoError as error:
            answer = error
    assert not said, f"a warning: {said[0].category.__name__}: {said[0].message}"
    if isinstance(answer, UniprotoError):
        assert_helps(answer)
        TALLY["refused"] += 1
    else:
        TALLY["answered"] += 1
    return answer


def assert_helps(error: UniprotoError) -> None:
    """The message is short and names what is wrong."""
    message = str(error)
    assert len(message) < 5000, f"{len(message)} characters: {message[:200]} …"
    named = re.search(r"'[^']+'|--?[a-z]|^[^ ]*[/.]|[Mm]emory|extra|method|solver", message)
    assert named, f"no parameter in: {message}"


def assert_adds_up(selection: Selection) -> None:
    """What holds of every selection, whatever the question was."""
    m, n = selection.details.shape
    rows, k = selection.indices, selection.k
    assert k >= 1
    assert rows.dtype == np.int64
    assert rows.shape == (k,)
    assert rows.min() >= 0
    assert rows.max() < m
    assert len(np.unique(rows)) == k
    assert selection.details.gains.shape == (k,)
    assert np.isfinite(selection.details.gains).all(), f"gains {selection.details.gains}"
    assert selection.weights.shape == (k,)
    assert (selection.weights >= 0).all(), f"weights {selection.weights}"
    assert abs(selection.weights.sum() - 1) <= _SHARES, f"weights sum to {selection.weights.sum()}"
    plan = selection.plan
    assert plan.shape == (k, n)
    assert (plan.data >= 0).all()
    assert np.abs(plan.sum(axis=1) * k - 1).max() <= _SHARES, "the plan's rows are not 1/k"
    assert np.isfinite(selection.cost), f"cost {selection.cost}"
    assert selection.cost >= 0
    assert np.isfinite(selection.details.beta)
    assert all(np.isfinite(cost) for cost in selection.group_costs.values())
    if selection.certificate is not None:
        assert np.isfinite(selection.certificate.lower_bound)
        # The bound is proven downwards and the cost is rounded: they may touch.
        slack = 1e-9 * (selection.details.beta + abs(selection.cost))
        assert selection.certificate.lower_bound <= selection.cost + slack
    assert selection.summary()
    assert repr(selection)


def assert_serves(selection: Selection, weights: NDArray[np.float64]) -> None:
    """The plan gives every target its weight; `weights` sum to 1."""
    off = np.abs(selection.plan.sum(axis=0) - weights).max()
    assert off <= _SHARES * weights.max(), f"the plan's columns are off by {off}"


def assert_costs(selection: Selection, costs: NDArray[np.float64], tolerance: float) -> None:
    """The cost is ⟨C, plan⟩ for costs that were computed another way."""
    found = float(selection.plan.multiply(costs[selection.indices]).sum())
    assert abs(found - selection.cost) <= tolerance, f"cost {selection.cost}, found {found}"
