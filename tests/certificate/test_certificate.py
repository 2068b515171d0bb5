"""The certificate: no choice of k prototypes costs less than its lower bound.

The optimum of tiny problems is known by trying every choice; the bound must never exceed it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from tests.bounds import most_proven, weights_of

import uniproto
from uniproto import RBF, Greedy, Laplacian, UniProto
from uniproto.algorithm import transport_cost
from uniproto.certificate.ascent import certify
from uniproto.certificate.bound import proven_bound
from uniproto.certificate.certificate import Certificate
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.geometry.rounded_costs import extreme_costs
from uniproto.problem.problem import Problem
from uniproto.selection.selection import Selection

# Which leaves a gap to certify, where other searches prove an optimum.
select_greedily = partial(uniproto.select, method=uniproto.Greedy())

WEIGHTS = ["uniform", "uneven", "heavy", "zeros"]
SHARES = (1e-5, 0.01, 0.25, 1, 1e4)
SCIPY_NAMES = {"l1": "cityblock"}


def plain_costs(source: np.ndarray, target: np.ndarray, metric: str, bandwidth: float | None):
    """The formulas, from differences of rows in extended precision."""
    apart = source[:, None].astype(np.longdouble) - target.astype(np.longdouble)
    if metric in ("l1", "laplacian"):
        distances = np.abs(apart).sum(axis=2)
        return distances if metric == "l1" else -np.expm1(-distances / bandwidth)
    squares = (apart**2).sum(axis=2)
    if metric == "rbf":
        return -np.expm1(-squares / (2 * np.longdouble(bandwidth) ** 2))
    return squares if metric == "sqeuclidean" else np.sqrt(squares)


def optimum(problem: Problem, costs: np.ndarray, choices: Iterator[list[int]]) -> float:
    """The lowest cost of any choice, found by trying them all."""
    return min(transport_cost(costs, choice, problem.masses) for choice in choices)


def choices_of(
    m: int, k: int, initial: list[int] = (), exclude: list[int] = ()
) -> Iterator[list[int]]:
    free = [row for row in range(m) if row not in initial and row not in exclude]
    for chosen in itertools.combinations(free, k - len(initial)):
        yield [*initial, *chosen]


def assert_below_optimum(selection: Selection, best: float) -> Certificate:
    certificate = selection.certificate
    assert certificate is not None
    assert 0 <= certificate.lower_bound <= best
    assert certificate.lower_bound <= selection.cost == certificate.cost
    return certificate


def assert_reproduced(problem: Problem, certificate: Certificate) -> None:
    """Anyone who has the prices can compute the bound again."""
    scale = problem.costs.ceiling + certificate.prices.max()
    found = proven_bound(problem, certificate.prices)
    assert found >= certificate.lower_bound - 1e-12 * scale
    as_computed = most_proven(problem, certificate.prices)
    assert certificate.lower_bound <= as_computed + 1e-14 * scale


@pytest.fixture(params=[1, 2, 1000], ids=["lists of 1", "lists of 2", "whole lists"])
def list_length(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Lists so short that nearly every value has a tail, and no row is computed for luck."""
    monkeypatch.setattr("uniproto.fills.priced_fills.list_length", lambda masses: request.param)
    monkeypatch.setattr("uniproto.fills.priced_fills._LIST_FACTOR", 1)
    monkeypatch.setattr("uniproto.certificate.bound._SPARE_ROWS", 0)
    return request.param


# Never above the optimum


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", WEIGHTS)
def test_never_above_the_optimum(kind: str, dtype: type, list_length: int) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        m, n, k = int(rng.integers(3, 10)), int(rng.integers(2, 10)), int(rng.integers(1, 4))
        costs = rng.random((m, n)) if seed % 2 else rng.integers(0, 3, (m, n))
        costs = costs.astype(dtype)
        given = {"metric": "precomputed", "target_weights": weights_of(kind, rng, n)}
        selection = select_greedily(costs, k, **given, certify=True)
        problem = Problem(costs, **given).with_k(k)
        best = optimum(problem, costs.astype(float), choices_of(m, k))
        certificate = assert_below_optimum(selection, best)
        assert_reproduced(problem, certificate)


@pytest.mark.parametrize("kind", ["uniform", "heavy"])
def test_constraints_enter_the_bound(kind: str, list_length: int) -> None:
    risen = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        m, n, k = 9, 7, 3
        costs = rng.random((m, n))
        rows = rng.permutation(m).tolist()
        initial, exclude = rows[: seed % 3], rows[6 + seed % 2 :]
        given: dict[str, Any] = {"metric": "precomputed"}
        given["target_weights"] = weights_of(kind, rng, n)
        free = select_greedily(costs, k, **given, certify=True)
        given |= {"include": initial, "exclude": exclude}
        selection = select_greedily(costs, k, **given, certify=True)
        problem = Problem(costs, **given).with_k(k)
        best = optimum(problem, costs, choices_of(m, k, initial, exclude))
        certificate = assert_below_optimum(selection, best)
        assert_reproduced(problem, certificate)
        risen += certificate.lower_bound > free.certificate.lower_bound
    assert list_length == 1 or risen > 4  # fewer choices leave a higher bound


@pytest.mark.parametrize("kind", ["uniform", "uneven"])
def test_groups_with_quotas(kind: str, list_length: int) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        m, n = 9, 8
        costs = rng.random((m, n))
        labels, target_labels = np.arange(m) % 3, np.arange(n) % 2  # rows of group 2 have no target
        given: dict[str, Any] = {
            "metric": "precomputed",
            "target_weights": weights_of(kind, rng, n),
            "groups": uniproto.Groups(labels, target=target_labels, budgets={0: 2, 1: 1}),
            "include": [3] if seed % 2 else None,
            "exclude": [0, 4] if seed % 3 else None,
        }
        selection = select_greedily(costs, 3, **given, certify=True)
        problem = Problem(costs, **given).with_k(3)
        barred = given["exclude"] or []
        rows = [[row for row in range(m) if labels[row] == g and row not in barred] for g in (0, 1)]
        choices = (
            [*first, second]
            for first in itertools.combinations(rows[0], 2)
            for second in rows[1]
            if given["include"] is None or 3 in first
        )
        certificate = assert_below_optimum(selection, optimum(problem, costs, choices))
        assert_reproduced(problem, certificate)


def features(shape: str, rng: np.random.Generator, rows: int) -> np.ndarray:
    if shape == "near-duplicates":
        return rng.normal(size=(3, 4))[np.arange(rows) % 3] + rng.normal(size=(rows, 4)) * 1e-4
    return rng.normal(size=(rows, 4)) + (50 if shape == "far from the origin" else 0)


@pytest.mark.parametrize("shape", ["spread", "near-duplicates", "far from the origin"])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_features(metric: str, shape: str, list_length: int) -> None:
    for seed in range(2):
        for dtype in (np.float32, np.float64):
            rng = np.random.default_rng(seed)
            source = features(shape, rng, 8).astype(dtype)
            target = features(shape, np.random.default_rng(seed), 6).astype(dtype)
            k = 2 + seed
            selection = select_greedily(source, k, target, metric=metric, certify=True)
            problem = Problem(source, target, metric=metric).with_k(k)
            costs = problem.costs.exact_block(slice(None))
            certificate = assert_below_optimum(selection, optimum(problem, costs, choices_of(8, k)))
            assert_reproduced(problem, certificate)
            if dtype is np.float64:  # the same from another library's costs
                if metric == "dot":
                    costs = (source @ target.T).max() - source @ target.T
                elif problem.costs.bandwidth is not None:
                    costs = plain_costs(source, target, metric, problem.costs.bandwidth)
                    costs = costs.astype(np.float64)
                else:
                    costs = cdist(source, target, SCIPY_NAMES.get(metric, metric))
                slack = 1e-12 * problem.costs.ceiling if metric in ("dot", "cosine") else 0.0
                best = optimum(problem, costs, choices_of(8, k))
                assert certificate.lower_bound <= best + slack


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "l1", "rbf", "laplacian"])
def test_rounding_never_lifts_the_bound_above_zero(metric: str) -> None:
    """Every row chosen to stand for itself: the true cost is 0, whatever the distances lose."""
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(8, 5)) * 100
        selection = select_greedily(points, 8, metric=metric, certify=True)
        assert selection.certificate.lower_bound == 0.0


@pytest.mark.parametrize(
    "metric",
    [
        "euclidean",
        "sqeuclidean",
        "l1",
        *(kind(f"{share} median") for kind in (RBF, Laplacian) for share in SHARES),
    ],
    ids=str,
)
def test_extreme_costs_enclose_the_true_ones(metric: Any) -> None:
    rng = np.random.default_rng(2)
    near = features("near-duplicates", rng, 30) * 1000
    for source, target in (
        (near, near + rng.normal(size=near.shape) * 1e-9),
        (near, rng.normal(size=(20, 4))),
        (rng.normal(size=(20, 4)) + 1e6, rng.normal(size=(30, 4)) + 1e6),
    ):
        costs = Problem(source, target, metric=metric).with_k(2).costs
        block, true = (
            costs.exact_block(slice(None)),
            plain_costs(source, target, costs.metric, costs.bandwidth),
        )
        least, most = (extreme_costs(costs, block, side) for side in (-1, 1))
        assert (least <= true).all()
        assert (true <= most).all()
        assert (least <= block).all()
        assert (block <= most).all()
        if metric in (RBF("0.25 median"), Laplacian("0.25 median")):  # and not by being far off
            assert (most - least).max() < 1e-3


def test_single_precision_lists_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose values come only from rounded lists still count with a bound from below."""
    monkeypatch.setattr("uniproto.certificate.bound._SPARE_ROWS", 0)
    rng = np.random.default_rng(3)
    examples = rng.normal(size=(2, 20))
    source = (examples[np.arange(300) % 2] + rng.normal(size=(300, 20)) * 1e-3).astype(np.float32)
    selection = select_greedily(source, 1, source[:40], metric="euclidean", certify=True)
    problem = Problem(source, source[:40], metric="euclidean").with_k(1)
    best = problem.costs.exact_block(slice(None)).mean(axis=1).min()
    certificate = assert_below_optimum(selection, best)
    # Rows are computed until no bound matters; where that is too much, the bounds have to do.
    monkeypatch.setattr("uniproto.certificate.bound._MOST_ROUNDS", 1000)
    thorough = certify(problem, selection.cost, certificate.prices)
    assert certificate.lower_bound <= thorough.lower_bound <= best
    assert thorough.lower_bound == pytest.approx(best, rel=1e-6)
    for most in (0, 5 * 40):
        monkeypatch.setattr("uniproto.certificate.bound._MOST_EXACT_ENTRIES", most)
        hasty = certify(problem, selection.cost, certificate.prices)
        assert 0 < hasty.lower_bound <= thorough.lower_bound


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_any_prices_prove_a_bound(scale: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        costs = rng.random((7, 6)) * scale
        weights = weights_of("uneven", rng, 6)
        problem = Problem(costs, metric="precomputed", target_weights=weights).with_k(2)
        best = optimum(problem, costs, choices_of(7, 2))
        for prices in (rng.random(6), rng.normal(size=6), rng.random(6) * 1e3, np.zeros(6)):
            assert 0 <= proven_bound(problem, prices * scale) <= best


def test_the_bound_is_close_where_duality_leaves_no_gap() -> None:
    """One prototype: the bound is the best row's own cost."""
    costs = np.random.default_rng(5).random((30, 20))
    certificate = select_greedily(costs, 1, metric="precomputed", certify=True).certificate
    assert certificate.lower_bound == pytest.approx(costs.mean(axis=1).min(), rel=1e-12)
    assert certificate.gap < 1e-9
    assert certificate.converged


@pytest.mark.parametrize(("n", "k"), [(300, 50), (400, 20)])
def test_costs_of_very_different_sizes(n: int, k: int) -> None:
    """Prices must be as far apart as the costs are, which steps from zero do not reach."""
    draw = np.random.default_rng(0)
    ages, hours = draw.integers(17, 80, n), draw.integers(20, 60, n)
    large = draw.random(n) < 0.08
    gains = np.where(large, draw.choice([2174, 5178, 7688, 15024, 99999], n), 0)
    rows = np.column_stack([ages, hours, gains]).astype(float)
    selection = select_greedily(rows, k, metric="l1", certify=True)
    assert selection.certificate.gap < 0.02


def test_a_second_search_proves_no_more_than_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is begun where the first ended low, also where nothing is wrong with the first."""
    monkeypatch.setattr("uniproto.certificate.ascent._LOOSE", -np.inf)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        kind = WEIGHTS[seed % len(WEIGHTS)]
        costs = rng.pareto(0.5 + seed % 3, (9, 12))
        weights = weights_of(kind, rng, 12)
        given: dict[str, Any] = {"metric": "precomputed", "target_weights": weights}
        given |= {"include": [3], "exclude": [5]} if seed % 2 else {}
        problem = Problem(costs, **given).with_k(3)
        best = optimum(problem, costs, choices_of(9, 3, *([3], [5]) if seed % 2 else ()))
        found = assert_below_optimum(select_greedily(costs, 3, certify=True, **given), best)
        assert_reproduced(problem, found)


def test_the_bound_rises_well_above_the_first_one() -> None:
    points = np.random.default_rng(6).normal(size=(300, 3))
    method = UniProto(seconds=10.0)
    selection = select_greedily(points, 12, metric="euclidean", method=method, certify=True)
    problem = Problem(points, metric="euclidean").with_k(12)
    assert selection.certificate.gap < 0.03
    assert proven_bound(problem, np.zeros(300)) < 0.9 * selection.certificate.lower_bound


# What a certificate says


def certificate(lower_bound: float, cost: float, **fields: Any) -> Certificate:
    fields = {"converged": True, "steps": 3, "seconds": 0.5, **fields}
    return Certificate(lower_bound, cost, np.zeros(2), **fields)


def test_gaps() -> None:
    found = certificate(2.0, 2.5)
    assert (found.gap, found.absolute_gap) == (0.25, 0.5)
    assert "gap 25.00%" in str(found)
    assert "stopped early" in str(certificate(2.0, 2.5, converged=False))
    assert (certificate(2.0, 2.0).gap, certificate(2.0, 2.0).absolute_gap) == (0.0, 0.0)
    assert certificate(0.0, 0.0).gap == 0.0
    assert certificate(0.0, 1.0).gap == np.inf
    assert certificate(2.0 + 1e-15, 2.0).absolute_gap == 0.0
    assert "absolute gap 0.5" in str(certificate(2.0, 2.5, relative=False))


@pytest.mark.parametrize("metric", ["dot", "similarity", "precomputed", "cosine"])
def test_shifted_costs_have_an_absolute_gap(metric: str) -> None:
    matrix = np.abs(np.random.default_rng(7).normal(size=(12, 12)))
    selection = select_greedily(matrix, 3, metric=metric, certify=True)
    assert selection.certificate.relative == (metric not in ("dot", "similarity"))
    assert ("absolute gap" in selection.summary()) == (metric in ("dot", "similarity"))


def test_a_bound_of_zero_has_an_infinite_gap() -> None:
    # Rows 0 and 1 are perfect for the same half, and so are 2 and 3: a choice of one each is free.
    costs = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]).repeat(2, axis=0)
    problem = Problem(costs, metric="precomputed").with_k(2)
    worse = certify(problem, transport_cost(costs, [0, 1], problem.masses), np.zeros(4))
    assert (worse.cost, worse.lower_bound, worse.gap) == (0.5, 0.0, np.inf)
    # Where both are given, nothing else is possible and the bound is their cost.
    given = select_greedily(costs, 2, metric="precomputed", include=[0, 1], certify=True)
    assert given.certificate.gap < 1e-12


# Asking for one


def test_certify_as_an_option_and_as_a_method() -> None:
    points = np.random.default_rng(8).normal(size=(60, 3))
    plain = select_greedily(points, 5)
    assert plain.certificate is None
    assert "certificate" not in plain.summary()
    asked = select_greedily(points, 5, certify=True)
    found = plain.certify(progress=False)
    assert found is plain.certificate
    assert found.lower_bound == asked.certificate.lower_bound
    assert asked.details.timings["certificate"] == asked.certificate.seconds > 0
    assert str(asked.certificate) in asked.summary()
    assert found.prices.shape == (60,)
    assert found.prices.min() >= 0


@pytest.mark.parametrize("method", ["kmedoids", "random", Greedy(plan="resolve"), "kcenter"])
def test_every_method_can_be_certified(method: Any) -> None:
    points = np.random.default_rng(9).normal(size=(40, 3))
    selection = select_greedily(points, 4, method=method, certify=True)
    ours = select_greedily(points, 4, method=UniProto(), certify=True)
    assert selection.certificate.lower_bound <= ours.cost  # it bounds everyone's cost
    assert ours.certificate.lower_bound <= selection.cost


def test_time_limit() -> None:
    points = np.random.default_rng(10).normal(size=(400, 5))
    selection = select_greedily(points, 20)
    whole = selection.certify()
    assert whole.converged
    cut = selection.certify(seconds=1e-6)
    assert not cut.converged
    assert cut.steps < whole.steps
    assert cut.lower_bound <= whole.lower_bound * (1 + 1e-6)
    assert "stopped early" in selection.summary()


# Saving


def test_round_trip(tmp_path: Path) -> None:
    points = np.random.default_rng(11).normal(size=(40, 3))
    selection = select_greedily(points, 4, certify=True)
    folder = selection.save(tmp_path / "out")
    found, expected = Selection.load(folder).certificate, selection.certificate
    np.testing.assert_array_equal(found.prices, expected.prices)
    names = "lower_bound cost gap absolute_gap converged steps seconds relative"
    for name in names.split():
        assert getattr(found, name) == getattr(expected, name), name
    # The median, and random rows to compare with, can only be had where the data are.
    said = [line for line in selection.summary().split("\n") if "in words" not in line]
    loaded = Selection.load(folder).summary().split("\n")
    assert [line for line in loaded if "in words" not in line] == said
    again = Selection.load(folder).save(tmp_path / "again")
    assert (again / "certificate.npz").exists()
    record = json.loads((folder / "manifest.json").read_text())["certificate"]
    assert record.keys() == {
        "lower_bound", "gap", "absolute_gap", "relative", "converged", "steps", "seconds",
    }  # fmt: skip
    with np.load(folder / "certificate.npz", allow_pickle=False) as arrays:
        assert arrays.files == ["prices"]
    with pytest.raises(InvalidInputError, match="uniproto certify FOLDER"):
        Selection.load(folder).certify()


def certified_folder(tmp_path: Path) -> Path:
    points = np.random.default_rng(13).normal(size=(20, 3))
    return select_greedily(points, 4, certify=True).save(tmp_path / "out")


@pytest.mark.parametrize("damage", ["gone", "empty", "pickled", "no bound", "null"])
def test_damaged_certificates(tmp_path: Path, damage: str) -> None:
    folder = certified_folder(tmp_path)
    path, manifest_path = folder / "certificate.npz", folder / "manifest.json"
    manifest = json.loads(manifest_path.read_text())
    if damage == "gone":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "pickled":
        np.savez(path, prices=np.array([{}] * 20, object))
    elif damage == "no bound":
        del manifest["certificate"]["lower_bound"]
    else:
        manifest["certificate"] = None
    manifest_path.write_text(json.dumps(manifest))
    with pytest.raises(InputFileError, match="It is damaged"):
        Selection.load(folder)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("kind", ["f2", "f4", "i1"])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "dot", "l1"])
def test_single_precision_is_bounded_as_given(metric: str, kind: str, offset: float) -> None:
    """Rows were once scaled and moved in single precision: bounds were above the optimum."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        source = rng.normal(size=(6, 3)) * 20
        if kind == "f4":
            source = source + offset
        source = source.astype(kind)
        selection = select_greedily(source, 2, metric=metric, certify=True)
        wide = source.astype(np.float64)
        exact = select_greedily(wide, 2, metric=metric, include=selection.indices)
        assert selection.cost == pytest.approx(exact.cost, rel=1e-9, abs=1e-13)
        costs = Problem(wide, metric=metric).with_k(2).costs.exact_block(slice(None))
        problem = Problem(costs, metric="precomputed").with_k(2)
        best = optimum(problem, costs, choices_of(6, 2))
        assert selection.certificate.lower_bound <= best * (1 + 1e-12)


@pytest.mark.parametrize("power", [19, 20, 60, 140])
def test_costs_beyond_single_precision(power: int) -> None:
    """A search that adds up in single precision warned of an overflow, or had nothing to add."""
    random = np.random.default_rng(0)
    source, target = random.normal(size=(12, 2)), random.normal(size=(15, 2))
    options: dict[str, Any] = {"metric": "sqeuclidean", "certify": True, "progress": False}
    options |= {"groups": uniproto.Groups(list("aaaaaabbbbbb"), target=list("aaaaaaaaaaaabbb"))}
    plain = uniproto.select(source, 4, target=target, **options)
    scale = 10.0**power
    huge = uniproto.select(source * scale, 4, target=target * scale, **options)
    assert plain.certificate is not None
    assert huge.certificate is not None
    # Where there is room for it, the other search ends a hair higher.
    assert huge.certificate.gap == pytest.approx(plain.certificate.gap, rel=1e-2)


def test_a_cost_that_no_row_pays_does_not_weaken_the_bound() -> None:
    costs = np.random.default_rng(6).random((12, 9))
    bounds = []
    for large in (1.0, 1e14):
        costs[3, 4] = large
        selection = select_greedily(costs, 3, metric="precomputed", certify=True)
        bounds.append(selection.certificate.lower_bound)
    assert bounds[0] > 0
    assert bounds[1] == pytest.approx(bounds[0], rel=1e-3)
