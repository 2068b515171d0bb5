"""`UNIPROTO_EFFORT`: how much the default search may do."""

from __future__ import annotations

import numpy as np
import pytest

import uniproto
from uniproto.runtime.effort import effort


def test_less_effort_is_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 3))
    starts = []
    for share in ("0.001", "1"):
        monkeypatch.setenv("UNIPROTO_EFFORT", share)
        starts.append(uniproto.select(rows, 12).details.notes["starts"])
    assert starts[0] < starts[1]


def test_groups_share_the_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIPROTO_EFFORT", "0.5")
    problem = uniproto.Problem(np.eye(6), groups=[0, 0, 0, 1, 1, 1]).with_k(4)
    assert problem.effort == 0.5
    assert [group.problem.effort for group in problem.groups] == [0.25, 0.25]


@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "much"])
def test_other_values_are_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIPROTO_EFFORT", given)
    with pytest.raises(uniproto.UniprotoError, match=r"UNIPROTO_EFFORT.*Unset it"):
        effort()
