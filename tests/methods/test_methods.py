"""One suite every method must pass, then each method against its formula in plain NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls
from scipy.spatial.distance import cdist

import uniproto
from uniproto.errors import InfeasibleError, UniprotoError
from uniproto.features import hashed_ngrams
from uniproto.methods import METHODS

NAMES = sorted(METHODS)
WORKS_ON_FEATURES = {"dsir", "kmeans", "less", "mmd_critic", "protodash", "tsds"}
LEARNS_WEIGHTS = {"facility_location", "fasterpam", "kmeans", "kmedoids", "protodash"}
# A mean, a direction or a draw is no set of points.
MISSES_POINTS = {
    "dsir", "less", "mmd_critic", "nearest_on_average", "protodash", "random", "tsds",
}  # fmt: skip
CHOOSES_FREELY = {"fasterpam"}  # source = target; no weights, initial, exclude or distinct

M, N, WIDTH = 36, 23, 3
SOURCE = np.random.default_rng(0).normal(size=(M, WIDTH)) + 0.5
TARGET = np.random.default_rng(1).normal(size=(N, WIDTH)) + 0.5
WEIGHTS = np.random.default_rng(2).uniform(0.1, 2.0, N)


def rows_for(method, rows=SOURCE):
    """Rows of any sign; dsir takes nothing but counts."""
    return np.abs(rows) if method == "dsir" else rows


@pytest.fixture(params=NAMES)
def method(request):
    return request.param


def check(selection, k, m=M):
    rows = selection.indices
    assert rows.shape == selection.details.gains.shape == selection.weights.shape == (k,)
    assert len(set(rows.tolist())) == k
    assert rows.min() >= 0
    assert rows.max() < m
    assert np.isfinite(selection.details.gains).all()
    assert selection.weights.min() >= 0
    assert selection.weights.sum() == pytest.approx(1)
    if selection.details.method not in LEARNS_WEIGHTS:
        np.testing.assert_array_equal(selection.weights, np.full(k, 1 / k))


def refused(method, parameter, **question):
    with pytest.raises(UniprotoError, match=parameter) as caught:
        uniproto.select(SOURCE, 5, method=method, **question)
    assert method in str(caught.value)


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "l1", "dot"])
@pytest.mark.parametrize("k", [1, 7, M])
def test_gives_k_different_rows(method, k, metric):
    if method in CHOOSES_FREELY and metric == "dot":  # a row is not nearest to itself
        refused(method, "metric", metric=metric)
        return
    check(uniproto.select(rows_for(method), k, method=method, metric=metric), k)


def test_a_single_row_and_a_single_target(method):
    check(uniproto.select([[1.0, 2.0]], 1, method=method), 1, m=1)


def test_copies_are_still_k_different_rows(method):
    copies = np.repeat([[1.0, 2.0], [2.0, 1.0]], 6, axis=0)
    for metric in ("cosine", "euclidean"):
        check(uniproto.select(copies, 5, method=method, metric=metric), 5, m=12)


def test_initial_rows_come_first_and_count(method):
    if method in CHOOSES_FREELY:
        refused(method, "include", include=[4])
        return
    for initial in ([17, 4, 30], [30, 17, 4, 9, 8, 1, 0]):
        selection = uniproto.select(rows_for(method), 7, method=method, include=initial)
        check(selection, 7)
        assert selection.indices[: len(initial)].tolist() == initial


def test_excluded_rows_are_never_chosen(method):
    if method in CHOOSES_FREELY:
        refused(method, "exclude", exclude=[4])
        return
    exclude = np.arange(0, M, 2)
    for k in (5, M // 2):
        selection = uniproto.select(
            rows_for(method), k, method=method, exclude=exclude, metric="euclidean"
        )
        check(selection, k)
        assert not np.isin(selection.indices, exclude).any()


def test_distinct_rows_are_apart(method):
    if method in CHOOSES_FREELY:
        refused(method, "min_distance", min_distance=0.1)
        return
    question = {"method": method, "metric": "euclidean", "include": [3]}
    selection = uniproto.select(rows_for(method), 6, min_distance=1.0, **question)
    check(selection, 6)
    between = cdist(*2 * [rows_for(method)[selection.indices]])
    assert between[np.triu_indices(6, 1)].min() > 1.0
    with pytest.raises(InfeasibleError, match="min_distance"):
        uniproto.select(rows_for(method), 6, min_distance=100.0, **question)


def test_one_seed_one_answer(method):
    runs = [uniproto.select(rows_for(method), 6, method=method, seed=2**40 + 5) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].details.gains, runs[1].details.gains)
    for field in ("indices", "weights"):
        np.testing.assert_array_equal(getattr(runs[0], field), getattr(runs[1], field))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_takes_another_set_as_target(method, weights):
    if method in CHOOSES_FREELY:
        refused(method, "target", target=TARGET)
        return
    for k in (1, 7):
        selection = uniproto.select(
            rows_for(method), k, rows_for(method, TARGET), method=method, target_weights=weights
        )
        check(selection, k)
        assert np.isfinite(selection.cost)


def test_more_prototypes_than_targets(method):
    if method in CHOOSES_FREELY | {"kmeans"}:
        refused(method, "target", target=TARGET[:3])
        return
    check(uniproto.select(rows_for(method), 10, rows_for(method, TARGET[:3]), method=method), 10)


def test_target_weights_matter(method):
    weights = np.where(np.arange(M) < 3, 1.0, 0.0)
    if method in CHOOSES_FREELY:
        refused(method, "target_weights", target_weights=weights)
        check(
            uniproto.select(rows_for(method), 3, method=method, target_weights=np.full(M, 2.0)), 3
        )
        return
    selection = uniproto.select(
        rows_for(method), 3, method=method, target_weights=weights, metric="euclidean"
    )
    check(selection, 3)
    if method not in MISSES_POINTS:
        assert sorted(selection.indices.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("budgets", ["proportional", "balanced", {"a": 1, "b": 6}])
def test_groups(method, budgets):
    groups = np.array(["a", "b", "b"])[np.arange(M) % 3]
    selection = uniproto.select(
        rows_for(method), 7, method=method, groups=uniproto.Groups(groups, budgets=budgets)
    )
    check(selection, 7)
    if isinstance(budgets, dict):
        assert (groups[selection.indices] == "a").sum() == budgets["a"]


@pytest.mark.usual_effort
def test_single_precision_agrees_with_double(method):
    for metric in ("cosine", "euclidean", "l1"):
        single, double = (
            uniproto.select(rows_for(method).astype(dtype), 6, method=method, metric=metric)
            for dtype in (np.float32, np.float64)
        )
        if method == "uniproto":  # of two sets that cost the same, rounding decides
            assert single.cost == pytest.approx(double.cost, rel=1e-4)
            continue
        np.testing.assert_array_equal(single.indices, double.indices)
        np.testing.assert_allclose(single.weights, double.weights, atol=1e-4)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1", "dot"])
def test_sparse_agrees_with_dense(method, metric):
    if method in CHOOSES_FREELY and metric == "dot":
        return
    dense = rows_for(method, np.where(np.abs(SOURCE - 0.5) > 0.4, SOURCE, 0.0))
    sparse = sp.csr_array(dense) if metric == "cosine" else sp.csr_matrix(dense)
    found, expected = (
        uniproto.select(rows, 6, method=method, metric=metric) for rows in (sparse, dense)
    )
    check(found, 6)
    np.testing.assert_array_equal(np.sort(found.indices), np.sort(expected.indices))


def test_matrix_metrics(method):
    costs = cdist(SOURCE, SOURCE)
    for metric, matrix in {"precomputed": costs, "similarity": 3.0 - costs}.items():
        if method in WORKS_ON_FEATURES:
            with pytest.raises(UniprotoError, match=f"'metric' must be .*{method}.*feature rows"):
                uniproto.select(matrix, 6, method=method, metric=metric)
            continue
        selection = uniproto.select(matrix, 6, method=method, metric=metric)
        check(selection, 6)
        features = uniproto.select(SOURCE, 6, method=method, metric="euclidean")
        np.testing.assert_array_equal(selection.indices, features.indices)
        if method in CHOOSES_FREELY:
            with pytest.raises(UniprotoError, match="target"):
                uniproto.select(matrix[:, :-1], 6, method=method, metric=metric)


def test_names_and_classes_are_public():
    for name, cls in METHODS.items():
        assert cls.name == name
        assert cls.__name__ in uniproto.__all__
        assert getattr(uniproto, cls.__name__) is cls


@pytest.mark.parametrize("name", ["mmd_critic", "protodash"])
@pytest.mark.parametrize("bandwidth", [0, -1.0, float("nan"), float("inf")])
def test_bad_bandwidth(name, bandwidth):
    with pytest.raises(UniprotoError, match="bandwidth"):
        METHODS[name](bandwidth=bandwidth)


@pytest.mark.parametrize("name", ["mmd_critic", "protodash"])
def test_too_narrow_a_bandwidth_is_refused(name):
    for narrow in (1e-9, 1e-200):
        method = METHODS[name](bandwidth=narrow)
        with pytest.raises(UniprotoError, match="bandwidth"):
            uniproto.select(SOURCE, 3, TARGET, method=method)


def test_given_rows_too_far_from_every_target_have_no_weights():
    with pytest.raises(UniprotoError, match=r"bandwidth.*similar to a prototype"):
        uniproto.select(
            [[0.0], [100.0]],
            1,
            target=[[0.0]],
            metric="euclidean",
            method=METHODS["protodash"](bandwidth=0.1),
            include=[1],
        )


# --- k-medoids and facility location --------------------------------------------------------------


def greedy(gain, k, candidates, chosen=()):
    """Plain greedy: the candidate of largest `gain(chosen, row)`, ties to the lowest row."""
    chosen, gains = list(chosen), []
    while len(chosen) < k:
        free = [row for row in candidates if row not in chosen]
        values = [gain(chosen, row) for row in free]
        gains.append(max(values))
        chosen.append(free[int(np.argmax(values))])
    return chosen, gains


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["kmedoids", "facility_location"])
def test_coverage_against_its_formula(name, streamed):
    rng = np.random.default_rng(5)
    for trial in range(6):
        m, n, k = rng.integers(20, 300), rng.integers(5, 200), int(rng.integers(1, 20))
        source, target = rng.normal(size=(m, 2)), rng.normal(size=(n, 2))
        weights = rng.uniform(size=n)
        nu, costs = weights / weights.sum(), cdist(source, target)
        initial = [3, 1] if trial % 2 and k > 2 else []

        def value(chosen, name=name, costs=costs, nu=nu, ceiling=None):
            if name == "facility_location":
                return nu @ (ceiling - costs[chosen]).max(axis=0)
            return nu @ np.maximum(0.0, costs.max() - costs[chosen]).max(axis=0)

        selection = uniproto.select(
            source,
            k,
            target,
            method=name,
            metric="euclidean",
            target_weights=weights,
            include=initial,
            compute=uniproto.Compute(memory=1 if streamed else None),
        )

        def gain(chosen, row, value=value, beta=selection.details.beta):
            before = value(chosen, ceiling=beta) if chosen else 0.0
            return value([*chosen, row], ceiling=beta) - before

        chosen, gains = greedy(gain, k, range(m), initial)
        np.testing.assert_array_equal(selection.indices, chosen)
        np.testing.assert_allclose(selection.details.gains[len(initial) :], gains, atol=1e-9)
        whole = value(chosen, ceiling=selection.details.beta)
        assert selection.details.gains.sum() == pytest.approx(whole)
        nearest = costs[chosen].argmin(axis=0)
        np.testing.assert_allclose(
            selection.weights, np.bincount(nearest, nu, minlength=k), atol=1e-9
        )


def test_ties_go_to_the_lowest_row():
    matrix = np.tile(np.random.default_rng(0).integers(0, 4, size=(5, 9)).astype(float), (2, 1))
    for name in ("kmedoids", "facility_location"):
        chosen = uniproto.select(matrix, 3, method=name, metric="precomputed").indices
        assert chosen.max() < 5


# --- FasterPAM ------------------------------------------------------------------------------------


def test_fasterpam_admits_no_better_swap():
    costs = cdist(SOURCE, SOURCE)
    selection = uniproto.select(SOURCE, 5, method="fasterpam", metric="euclidean")
    chosen = selection.indices.tolist()

    def loss(rows):
        return costs[rows].min(axis=0).sum()

    assert selection.details.notes["loss"] == pytest.approx(loss(chosen))
    for place in range(5):
        for row in set(range(M)) - set(chosen):
            assert loss([*chosen[:place], row, *chosen[place + 1 :]]) >= loss(chosen) - 1e-9
    sizes = np.bincount(costs[chosen].argmin(axis=0), minlength=5)
    np.testing.assert_allclose(selection.weights, sizes / M)
    assert (np.diff(selection.weights) <= 0).all()


@pytest.mark.filterwarnings("ignore::uniproto.problem.checks.ScaleWarning")  # by their sign
def test_fasterpam_finds_different_rows_among_copies():
    """Every row is a copy of another but for rounding: the library repeats medoids of such."""
    source = np.random.default_rng(90).normal(size=(10, 1)).astype(np.float32)
    for seed in range(40):
        selection = uniproto.select(source, 8, method="fasterpam", metric="cosine", seed=seed)
        assert len(set(selection.indices.tolist())) == 8
        assert selection.weights.sum() == pytest.approx(1)


def test_fasterpam_and_protodash_ask_for_memory_first():
    for name in ("fasterpam", "protodash"):
        with pytest.raises(InfeasibleError, match=f"memory: method='{name}'"):
            uniproto.select(SOURCE, 3, method=name, compute=uniproto.Compute(memory=100))
        uniproto.select(SOURCE, 3, method=name, compute=uniproto.Compute(memory="1MB"))


# --- kernel methods -------------------------------------------------------------------------------


def rbf(first, second, bandwidth):
    return np.exp(-cdist(first, second, "sqeuclidean") / (2 * bandwidth**2))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("initial", [[], [7, 2]])
def test_mmd_critic_against_its_formula(metric, initial):
    selection = uniproto.select(
        SOURCE,
        9,
        TARGET,
        method="mmd_critic",
        metric=metric,
        target_weights=WEIGHTS,
        include=initial,
    )
    source, target = SOURCE, TARGET
    if metric == "cosine":
        source, target = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (source, target))
    bandwidth = np.median(cdist(source, target))
    assert selection.details.notes["bandwidth"] == pytest.approx(bandwidth)
    kernel = rbf(source, source, bandwidth)
    means = rbf(source, target, bandwidth) @ (WEIGHTS / WEIGHTS.sum())

    def score(chosen, row):
        crowding = 2 * kernel[chosen, row].sum() + kernel[row, row]
        return 2 * means[row] - crowding / (len(chosen) + 1)

    def objective(chosen):
        return 2 * means[chosen].mean() - kernel[np.ix_(chosen, chosen)].mean()

    chosen, _ = greedy(score, 9, range(M), initial)
    np.testing.assert_array_equal(selection.indices, chosen)
    values = [0.0, *(objective(chosen[: size + 1]) for size in range(9))]
    np.testing.assert_allclose(selection.details.gains, np.diff(values), atol=1e-12)


@pytest.mark.parametrize("initial", [[], [7, 2]])
def test_protodash_against_its_formula(initial):
    k, bandwidth = 9, 1.3
    selection = uniproto.select(
        SOURCE,
        k,
        TARGET,
        method=uniproto.ProtoDash(bandwidth),
        metric="euclidean",
        target_weights=WEIGHTS,
        include=initial,
    )
    kernel = rbf(SOURCE, SOURCE, bandwidth)
    means = rbf(SOURCE, TARGET, bandwidth) @ (WEIGHTS / WEIGHTS.sum())

    def optimum(chosen):
        factor = np.linalg.cholesky(kernel[np.ix_(chosen, chosen)] + 1e-10 * np.eye(len(chosen)))
        return nnls(factor.T, np.linalg.solve(factor, means[chosen]))[0]

    def value(chosen):
        weights = optimum(chosen)
        return weights @ means[chosen] - weights @ kernel[np.ix_(chosen, chosen)] @ weights / 2

    def slope(chosen, row):
        return means[row] - (kernel[row, chosen] @ optimum(chosen) if chosen else 0.0)

    chosen, _ = greedy(slope, k, range(M), initial)
    np.testing.assert_array_equal(selection.indices, chosen)
    weights = optimum(chosen)
    np.testing.assert_allclose(selection.weights, weights / weights.sum(), atol=1e-6)
    values = [0.0, *(value(chosen[: size + 1]) for size in range(k))]
    np.testing.assert_allclose(selection.details.gains, np.diff(values), atol=1e-8)


# --- k-means --------------------------------------------------------------------------------------


def test_kmeans_takes_the_row_nearest_to_each_centre():
    rng = np.random.default_rng(6)
    corners = 20.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    sizes = (40, 30, 20, 10)
    target = np.concatenate(
        [corner + rng.normal(size=(size, 2)) for corner, size in zip(corners, sizes, strict=True)]
    )
    weights = rng.uniform(0.5, 1.5, len(target))
    source = corners[rng.integers(0, 4, 300)] + rng.normal(size=(300, 2)) * 3
    blob = np.repeat(np.arange(4), sizes)
    expected, masses = [], []
    for index in range(4):
        inside = blob == index
        centre = np.average(target[inside], axis=0, weights=weights[inside])
        expected.append(int(cdist([centre], source).argmin()))
        masses.append(weights[inside].sum() / weights.sum())
    order = np.argsort(-np.array(masses))
    question = {"metric": "euclidean", "target_weights": weights, "method": "kmeans"}
    selection = uniproto.select(source, 4, target, **question)
    np.testing.assert_array_equal(selection.indices, np.array(expected)[order])
    np.testing.assert_allclose(selection.weights, np.array(masses)[order])
    # A given prototype stands in for the centre nearest to it.
    given = int(cdist([corners[2]], source).argsort()[0, 5])
    selection = uniproto.select(source, 4, target, include=[given], **question)
    assert selection.indices[0] == given
    assert selection.weights[0] == pytest.approx(masses[2])
    rest = [expected[index] for index in order if index != 2]
    np.testing.assert_array_equal(selection.indices[1:], rest)


# --- k-centre -------------------------------------------------------------------------------------


def test_kcenter_against_its_formula():
    for seed in range(5):
        selection = uniproto.select(
            SOURCE, 12, TARGET, method="kcenter", metric="euclidean", seed=seed
        )
        costs = cdist(SOURCE, TARGET)
        first = np.random.default_rng(seed).choice(N, p=np.full(N, 1 / N))
        chosen, left = [int(costs[:, first].argmin())], set(range(N)) - {first}
        radii = [selection.details.beta, costs[chosen].min(axis=0).max()]
        while len(chosen) < 12:
            covered = costs[chosen].min(axis=0)
            worst = max(sorted(left), key=lambda j: covered[j])
            left.remove(worst)
            free = [row for row in range(M) if row not in chosen]
            nearest = min(free, key=lambda row: costs[row, worst])
            if costs[nearest, worst] < covered[worst]:
                chosen.append(nearest)
                radii.append(costs[chosen].min(axis=0).max())
        np.testing.assert_array_equal(selection.indices, chosen)
        np.testing.assert_allclose(selection.details.gains, -np.diff(radii), atol=1e-9)


def test_kcenter_radius_is_at_most_twice_the_best():
    points = SOURCE[:14]
    costs = cdist(points, points)
    for k in (1, 2, 3, 4):
        best = min(costs[list(rows)].min(axis=0).max() for rows in combinations(range(14), k))
        for seed in range(4):
            rows = uniproto.select(
                points, k, method="kcenter", metric="euclidean", seed=seed
            ).indices
            assert costs[rows].min(axis=0).max() <= 2 * best + 1e-9


def test_kcenter_starts_over_when_nothing_can_be_covered_better():
    source = np.array([[0.0], [10.0], [0.5], [11.0], [0.25]])
    rows = uniproto.select(
        source, 4, [[0.0], [10.0]], method="kcenter", metric="euclidean"
    ).indices.tolist()
    assert set(rows[:2]) == {0, 1}  # each target's nearest row,
    assert set(rows[2:]) == {4, 3}  # then each one's next nearest


# --- choosing by similarity to a target -----------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_nearest_against_their_formulas(metric):
    costs, nu = cdist(SOURCE, TARGET, metric), WEIGHTS / WEIGHTS.sum()
    question = {"metric": metric, "target_weights": WEIGHTS}
    to_any = uniproto.select(SOURCE, 8, TARGET, method="nearest_to_any", **question)
    np.testing.assert_array_equal(to_any.indices, np.argsort(costs.min(axis=1))[:8])
    np.testing.assert_allclose(
        to_any.details.beta - to_any.details.gains, np.sort(costs.min(axis=1))[:8], atol=1e-9
    )
    average = uniproto.select(SOURCE, 8, TARGET, method="nearest_on_average", **question)
    np.testing.assert_array_equal(average.indices, np.argsort(costs @ nu)[:8])


def test_nearest_to_any_ignores_targets_without_weight():
    weights = np.where(np.arange(N) == 4, 1.0, 0.0)
    chosen = uniproto.select(
        SOURCE, 3, TARGET, method="nearest_to_any", metric="euclidean", target_weights=weights
    ).indices
    np.testing.assert_array_equal(chosen, np.argsort(cdist(SOURCE, TARGET[4:5])[:, 0])[:3])


@pytest.mark.parametrize("at_once", [1, 4, 1000])
@pytest.mark.parametrize(
    "question",
    [
        {},
        {"include": [5, 20], "exclude": [0, 1, 2]},
        {"limits": uniproto.Limits(np.arange(M) % 3, at_most={0: 2}, at_least={1: 6})},
        {"target_weights": np.where(np.arange(N) % 5 == 3, 1.0, 0.0)},
        {"min_distance": 0.7},
    ],
    ids=lambda question: "-".join(question) or "plain",
)
def test_nearest_in_turn_against_turns_one_by_one(monkeypatch, question, at_once):
    monkeypatch.setattr("uniproto.methods.nearest._AT_ONCE", at_once)
    k, costs = 13, cdist(SOURCE, TARGET)
    between = cdist(SOURCE, SOURCE)
    rows = list(question.get("include", []))
    taken = [costs[row].min() for row in rows]
    weights = question.get("target_weights", np.ones(N))

    def may_follow(row):
        if row in rows or row in question.get("exclude", []):
            return False
        if (between[row, rows] <= question.get("min_distance", -1)).any():
            return False
        if "limits" not in question:
            return True
        owed = 6 - sum(each % 3 == 1 for each in rows)
        full = row % 3 == 0 and sum(each % 3 == 0 for each in rows) >= 2
        return not full and (row % 3 == 1 or k - len(rows) > owed)

    for target in np.tile(np.flatnonzero(weights), k):
        free = [row for row in range(M) if may_follow(row)]
        if len(rows) < k:
            rows.append(min(free, key=lambda row: costs[row, target]))
            taken.append(costs[rows[-1], target])
    found = uniproto.select(
        SOURCE, k, TARGET, method="nearest_in_turn", metric="euclidean", **question
    )
    assert found.indices.tolist() == rows
    np.testing.assert_allclose(found.details.beta - found.details.gains, taken, atol=1e-9)


def test_less_against_its_formula():
    rng = np.random.default_rng(8)
    pool, target, rates = rng.normal(size=(50, 12)), rng.normal(size=(7, 12)), (3e-5, 1e-5, 2e-6)
    nu = rng.uniform(size=7)
    influence = np.zeros(50)
    for part, rate in zip(np.split(np.arange(12), 3), rates, strict=True):
        cosines = 1 - cdist(pool[:, part], target[:, part], "cosine")
        influence += rate * cosines @ (nu / nu.sum())
    method = uniproto.LESS(checkpoints=3, rates=rates)
    selection = uniproto.select(pool, 9, target, method=method, target_weights=nu)
    np.testing.assert_array_equal(selection.indices, np.argsort(-influence)[:9])
    np.testing.assert_allclose(selection.details.gains, np.sort(influence)[::-1][:9], atol=1e-12)


def test_less_is_told_what_is_wrong():
    with pytest.raises(UniprotoError, match="'checkpoints' must divide the 3 numbers"):
        uniproto.select(SOURCE, 3, TARGET, method=uniproto.LESS(checkpoints=2))
    for rates in ((1.0,), (1.0, 0.0), (1.0, np.nan)):
        with pytest.raises(UniprotoError, match="'rates' must be a positive learning rate"):
            uniproto.LESS(checkpoints=2, rates=rates)


def test_dsir_against_its_formula():
    rng = np.random.default_rng(9)
    pool, target = rng.poisson(1.0, (60, 8)).astype(float), rng.poisson(0.5, (9, 8)).astype(float)
    target[:, 0] += 3
    p, q = target.sum(axis=0) + 1, pool.sum(axis=0) + 1
    weights = pool @ (np.log(p / p.sum()) - np.log(q / q.sum()))
    for seed in range(3):
        selection = uniproto.select(pool, 10, target, method="dsir", seed=seed)
        noisy = weights + np.random.default_rng(seed).gumbel(size=60)
        np.testing.assert_array_equal(selection.indices, np.argsort(-noisy)[:10])
        np.testing.assert_allclose(selection.details.gains, weights[selection.indices])
    sparse = uniproto.select(sp.csr_matrix(pool), 10, sp.csr_matrix(target), method="dsir", seed=2)
    np.testing.assert_array_equal(sparse.indices, selection.indices)


def test_dsir_prefers_texts_like_the_target():
    maths = [f"what is {a} plus {a + 3} ?" for a in range(40)]
    novels = [f"she walked along the river on day {a}" for a in range(400)]
    pool = hashed_ngrams(novels + maths)
    target = hashed_ngrams([f"what is {a} minus 2 ?" for a in range(9)])
    chosen = uniproto.select(pool, 20, target, method="dsir").indices
    assert (chosen >= 400).mean() > 0.9
    with pytest.raises(UniprotoError, match="must hold counts"):
        uniproto.select(-pool, 3, target, method="dsir")
    with pytest.raises(UniprotoError, match="smoothing"):
        uniproto.DSIR(smoothing=0)


def tsds_objective(density, distances, thinness, alpha, scale):
    """The objective of TSDS for a largest density, by filling targets one row after the other."""
    cost = 0.0
    for far in distances:
        missing = 1.0
        for row in np.argsort(far):
            taken = min(missing, density * thinness[row])
            cost += taken * far[row] / len(distances)
            missing -= taken
    return alpha / scale * cost + (1 - alpha) * density


@pytest.mark.parametrize("alpha", [0.3, 0.6, 0.9])
def test_tsds_against_its_objective(alpha):
    rng = np.random.default_rng(4)
    pool, target = rng.normal(size=(30, 3)), rng.normal(size=(6, 3))
    pool[20:] = pool[0] + 0.01 * rng.normal(size=(10, 3))  # ten near-duplicates
    pool, target = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (pool, target))
    method = uniproto.TSDS(alpha=alpha, scale=0.5, neighbours=30)
    selection = uniproto.select(pool, 1, target, method=method)
    thinness = 1 / np.maximum(0, 1 - cdist(pool, pool, "sqeuclidean") / 0.75**2).sum(axis=1)
    distances = cdist(target, pool, "cosine")
    tried = np.geomspace(1 / thinness.sum() * 1.001, 1 / thinness.min(), 4000)
    values = [tsds_objective(d, distances, thinness, alpha, 0.5) for d in tried]
    best = tried[int(np.argmin(values))]
    expected = np.zeros(30)
    for far in distances:
        missing = 1.0
        for row in np.argsort(far):
            taken = min(missing, best * thinness[row])
            expected[row] += taken / len(distances)
            missing -= taken
    found = selection.details.gains[0]
    assert found == pytest.approx(expected[selection.indices[0]], abs=0.01)


def test_tsds_gives_near_duplicates_the_share_of_one():
    rng = np.random.default_rng(5)
    alone = rng.normal(size=(5, 16))
    pool = np.concatenate([alone, alone[:1] + 1e-4 * rng.normal(size=(45, 16))])
    draws = np.zeros(50)
    for seed in range(60):
        chosen = uniproto.select(
            pool, 1, alone, method=uniproto.TSDS(alpha=0.05), metric="cosine", seed=seed
        )
        draws[chosen.indices] += 1
    copies = draws[[0, *range(5, 50)]].sum() / draws.sum()
    assert copies < 0.4  # of five examples one has 45 copies: a plain draw gives them 92 %


def test_tsds_spreads_until_there_are_enough_rows():
    selection = uniproto.select(
        SOURCE, M, TARGET[:2], method=uniproto.TSDS(alpha=0.99, neighbours=2)
    )
    check(selection, M)
    assert selection.details.notes["neighbours"] == M
    for options in ({"alpha": 1.0}, {"alpha": 0}, {"scale": 0}, {"bandwidth": -1.0}):
        with pytest.raises(UniprotoError, match=next(iter(options))):
            uniproto.TSDS(**options)
