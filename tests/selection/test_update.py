"""Updates keep most prototypes: which are found again, who leaves, and what that costs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

import uniproto
from uniproto.errors import InfeasibleError, InvalidInputError
from uniproto.selection.found_again import by_ids, by_values

RNG = np.random.default_rng(0)
MARCH = RNG.normal(size=(60, 3)) * [1.0, 2.0, 0.5]
APRIL = np.concatenate([RNG.normal(size=(30, 3)) + 2, MARCH])


@pytest.fixture(scope="module")
def earlier() -> uniproto.Selection:
    return uniproto.select(MARCH, 6, metric="euclidean")


@pytest.mark.parametrize("changes", [0, 1, 3])
def test_no_more_changes_than_allowed_and_none_that_cost_more(earlier, changes):
    found = earlier.update(APRIL, changes=changes)
    same = earlier.indices + 30
    assert len(np.setdiff1d(found.indices, same)) <= changes
    curve = found.details.updated.curve
    assert [point.changes for point in curve] == list(range(changes + 1))
    costs = [point.cost for point in curve]
    assert costs == sorted(costs, reverse=True)
    assert found.cost == pytest.approx(min(costs))
    assert costs[0] == pytest.approx(uniproto.cost(APRIL, same, metric="euclidean"))
    assert found.cost == pytest.approx(uniproto.cost(APRIL, found.indices, metric="euclidean"))


def test_the_fewest_changes_that_come_close_to_a_fresh_selection(earlier):
    found = earlier.update(APRIL)
    fresh = uniproto.select(APRIL, 6, metric="euclidean")
    updated = found.details.updated
    assert found.cost <= 1.01 * fresh.cost
    assert updated.fresh.cost == pytest.approx(fresh.cost)
    assert updated.newcomers == updated.allowed <= updated.fresh.changes
    fewer = earlier.update(APRIL, changes=updated.allowed - 1)
    assert fewer.cost > 1.01 * fresh.cost


def test_each_change_says_who_left_and_what_it_saves(earlier):
    found = earlier.update(APRIL, changes=2)
    same = (earlier.indices + 30).tolist()
    left = {change.left for change in found.details.changes}
    assert left == set(earlier.indices.tolist()) - {row - 30 for row in found.indices.tolist()}
    for change in found.details.changes:
        back = found.indices.tolist()
        back[back.index(change.came)] = change.left + 30
        undone = uniproto.cost(APRIL, back, metric="euclidean")
        assert change.saved == pytest.approx(undone - found.cost, abs=1e-12)
        assert change.error > 0
        place = found.indices.tolist().index(change.came)
        assert set(change.targets) == set(found[place].targets)
    kept = [row for row in found.indices.tolist() if row in same]
    assert found.indices.tolist()[: len(kept)] == [row for row in same if row in kept]


def test_prototypes_that_are_gone_are_replaced_and_count(earlier):
    gone = int(earlier.indices[0])
    rest = np.delete(MARCH, gone, axis=0)
    with refused("changes", InfeasibleError):
        earlier.update(rest, changes=0)
    found = earlier.update(rest, changes=1)
    assert [(change.left, change.gone, change.saved) for change in found.details.changes] == [
        (gone, True, None)
    ]


def test_more_and_fewer_prototypes(earlier):
    grown = earlier.update(APRIL, k=8, changes=2)
    assert set(earlier.indices + 30) < set(grown.indices)
    assert [change.left for change in grown.details.changes] == [None, None]
    shrunk = earlier.update(APRIL, k=4, changes=0)
    assert set(shrunk.indices) < set(earlier.indices + 30)


def test_the_same_rows_need_no_change(earlier):
    again = earlier.update()
    assert set(again.indices) == set(earlier.indices)
    assert again.details.changes == ()


def test_a_bound_under_the_rule(earlier):
    found = earlier.update(APRIL, changes=1, certify=True)
    free = uniproto.select(APRIL, 6, metric="euclidean")
    assert free.cost < found.certificate.lower_bound <= found.cost


def test_limits_and_distances_hold_beside_the_rule(earlier):
    labels = np.arange(len(APRIL)) % 3
    limits = uniproto.Limits(labels, at_least=1, at_most=3)
    found = earlier.update(APRIL, changes=4, limits=limits, min_distance=0.3)
    counts = np.bincount(labels[found.indices], minlength=3)
    assert counts.min() >= 1
    assert counts.max() <= 3
    assert len(np.setdiff1d(found.indices, earlier.indices + 30)) <= 4


def test_limits_that_the_kept_rows_break_are_refused(earlier):
    labels = np.isin(np.arange(len(APRIL)), earlier.indices + 30)
    with pytest.raises(InfeasibleError) as caught:
        earlier.update(APRIL, changes=1, limits=uniproto.Limits(labels, at_most={True: 3}))
    assert caught.value.parameter == "limits"


def test_what_was_asked_before_is_asked_again():
    weights = np.arange(1.0, 61.0)
    found = uniproto.select(MARCH, 3, metric="euclidean", target_weights=weights)
    with refused("target_weights", InvalidInputError):
        found.update(APRIL)
    other = uniproto.select(MARCH, 3, APRIL, metric="euclidean")
    with refused("target", InvalidInputError):
        other.update(MARCH[:40])
    groups = uniproto.select(MARCH, 3, metric="euclidean", groups=["a"] * 30 + ["b"] * 30)
    with refused("groups", InvalidInputError):
        groups.update()


def test_tables_are_found_again_by_values_or_by_ids():
    people = pd.DataFrame(
        {"name": [f"p{row}" for row in range(40)], "age": RNG.integers(18, 90, 40) + RNG.random(40)}
    )
    found = uniproto.select(people, 4, features=uniproto.Columns(use=["age"]))
    later = people.sample(frac=1, random_state=1).reset_index(drop=True)
    kept = found.update(later, changes=0)
    assert set(later.name[kept.indices]) == set(people.name[found.indices])
    later["age"] += 1  # everybody is a year older: only names tell who is who
    with pytest.raises(InfeasibleError):
        found.update(later, changes=0)
    named = uniproto.Columns(use=["age"], id="name")
    for told in ({"ids": "name"}, {"features": named}):
        kept = found.update(later, changes=0, **told)
        assert set(later.name[kept.indices]) == set(people.name[found.indices])


def test_a_saved_table_is_updated_without_its_data(tmp_path):
    people = pd.DataFrame({"age": RNG.normal(40, 9, 50), "size": RNG.normal(170, 9, 50)})
    found = uniproto.select(people, 4)
    found.save(tmp_path / "out")
    loaded = uniproto.Selection.load(tmp_path / "out")
    later = pd.concat([people, people[:10] + 3])
    assert loaded.update(later, changes=2).indices.tolist() == (
        found.update(later, changes=2).indices.tolist()
    )


@pytest.mark.parametrize("kind", [np.asarray, np.float32])
def test_rows_of_the_same_values_are_used_once(kind):
    rows = kind([[1.0, 0.0], [2.0, 3.0], [1.0, -0.0], [1.0, 0.0]])
    assert by_values(rows[[0, 1, 0]], rows).tolist() == [0, 1, 2]


def test_ids_that_stand_twice_are_refused():
    with refused("ids", InvalidInputError):
        by_ids(np.array(["a"]), np.array(["a", "b", "a"]))


def test_a_plain_selection_has_no_table_of_changes(earlier, capsys):
    with pytest.raises(InvalidInputError):
        earlier.table()
    earlier.update(APRIL, changes=1).table()
    assert "chosen" in capsys.readouterr().out
