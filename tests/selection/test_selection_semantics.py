"""What a Selection means, through the front door `uniproto.select`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from tests.refusals import refused

import uniproto
from uniproto import Compute, Entropic, Greedy, InfeasibleError, Selection, UniProto
from uniproto.algorithm import uniprot
from uniproto.cli import main
from uniproto.problem.masses import integer_masses
from uniproto.runtime.progress import Progress

METHODS = {
    "extend": UniProto(),
    "resolve": Greedy(plan="resolve"),
    "entropic": Greedy(plan=Entropic(reg=0.05, iterations=150)),
    "exact gains": Greedy(gains="exact"),
    "sampled": Greedy(sample=0.3),
    "random": uniproto.Random(),
}
M, N, K, WIDTH = 26, 40, 6, 4


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(101)


@pytest.fixture
def source(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(M, WIDTH))


@pytest.fixture
def target(source: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(N, WIDTH)) + 0.2


@pytest.fixture
def weights(target: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Not yet a distribution: one target is very heavy, some weigh nothing."""
    weights = rng.random(N) + 0.1
    weights[3] = 20.0
    weights[[5, 9]] = 0.0
    return weights


def lp_cost(costs: np.ndarray, row_mass: np.ndarray, column_mass: np.ndarray) -> float:
    """Optimal transport as a linear program, by HiGHS."""
    rows, n = costs.shape
    solved = linprog(
        costs.ravel(),
        A_eq=sp.vstack(
            [
                sp.kron(sp.eye_array(rows), np.ones((1, n))),
                sp.kron(np.ones((1, rows)), sp.eye_array(n)),
            ]
        ),
        b_eq=np.concatenate([row_mass, column_mass]),
        method="highs",
    )
    assert solved.status == 0, solved.message
    return solved.fun


def assert_contract(selection: Selection, k: int, shape: tuple[int, int], nu: np.ndarray) -> None:
    """What holds for every method, metric and option."""
    m, n = shape
    assert len(selection) == selection.k == k
    assert selection.indices.dtype == np.int64
    assert selection.indices.shape == (k,)
    assert len(set(selection.indices.tolist())) == k
    assert selection.indices.min() >= 0
    assert selection.indices.max() < m
    assert selection.details.gains.shape == (k,)
    assert selection.details.gains.dtype == np.float64
    assert selection.details.shape == shape
    assert isinstance(selection.plan, sp.csr_array)
    assert selection.plan.shape == (k, n)
    assert (selection.plan.data > 0).all()
    np.testing.assert_allclose(selection.plan.sum(axis=1), 1 / k, rtol=1e-12)
    np.testing.assert_allclose(selection.plan.sum(axis=0), nu, atol=1e-12)
    np.testing.assert_allclose(selection.weights, 1 / k)
    assert {"prepare", "pick"} <= set(selection.details.timings)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_contract_and_exact_cost(name, weighted, source, target, weights) -> None:
    selection = uniproto.select(
        source,
        K,
        target,
        metric="euclidean",
        method=METHODS[name],
        target_weights=weights if weighted else None,
    )
    nu = weights / weights.sum() if weighted else np.full(N, 1 / N)
    assert_contract(selection, K, (M, N), nu)
    assert selection.cost_is_exact
    costs = cdist(source[selection.indices], target)
    assert selection.cost == pytest.approx(lp_cost(costs, np.full(K, 1 / K), nu), rel=1e-7)
    assert selection.plan.multiply(costs).sum() == pytest.approx(selection.cost, rel=1e-9)


def test_gains_are_beta_minus_fill_costs(source, target) -> None:
    costs = cdist(source, target)
    selection = uniproto.select(costs, K, metric="precomputed", method=Greedy())
    _, fill_costs = uniprot(costs, K, integer_masses(K, N))
    assert selection.details.beta == costs.max()
    np.testing.assert_allclose(
        selection.details.gains, costs.max() - np.array(fill_costs), rtol=1e-12
    )
    # Under `extend` the fills add up to a plan of all the mass: its cost bounds the exact cost.
    assert selection.cost <= np.mean(fill_costs) + 1e-12


def test_gains_with_exact_gains_add_up_to_the_cost(source, target) -> None:
    """The rises telescope: f(P) = Σ gains, and f(P) = k·(β − cost) at |P| = k."""
    selection = uniproto.select(source, K, target, method=METHODS["exact gains"])
    assert selection.details.gains.sum() == pytest.approx(
        K * (selection.details.beta - selection.cost), rel=1e-9
    )
    assert (np.diff(selection.details.gains) <= 1e-12).all()  # submodular: gains never rise


def test_weights_are_relative(source, target, weights) -> None:
    plain = uniproto.select(source, K, target, target_weights=weights)
    for scale in (1e-300, 1e300, 3):
        scaled = uniproto.select(source, K, target, target_weights=weights * scale)
        assert scaled.indices.tolist() == plain.indices.tolist()
        assert scaled.cost == pytest.approx(plain.cost, rel=1e-9)


def test_a_weight_counts_as_repeated_target_rows(source, target) -> None:
    times = np.arange(N) % 3
    weighted = uniproto.select(source, K, target, target_weights=times)
    repeated = uniproto.select(source, K, np.repeat(target, times, axis=0))
    assert weighted.indices.tolist() == repeated.indices.tolist()
    assert weighted.cost == pytest.approx(repeated.cost, rel=1e-9)


@pytest.mark.parametrize("name", ["extend", "resolve", "exact gains"])
def test_where_no_exact_solve_fits_the_kept_plan_bounds_the_cost(
    name, source, target, weights, monkeypatch
) -> None:
    def selected() -> Selection:
        return uniproto.select(
            source, K, target, method=METHODS[name], target_weights=weights, include=[4, 2]
        )

    exact = selected()
    assert exact.cost_is_exact
    _forbid_exact_solves(monkeypatch)
    bounded = selected()
    assert not bounded.cost_is_exact
    assert bounded.cost >= exact.cost - 1e-12
    assert_contract(bounded, K, (M, N), weights / weights.sum())
    assert "at most" in bounded.summary()
    if name != "extend":  # those keep the optimal plan all along
        assert bounded.cost == pytest.approx(exact.cost, rel=1e-9)


@pytest.mark.parametrize("grouped", [False, True])
def test_where_no_exact_solve_fits_any_plan_bounds_the_cost(
    grouped, source, groups, monkeypatch
) -> None:
    def selected() -> Selection:
        return uniproto.select(source, K, method="random", groups=groups if grouped else None)

    exact = selected()
    assert exact.cost_is_exact
    _forbid_exact_solves(monkeypatch)
    bounded = selected()
    assert not bounded.cost_is_exact
    assert bounded.cost >= exact.cost - 1e-12
    assert_contract(bounded, K, (M, M), np.full(M, 1 / M))


def _forbid_exact_solves(patch: pytest.MonkeyPatch) -> None:
    """What a target far too large for the exact solver would do."""
    patch.setattr("uniproto.transport.prototypes._DENSE_ENTRIES", 0)
    patch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    patch.setattr("uniproto.transport.prototypes.LARGEST_TARGET", 0)


# --- Groups -------------------------------------------------------------------------------------


@pytest.fixture
def groups(rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.repeat(["ant", "bee", "cat"], [12, 9, 5]))


@pytest.fixture
def target_groups(groups: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.repeat(["cat", "bee", "ant"], [10, 10, 20]))


def counts(selection: Selection, groups: np.ndarray) -> dict[str, int]:
    names, numbers = np.unique(groups[selection.indices], return_counts=True)
    return dict(zip(names.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        ("proportional", {"ant": 4, "bee": 3, "cat": 2}),  # 20, 10 and 10 of 40: floors 4, 2, 2
        ("balanced", {"ant": 3, "bee": 3, "cat": 3}),
        ({"ant": 1, "bee": 6, "cat": 2}, {"ant": 1, "bee": 6, "cat": 2}),
        ({"ant": 5, "cat": 4}, {"ant": 5, "cat": 4}),
    ],
)
@pytest.mark.parametrize("name", METHODS)
def test_groups_get_their_budgets_and_choose_on_their_own(
    name, budgets, expected, source, target, groups, target_groups, weights
) -> None:
    del weights
    selection = uniproto.select(
        source,
        9,
        target,
        metric="euclidean",
        method=METHODS[name],
        groups=uniproto.Groups(groups, target=target_groups, budgets=budgets),
    )
    assert_contract(selection, 9, (M, N), np.full(N, 1 / N))
    assert counts(selection, groups) == expected
    # The joined set is one set: its cost and plan know nothing of groups.
    costs = cdist(source[selection.indices], target)
    joined = lp_cost(costs, np.full(9, 1 / 9), np.full(N, 1 / N))
    assert selection.cost == pytest.approx(joined, rel=1e-7)
    assert list(selection.group_costs) == sorted(expected)
    for label, quota in expected.items():
        rows, columns = np.flatnonzero(groups == label), np.flatnonzero(target_groups == label)
        alone = uniproto.select(
            source[rows], quota, target[columns], metric="euclidean", method=METHODS[name]
        )
        inside = [row for row in selection.indices if groups[row] == label]
        assert inside == rows[alone.indices].tolist()
        assert selection.group_costs[label] == pytest.approx(alone.cost, rel=1e-9)


def test_groups_of_one_set_serve_as_target_groups_too(source, groups) -> None:
    selection = uniproto.select(source, 13, groups=groups)
    # 12, 9 and 5 of 26 rows: floors 6, 4 and 2, the remainder to the smallest group.
    assert counts(selection, groups) == {"ant": 6, "bee": 4, "cat": 3}
    copied = uniproto.select(source, 13, source.copy(), groups=groups)
    assert copied.indices.tolist() == selection.indices.tolist()


def test_groups_of_a_square_matrix_need_target_groups(source, groups) -> None:
    """Its columns may be other things than its rows: nobody's groups are given to them."""
    square = {"source": cdist(source, source), "metric": "precomputed", "groups": groups}
    with refused("groups", uniproto.InvalidInputError):
        uniproto.select(k=13, **square)
    reversed_groups = groups[::-1]
    square["groups"] = uniproto.Groups(groups, target=reversed_groups)
    selection = uniproto.select(k=13, **square)
    budgets = uniproto.select(
        source, 13, groups=uniproto.Groups(groups, target=reversed_groups), target=source[::-1]
    )
    assert counts(selection, groups) == counts(budgets, groups)


def test_a_problem_is_asked_as_its_parts_are(source, target, groups, target_groups) -> None:
    conditions = {"groups": uniproto.Groups(groups, target=target_groups), "metric": "euclidean"}
    problem = uniproto.Problem(source, target, exclude=[3], **conditions)
    assert not problem.same_set
    for k in (7, 13):
        asked = uniproto.select(source, k, target, exclude=[3], **conditions)
        assert uniproto.select(problem, k).indices.tolist() == asked.indices.tolist()
    with refused("metric", uniproto.InvalidInputError):
        uniproto.select(problem, 7, metric="l1")
    with pytest.raises(AssertionError, match=r"with_k"):
        uniproto.Random().pick(problem, Progress(False))


def test_source_groups_the_target_lacks_are_never_chosen(
    source, target, groups, target_groups
) -> None:
    keep = target_groups != "bee"
    selection = uniproto.select(
        source, K, target[keep], groups=uniproto.Groups(groups, target=target_groups[keep])
    )
    assert set(counts(selection, groups)) == {"ant", "cat"}


@pytest.mark.parametrize("method", ["kmeans", "protodash", "facility_location"])
def test_learned_weights_of_a_group_add_up_to_its_share(method, source, groups) -> None:
    budgets = {"ant": 1, "bee": 4}  # nothing like the 12 and 9 rows that weights must follow
    selection = uniproto.select(
        source, 5, groups=uniproto.Groups(groups, budgets=budgets), method=method
    )
    for label, share in {"ant": 12 / 21, "bee": 9 / 21}.items():
        inside = groups[selection.indices] == label
        assert selection.weights[inside].sum() == pytest.approx(share)
        rows = groups == label
        alone = uniproto.select(source[rows], budgets[label], method=method)
        np.testing.assert_allclose(selection.weights[inside], alone.weights * share)


def test_groups_may_have_the_names_of_notes(source, groups, tmp_path) -> None:
    """Notes of a group lie under its label, beside those of the whole selection."""
    named = np.array(["search", "interrupted", "resumed_from_pick"])
    labels = named[np.unique(groups, return_inverse=True)[1]]
    selection = uniproto.select(source, 6, groups=labels)
    summary = selection.summary()
    assert "stopped early" not in summary
    assert "  search  " not in summary
    assert uniproto.Selection.load(selection.save(tmp_path / "out")).summary()
    table = pd.DataFrame(source).add_prefix("x").assign(group=labels)
    table.to_csv(tmp_path / "pool.csv", index=False)
    command = ["select", str(tmp_path / "pool.csv"), "-k", "6", "--checkpoint"]
    assert main([*command, "--groups", "group", "-o", str(tmp_path / "two"), "--quiet"]) == 0


# --- Given and excluded rows ----------------------------------------------------------------------


def test_given_rows_count_in_their_groups_budget(source, target, groups, target_groups) -> None:
    cats = np.flatnonzero(groups == "cat")[[2, 0]].tolist()
    bee = int(np.flatnonzero(groups == "bee")[4])
    initial = [cats[0], bee, cats[1]]  # not in the order of the groups
    selection = uniproto.select(
        source,
        9,
        target,
        groups=uniproto.Groups(
            groups, target=target_groups, budgets={"ant": 3, "bee": 4, "cat": 2}
        ),
        include=initial,
    )
    assert selection.indices[:3].tolist() == initial
    assert counts(selection, groups) == {"ant": 3, "bee": 4, "cat": 2}
    rows, columns = np.flatnonzero(groups == "bee"), np.flatnonzero(target_groups == "bee")
    alone = uniproto.select(
        source[rows], 4, target[columns], include=[int(np.searchsorted(rows, bee))]
    )
    inside = [row for row in selection.indices if groups[row] == "bee"]
    assert inside == rows[alone.indices].tolist()


def test_given_rows_raise_a_budget_that_is_too_small_for_them(source, groups) -> None:
    cats = np.flatnonzero(groups == "cat")[:4].tolist()
    selection = uniproto.select(source, 8, groups=groups, include=cats)
    assert counts(selection, groups)["cat"] == 4


# --- Distinct prototypes --------------------------------------------------------------------------


@pytest.fixture
def copies(source: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Eight examples, each with four near-copies beside it."""
    return (source[:8, None] + rng.normal(size=(8, 5, WIDTH)) * 1e-4).reshape(40, WIDTH)


@pytest.mark.parametrize("distinct", ["auto", 0.01])
@pytest.mark.parametrize("name", METHODS)
def test_no_two_prototypes_are_near_duplicates(name, distinct, copies) -> None:
    assert _closest_pair(copies, uniproto.select(copies, 20, metric="euclidean").indices) < 0.01
    selection = uniproto.select(
        copies, 8, metric="euclidean", method=METHODS[name], include=[22], min_distance=distinct
    )
    assert selection.indices[0] == 22
    assert _closest_pair(copies, selection.indices) > 0.01
    assert sorted(selection.indices // 5) == list(range(8))


def _closest_pair(points: np.ndarray, rows: np.ndarray) -> float:
    distances = cdist(points[rows], points[rows])
    return distances[np.triu_indices(len(rows), 1)].min()


@pytest.mark.parametrize("name", METHODS)
def test_too_few_distinct_examples_are_noticed(name, copies) -> None:
    with refused("min_distance", InfeasibleError):
        uniproto.select(copies, 9, metric="euclidean", method=METHODS[name], min_distance=0.01)


@pytest.mark.parametrize("between", [1, 3000])
def test_random_choices_that_are_too_near_one_another_are_not_compared(between) -> None:
    ends = [[0.0], [2.0]]  # a row drawn between them leaves none that is far enough away
    points = ends + [[1.0]] * between
    chosen = uniproto.select(points, 2, ends, metric="euclidean", min_distance=1.5)
    assert sorted(chosen.indices) == [0, 1]
    assert ("with random ones" in chosen.summary()) == (between == 1)


@pytest.mark.parametrize("name", METHODS)
def test_near_duplicates_in_different_groups_are_not_both_chosen(name, copies) -> None:
    labels = np.arange(40) % 2  # every example has copies in both groups
    selection = uniproto.select(
        copies, 8, metric="euclidean", method=METHODS[name], min_distance=0.01, groups=labels
    )
    assert sorted(selection.indices // 5) == list(range(8))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "l1", "dot"])
def test_distinct_rules_out_exact_copies(metric, dtype, source) -> None:
    repeated = np.concatenate([source[:8]] * 3).astype(dtype)
    selection = uniproto.select(repeated, 8, metric=metric, min_distance="auto")
    assert sorted(selection.indices % 8) == list(range(8))


@pytest.mark.parametrize(
    ("metric", "dtype", "distinct"),
    [
        ("dot", np.float32, "auto"),
        ("dot", np.float32, 0.0),
        ("dot", np.float64, 0.0),
        ("cosine", np.float32, "auto"),
    ],
)
def test_copies_far_from_the_origin_are_told_by_their_difference(metric, dtype, distinct) -> None:
    for seed in range(12):  # rounding is a matter of luck: any one failure is a failure
        rng = np.random.default_rng(seed)
        distinct_rows = rng.normal(size=(8, 30)) * 1e-3 + 5.0
        repeated = np.concatenate([distinct_rows] * 3).astype(dtype)
        selection = uniproto.select(repeated, 8, metric=metric, min_distance=distinct)
        assert sorted(selection.indices % 8) == list(range(8))


def test_a_threshold_beyond_every_distance() -> None:
    """Its square overflows, without a word."""
    assert uniproto.select([[0.0], [1.0]], 1, metric="euclidean", min_distance=1e300).cost == 0.5
    with pytest.raises(InfeasibleError):
        uniproto.select([[0.0], [1.0]], 2, metric="euclidean", min_distance=1e300)


@pytest.mark.slow
def test_numpy_numbers_are_numbers(copies) -> None:
    plain = uniproto.select(copies, 4, method=UniProto(seconds=60), min_distance=0.5, seed=3)
    other = uniproto.select(
        copies,
        np.uint8(4),
        method=UniProto(seconds=np.int64(60)),
        min_distance=np.float32(0.5),
        seed=np.int16(3),
    )
    assert other.indices.tolist() == plain.indices.tolist()
    assert other.details.options == plain.details.options
    labels = np.arange(40) % 2
    budgets = {np.int64(0): np.int32(3), 1: np.uint8(2)}
    grouped = uniproto.select(copies, 5, groups=uniproto.Groups(labels, budgets=budgets))
    assert np.bincount(labels[grouped.indices]).tolist() == [3, 2]


@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
def test_distinct_rows_of_a_matrix_differ_in_some_column(metric, source, target) -> None:
    repeated = np.concatenate([source[:8]] * 3)
    selection = uniproto.select(cdist(repeated, target), 8, metric=metric, min_distance=0.0)
    assert sorted(selection.indices % 8) == list(range(8))


# --- What a person sees ---------------------------------------------------------------------------


def test_groups_that_get_none_are_counted(source) -> None:
    groups = ["a"] * 16 + ["b"] * 7 + ["c"] * 3
    summary = uniproto.select(source, 2, groups=groups).summary()
    assert "7 targets of other groups" in summary


def test_a_slice_is_a_list_of_prototypes(source) -> None:
    selection = uniproto.select(source, 4, exclude={1, 2})
    assert not {1, 2} & set(selection.indices.tolist())
    assert [prototype.rank for prototype in selection[1:3]] == [2, 3]


def test_repr_tells_the_cost_only_once_it_is_known(source) -> None:
    selection = uniproto.select(source, 8)
    assert "cost" not in repr(selection)
    assert selection.cost == selection.cost
    text = repr(selection)
    assert text.startswith("Selection(k=8 of 26 for 26 targets, uniproto, cost=")
    assert f"{selection.cost:.6g}" in text
    first = ", ".join(map(str, selection.indices[:6]))
    assert f"[{first}, …]" in text
    assert "…" not in repr(uniproto.select(source, 3))


def test_cost_and_plan_are_computed_once(source, monkeypatch) -> None:
    import uniproto.selection.selection as module

    solves = []
    solve = module.transport
    monkeypatch.setattr(module, "transport", lambda *args: solves.append(1) or solve(*args))
    selection = uniproto.select(source, K, method=Greedy())
    assert not solves  # picking needs no exact solve
    assert selection.plan is selection.plan
    assert selection.cost > 0
    assert len(solves) == 1
    assert "plan" in selection.details.timings


def test_summary_is_for_people(source, groups) -> None:
    selection = uniproto.select(source, K, groups=groups)
    assert selection.cost > 0  # the plan is made here, and its time measured
    selection.details.timings.update(prepare=0.002, pick=1.5, plan=0.0004)
    text = selection.summary()
    assert "6 prototypes of 26 source rows for 26 targets (uniproto, euclidean)" in text
    assert "euclidean, as the rows have 4 columns" in text
    assert f"exactly {selection.cost:.6g}" in text
    assert all(f"{label}: {cost:.4g}" in text for label, cost in selection.group_costs.items())
    assert "prepare 0.002 s, pick 1.5 s\n" in f"{text}\n"  # what takes less than 1 ms is left out


# --- Kinds of input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        pytest.param(np.asfortranarray, id="column-major"),
        pytest.param(lambda x: np.repeat(x, 2, axis=0)[::2], id="strided"),
        pytest.param(lambda x: x.tolist(), id="lists"),
        pytest.param(lambda x: [tuple(row) for row in x], id="tuples"),
        pytest.param(sp.csr_matrix, id="csr_matrix"),
        pytest.param(sp.csr_array, id="csr_array"),
        pytest.param(sp.csc_array, id="csc_array"),
        pytest.param(sp.coo_array, id="coo_array"),
        pytest.param(sp.lil_matrix, id="lil_matrix"),
    ],
)
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1"])
def test_the_form_of_the_input_does_not_matter(metric, convert: Any, source, target) -> None:
    plain = uniproto.select(source, K, target, metric=metric)
    other = uniproto.select(convert(source), K, convert(target), metric=metric)
    assert other.indices.tolist() == plain.indices.tolist()
    assert other.cost == pytest.approx(plain.cost, rel=1e-9)
    np.testing.assert_allclose(other.plan.toarray(), plain.plan.toarray(), atol=1e-12)


@pytest.mark.parametrize("sparse_part", ["source", "target"])
def test_one_part_may_be_sparse_and_the_other_dense(sparse_part, source, target) -> None:
    plain = uniproto.select(source, K, target)
    mixed = (
        (sp.csr_array(source), target)
        if sparse_part == "source"
        else (source, sp.csr_array(target))
    )
    assert uniproto.select(mixed[0], K, mixed[1]).indices.tolist() == plain.indices.tolist()


def test_read_only_arrays_are_fine_and_inputs_are_left_alone(source, target, weights) -> None:
    parts = [source.copy(), target.copy(), weights.copy()]
    for part in parts:
        part.setflags(write=False)
    for metric in ("cosine", "euclidean", "l1", "dot"):
        uniproto.select(parts[0], K, parts[1], metric=metric, target_weights=parts[2])
    costs = cdist(source, target)
    costs.setflags(write=False)
    before = costs.copy()
    for method in METHODS.values():
        uniproto.select(costs, K, metric="precomputed", method=method)
    assert np.array_equal(costs, before)
    assert np.array_equal(parts[0], source)


def test_the_cost_of_rows_is_exact_with_little_memory() -> None:
    """Beyond 400,000 targets, less memory once made an upper bound of it without a word."""
    rows = np.random.default_rng(0).normal(size=(400_001, 2))
    chosen = list(range(8))
    costs = {
        memory: uniproto.cost(rows, chosen, metric="euclidean", compute=Compute(memory=memory))
        for memory in ("40MB", "2GB")
    }
    assert costs["40MB"] == costs["2GB"]


@pytest.mark.parametrize(("k", "parameter"), [(200, "compute"), (301, "rows")])
def test_a_cost_that_no_solve_finds_is_refused(
    k: int, parameter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("transport.prototypes", "select"):
        monkeypatch.setattr(import_module(f"uniproto.{module}"), "LARGEST_TARGET", 100)
    monkeypatch.setattr("uniproto.transport.prototypes._LEAST_MEMORY", 0)
    monkeypatch.setattr("uniproto.transport.prototypes._DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    rows = np.random.default_rng(0).normal(size=(20_000, 2))
    with refused(parameter, uniproto.InvalidInputError):
        uniproto.cost(rows, range(k), metric="euclidean", compute=Compute(memory=2**20))
