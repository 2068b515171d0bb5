"""Drift: what differs is named, what does not is not, and halves of the same rows do not alarm."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import uniproto
from uniproto.errors import InvalidInputError
from uniproto.selection.drift import Compared


def people(seed: int, count: int = 300, older: float = 0.0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": draw.normal(40 + older, 9, count),
            "size": draw.normal(170, 9, count),
            "kind": draw.choice(["a", "b", "c"], count),
        }
    )


@pytest.fixture(scope="module")
def march() -> uniproto.Selection:
    return uniproto.select(people(0), 8, method="greedy")


def test_rows_that_have_moved_are_found_with_the_column_that_moved(march):
    found = march.drift(people(1, older=15))
    assert found.alarm
    assert found.p_value < 0.01
    assert found.cost.is_clear
    assert found.cost.new > found.cost.old
    assert max(found.columns, key=lambda name: found.columns[name].new) == "age"
    assert found.columns["age"].is_clear
    assert any(share.is_clear for share in found.shares.values())
    assert "age" in str(found)


def test_rows_of_the_same_kind_raise_no_alarm(march):
    found = march.drift(people(2))
    assert not found.alarm
    assert not found.cost.is_clear
    assert "no drift found" in str(found)


def test_shares_and_costs_are_what_they_are_called(march):
    new = people(3, 120)
    found = march.drift(new)
    assert sum(share.new for share in found.shares.values()) == pytest.approx(1)
    nearest = march.nearest(new).prototype
    shares = np.bincount(nearest, minlength=8) / len(new)
    assert [found.shares[int(row)].new for row in march.indices] == pytest.approx(shares.tolist())
    assert found.cost.old == pytest.approx(march.cost)
    assert sum(part.old for part in found.columns.values()) == pytest.approx(march.cost)


def test_halves_of_the_same_rows_alarm_as_rarely_as_the_level_says():
    draw, alarms = np.random.default_rng(0), 0
    for seed in range(20):
        rows = draw.normal(size=(160, 2))
        found = uniproto.select(rows[:80], 4, method="greedy", metric="euclidean")
        alarms += found.drift(rows[80:], seed=seed).alarm
    assert alarms <= 4  # more than that has a probability of 0.3 % at 5 %


def test_levels_that_only_the_old_rows_have_often_are_no_drift():
    """Which levels are rare in the old rows alone is chance, and must not tell old from new."""
    draw, alarms = np.random.default_rng(0), 0
    for seed in range(12):
        towns = draw.integers(60, size=160).astype(str)
        rows = pd.DataFrame({"town": towns, "size": draw.normal(170, 9, 160)})
        found = uniproto.select(
            rows[:80], 4, method="greedy", features=uniproto.Columns(use=["town", "size"])
        )
        assert found.details.preparation.columns[0].joined
        alarms += found.drift(rows[80:].reset_index(drop=True), seed=seed).alarm
    assert alarms <= 3  # more than that has a probability of 0.2 % at 5 %


def test_dates_and_levels_of_another_type_are_compared():
    """As they come from another reader: days without a time of day, codes as numbers."""
    draw = np.random.default_rng(4)
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(draw.integers(0, 99, 200), unit="D")
    rows = pd.DataFrame({"day": days, "kind": draw.integers(3, size=200).astype(str)})
    found = uniproto.select(rows[:100], 5, method="greedy")
    same = found.drift(rows[100:])
    later = rows[100:].assign(day=rows["day"].dt.date, kind=rows["kind"].astype(int))
    assert found.drift(later).p_value == same.p_value


def test_a_saved_selection_needs_its_rows(march, tmp_path):
    march.save(tmp_path / "out")
    with pytest.raises(InvalidInputError):
        uniproto.Selection.load(tmp_path / "out").drift(people(1))
    loaded = uniproto.Selection.load(tmp_path / "out", people(0))
    assert loaded.drift(people(1)).p_value == march.drift(people(1)).p_value


def test_too_few_rows_and_rows_without_features_are_refused(march):
    with pytest.raises(InvalidInputError):
        march.drift(people(1, 10))
    costs = uniproto.select(np.eye(30), 3, metric="precomputed")
    with pytest.raises(InvalidInputError):
        costs.drift(np.eye(30))


def test_what_is_clear_lies_beyond_three_spreads():
    assert Compared(1.0, 1.4, 1.0, 0.1).is_clear
    assert not Compared(1.0, 1.2, 1.0, 0.1).is_clear
