"""Mini-batch selection: every method against its formula, both modes, and what can go wrong."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import uniproto
from uniproto import Entropic, Greedy, InvalidInputError, KMedoids, UniProto, UniprotoError
from uniproto.algorithm import transport_cost, uniprot
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.lm import BatchSelector, Gram
from uniproto.lm.batches.methods import BATCH_METHODS, fill_picks
from uniproto.lm.batches.quotas import small_sources
from uniproto.problem.masses import integer_masses

properties = settings(deadline=None, max_examples=60, derandomize=True)

ETA = 0.05


def pool(n: int = 40, width: int = 12, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(dtype)


def labels(n: int = 40, seed: int = 1) -> np.ndarray:
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    return np.random.default_rng(seed).choice(["web", "code", "math", "law"], n, p=shares)


def everything(n: int = 40, seed: int = 0) -> dict[str, Any]:
    """All the arguments of a call, so that any method is served."""
    random = np.random.default_rng(seed + 100)
    return {
        "features": pool(n, seed=seed),
        "sources": labels(n),
        "losses": random.random(n),
        "validation_features": random.normal(size=(5, 12)),
    }


# --- plain references, straight from the formulas -----------------------------------------------


def without_rounding(costs: np.ndarray) -> np.ndarray:
    """Two examples nearest to each other are a tie only if neither is any distance from itself."""
    np.fill_diagonal(costs, 0)
    return costs


def reference_costs(features: np.ndarray, metric: str) -> np.ndarray:
    if metric == "l1":
        return np.abs(features[:, None] - features[None]).sum(axis=2)
    if metric == "cosine":
        features = features / np.linalg.norm(features, axis=1, keepdims=True)
        return without_rounding(1 - features @ features.T)
    if metric in ("euclidean", "sqeuclidean"):
        squares = ((features[:, None] - features[None]) ** 2).sum(axis=2)
        return np.sqrt(squares) if metric == "euclidean" else squares
    if metric in ("rbf", "laplacian"):
        distances = reference_costs(features, {"rbf": "euclidean", "laplacian": "l1"}[metric])
        apart = distances / (0.25 * np.median(distances[distances > 0]))
        return -np.expm1(-(apart**2) / 2 if metric == "rbf" else -apart)
    products = features @ features.T
    return products.max() - products


def reference_medoids(costs: np.ndarray, k: int) -> list[int]:
    similarity = costs.max() - costs
    picks: list[int] = []
    best = np.zeros(len(costs))
    for _ in range(k):
        values = np.maximum(best, similarity).sum(axis=1)
        values[picks] = -np.inf
        # Two examples nearest to each other gain the same, up to the order of a sum.
        picks.append(int(np.argmax(values >= values.max() - 1e-10)))
        best = np.maximum(best, similarity[picks[-1]])
    return picks


def reference_picks(method: str, part: dict[str, Any], k: int) -> list[int]:
    features = part["features"]
    if method == "greedy":
        return uniprot(reference_costs(features, "euclidean"), k, integer_masses(k, len(features)))[
            0
        ]
    if method in ("colm", "colm-raw", "sbert", "kmedoids"):
        metric = {"colm": "l1", "colm-raw": "l1", "sbert": "cosine", "kmedoids": "dot"}[method]
        return reference_medoids(reference_costs(features, metric), k)
    if method == "gradnorm":
        return np.argsort(-np.linalg.norm(features, axis=1), kind="stable")[:k].tolist()
    if method == "maxloss":
        return np.argsort(-part["losses"], kind="stable")[:k].tolist()
    assert method == "greats"
    scores = np.array(
        [ETA * np.mean([g @ v for v in part["validation_features"]]) for g in features]
    )
    picks: list[int] = []
    for _ in range(k):
        best = max((i for i in range(len(features)) if i not in picks), key=lambda i: scores[i])
        picks.append(best)
        scores = scores - ETA**2 * features @ features[best]
    return picks


COMPARED = ("greedy", "colm", "colm-raw", "greats", "gradnorm", "maxloss", "sbert", "kmedoids")


@pytest.mark.parametrize("k", [1, 7, 20, 40])
@pytest.mark.parametrize("method", COMPARED)
def test_per_batch_every_method_follows_its_formula(method: str, k: int) -> None:
    given = everything()
    selector = BatchSelector(method, "batch", k, learning_rate=ETA)
    chosen = selector(**given)
    assert chosen.dtype == np.int64
    assert chosen.tolist() == reference_picks(method, given, k)


@pytest.mark.parametrize("method", COMPARED)
def test_per_source_every_method_follows_its_formula_inside_each_source(method: str) -> None:
    given = everything(60)
    quota = {"code": 7, "law": 4, "math": 4, "web": 15}
    selector = BatchSelector(method, "source", 30, learning_rate=ETA, budgets=quota)
    expected: list[int] = []
    for source in sorted(quota):  # by name, then in the order picked
        rows = np.flatnonzero(given["sources"] == source)
        part = {"features": given["features"][rows], "losses": given["losses"][rows]}
        part["validation_features"] = given["validation_features"]
        expected += rows[reference_picks(method, part, quota[source])].tolist()
    assert selector(**given).tolist() == expected
    assert selector.last is not None
    assert selector.last.per_source == quota


# --- the fast path against the oracle -----------------------------------------------------------


@st.composite
def cost_matrices(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Random, heavily tied (whole costs: sums are exact), or made of copies."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 24))
    k = draw(st.one_of(st.integers(1, n), st.just(n), st.just(1)))
    kind = draw(st.sampled_from(["random", "tied", "copies", "equal"]))
    if kind == "random":
        costs = random.random((n, n))
    elif kind == "tied":
        costs = random.integers(0, draw(st.integers(1, 4)) + 1, (n, n))
    elif kind == "copies":
        points = random.integers(0, 3, (n, 2))
        costs = np.abs(points[:, None] - points[None]).sum(axis=2)
    else:
        costs = np.full((n, n), 3)
    return costs.astype(draw(st.sampled_from([np.float32, np.float64]))), k


@properties
@given(cost_matrices())
def test_fills_pick_what_the_plain_algorithm_picks(problem: tuple[np.ndarray, int]) -> None:
    costs, k = problem
    picks, pick_costs = uniprot(costs.astype(np.float64), k, integer_masses(k, len(costs)))
    assert BatchSelector("greedy", "batch", k, metric="precomputed")(costs).tolist() == picks
    [found], found_costs = fill_picks([costs], [k], exchanges=False)
    assert found.tolist() == picks
    np.testing.assert_allclose(found_costs, pick_costs, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@properties
@given(cost_matrices())
def test_medoids_pick_what_the_library_picks(problem: tuple[np.ndarray, int]) -> None:
    costs, k = problem
    chosen = BatchSelector("kmedoids", "batch", k, metric="precomputed")(costs)
    expected = uniproto.select(costs, k, metric="precomputed", method="kmedoids", progress=False)
    assert chosen.tolist() == expected.indices.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 32, 50, 64, 128])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_features_pick_what_the_plain_algorithm_picks(metric: str, k: int, dtype: Any) -> None:
    features = pool(128, 64, seed=3, dtype=dtype)
    chosen = BatchSelector("greedy", "batch", k, metric=metric)(features)
    costs = reference_costs(features.astype(np.float64), metric)
    assert chosen.tolist() == uniprot(costs, k, integer_masses(k, 128))[0]


def test_sources_pick_what_groups_pick() -> None:
    features, sources = pool(128, 64, seed=4), labels(128)
    greedy = uniproto.Greedy()
    expected = uniproto.select(features, 50, metric="euclidean", groups=sources, method=greedy)
    budgets = dict(Counter(sources[expected.indices].tolist()))
    chosen = BatchSelector("greedy", "source", 50, budgets=budgets)(features, sources=sources)
    assert chosen.tolist() == expected.indices.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        Greedy(plan="resolve"),
        Greedy(plan=Entropic(reg=0.05, iterations=20)),
        Greedy(gains="exact"),
        KMedoids(),
    ],
)
def test_method_objects_answer_as_they_do_elsewhere(method: Any) -> None:
    features = pool(30)
    chosen = BatchSelector(method, "batch", 11, metric="cosine")(features)
    expected = uniproto.select(features, 11, metric="cosine", method=method, progress=False)
    assert chosen.tolist() == expected.indices.tolist()
    per_source = BatchSelector(method, "source", 11)(features, sources=labels(30))
    assert len(set(per_source.tolist())) == 11


# --- inner products instead of gradients --------------------------------------------------------


@pytest.mark.parametrize("mode", ["batch", "source"])
@pytest.mark.parametrize("method", [name for name in BATCH_METHODS if not name.startswith("colm")])
def test_a_gram_gives_what_its_gradients_give(method: str, mode: str) -> None:
    given = everything()
    features, anchors = given.pop("features"), given.pop("validation_features")
    settings = {"learning_rate": ETA}
    expected = BatchSelector(method, mode, 15, **settings)(
        features, validation_features=anchors, **given
    )
    gram = Gram(features @ features.T, features @ anchors.T)
    assert BatchSelector(method, mode, 15, **settings)(gram, **given).tolist() == expected.tolist()


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean"])
def test_a_gram_holds_other_metrics_too(metric: str) -> None:
    features = pool()
    by_features = BatchSelector("uniproto", "batch", 15, metric=metric)(features)
    by_gram = BatchSelector("uniproto", "batch", 15, metric=metric)(Gram(features @ features.T))
    assert by_gram.tolist() == by_features.tolist()


# --- quotas -------------------------------------------------------------------------------------


def counts_of(selector: BatchSelector, sizes: dict[str, int]) -> dict[Any, int]:
    sources = np.repeat(list(sizes), list(sizes.values()))
    selector(pool(len(sources)), sources=sources)
    assert selector.last is not None
    return selector.last.per_source


def test_what_is_left_over_goes_to_the_largest_remainders_and_is_carried_over() -> None:
    # Shares of 10 in 20: 5.5, 3, 1, 0.5; of equal remainders the smallest source comes first.
    sizes = {"a": 11, "b": 6, "c": 2, "d": 1}
    selector = BatchSelector("uniproto", "source", 10)
    assert counts_of(selector, sizes) == {"a": 5, "b": 3, "c": 1, "d": 1}
    assert selector.carried == {"a": 0.5, "b": 0.0, "c": 0.0, "d": -0.5}
    assert counts_of(selector, sizes) == {"a": 6, "b": 3, "c": 1, "d": 0}


@pytest.mark.parametrize(
    ("keep", "options", "sizes", "expected"),
    [
        (12, {}, [9, 4, 2], [7, 3, 2]),  # 0.8 · (9, 4, 2): remainders 0.2, 0.2, 0.6
        (19, {}, [18, 1, 1], [17, 1, 1]),  # none above its source
        (9, {"budgets": "balanced"}, [30, 20, 10], [3, 3, 3]),
        (3, {"budgets": {"a": 3, "b": 0}}, [10], [3]),  # one that wants nothing may be missing
        # An equal share of 16 is 4: c and d are taken whole, the other 10 go 6 to 4.
        (16, {"keep_small": True}, [30, 20, 4, 2], [6, 4, 4, 2]),
        # A list of those to keep, one of which is elsewhere.
        (16, {"keep_small": ["c", "elsewhere"]}, [30, 20, 4, 2], [7, 5, 4, 0]),
        # A pool with more of the small ones than there are places: they share those.
        (3, {"keep_small": {"c", "d"}}, [30, 20, 4, 2], [0, 0, 2, 1]),
    ],
)
def test_quotas(keep: int, options: dict[str, Any], sizes: list[int], expected: list[int]) -> None:
    for method in ("uniproto", "random", "kmedoids", "colm"):
        selector = BatchSelector(method, "source", keep, **{"keep_small": False, **options})
        counts = counts_of(selector, dict(zip("abcd", sizes, strict=False)))
        assert counts == dict(zip("abcd", expected, strict=False))


@properties
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=9), st.floats(0, 1), st.integers(0, 2**32 - 1)
)
def test_no_quota_is_a_whole_example_from_its_share(
    sizes: list[int], share: float, seed: int
) -> None:
    keep = max(1, round(share * sum(sizes)))
    sources = np.repeat(np.arange(len(sizes)), sizes)
    selector = BatchSelector("random", "source", keep, seed=seed)
    picked = np.zeros(len(sizes))
    for call in range(1, 4):
        counts = np.bincount(sources[selector(None, sources=sources)], minlength=len(sizes))
        assert counts.sum() == keep
        assert (counts <= sizes).all()
        wanted = call * keep * np.array(sizes) / sum(sizes)
        picked += counts
        assert np.abs(picked - wanted).max() <= 1 + 1e-9
    assert abs(sum(selector.carried.values())) < 1e-6


def test_small_sources_of_a_data_set() -> None:
    assert small_sources({"web": 900, "law": 60, "logic": 40}, 0.05) == ("logic",)


@properties
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=9),
    st.floats(0, 1),
    st.sampled_from([False, True]),
)
def test_quotas_always_sum_to_keep(sizes: list[int], share: float, keep_small: bool) -> None:
    keep = max(1, round(share * sum(sizes)))
    sources = np.repeat(np.arange(len(sizes)), sizes)
    selector = BatchSelector("gradnorm", "source", keep, keep_small=keep_small)
    chosen = selector(pool(len(sources)), sources=sources)
    assert len(set(chosen.tolist())) == keep
    if keep_small:
        assert selector.last is not None
        for source, size in enumerate(sizes):
            if size * len(sizes) <= keep:
                assert selector.last.per_source[source] == size


# --- NaN and infinity ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mode", ["batch", "source"])
@pytest.mark.parametrize("method", BATCH_METHODS)
def test_an_example_that_is_not_finite_is_left_out(method: str, mode: str, bad: float) -> None:
    given = everything()
    given["features"][3, 2] = bad
    given["losses"][8] = bad
    selector = BatchSelector(method, mode, 38)
    chosen = selector(**given)
    assert selector.last is not None
    assert selector.last.left_out.tolist() == [3, 8]
    assert sorted(chosen.tolist()) == [i for i in range(40) if i not in (3, 8)]


@pytest.mark.parametrize("method", COMPARED)
def test_the_others_are_chosen_as_if_it_had_never_been_there(method: str) -> None:
    given = everything()
    given["features"][[0, 17, 39]] = np.nan
    kept = [i for i in range(40) if i not in (0, 17, 39)]
    chosen = BatchSelector(method, "batch", 12, learning_rate=ETA)(**given)
    part = {name: given[name][kept] for name in ("features", "losses")}
    part["validation_features"] = given["validation_features"]
    assert chosen.tolist() == np.array(kept)[reference_picks(method, part, 12)].tolist()


@pytest.mark.parametrize("method", ["uniproto", "kmedoids"])
def test_bad_rows_of_a_cost_matrix_are_left_out(method: str) -> None:
    costs = reference_costs(pool(), "l1")
    costs[5], costs[:, 5] = np.nan, np.nan
    costs[9, 20:24] = np.inf
    selector = BatchSelector(method, "batch", 10, metric="precomputed")
    chosen = selector(costs)
    assert selector.last is not None
    assert selector.last.left_out.tolist() == [5, 9]
    kept = np.array([i for i in range(40) if i not in (5, 9)])
    again = BatchSelector(method, "batch", 10, metric="precomputed")(costs[np.ix_(kept, kept)])
    assert chosen.tolist() == kept[again].tolist()


def test_bad_entries_of_a_gram_are_left_out() -> None:
    features, anchors = pool(), pool(4, seed=9)
    features[7], anchors[2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        gram = Gram(features @ features.T, features @ anchors.T)
    selector = BatchSelector("greats", "batch", 10, learning_rate=ETA)
    by_gram = selector(gram)
    assert selector.last is not None
    assert selector.last.left_out.tolist() == [7]
    by_features = BatchSelector("greats", "batch", 10, learning_rate=ETA)(
        features, validation_features=anchors
    )
    assert by_gram.tolist() == by_features.tolist()


def test_an_example_without_direction_is_left_out_of_cosines() -> None:
    features = pool()
    features[4] = 0.0
    selector = BatchSelector("sbert", "batch", 39)
    selector(features)
    assert selector.last is not None
    assert selector.last.left_out.tolist() == [4]
    BatchSelector("uniproto", "batch", 40)(features)  # inner products are 0, and that is a number


def test_large_gradients_in_single_precision_do_not_overflow() -> None:
    features = pool(dtype=np.float32)
    chosen = BatchSelector("uniproto", "batch", 12)(features * np.float32(1e25))
    assert chosen.tolist() == BatchSelector("uniproto", "batch", 12)(features).tolist()


# --- coordinates and rank one -------------------------------------------------------------------


def test_coordinates_of_largest_mean_magnitude_are_compared() -> None:
    features, sources = pool(width=30), labels()
    chosen = BatchSelector("colm", "source", 20, coordinates=5)(features, sources=sources)
    rows = np.flatnonzero(sources == "web")
    largest = np.argsort(-np.abs(features[rows]).mean(axis=0))[:5]
    mine = [int(i) for i in chosen if i in rows]
    part = reference_costs(features[np.ix_(rows, largest)], "l1")
    assert mine == rows[reference_medoids(part, len(mine))].tolist()


def zeroth_order(n: int = 20, dtype: Any = np.float64) -> np.ndarray:
    random = np.random.default_rng(5)
    return (random.normal(size=(n, 1)) * random.normal(size=(1, 50))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["colm", "uniproto", "sbert"])
def test_cosines_of_rank_one_are_refused(method: str, dtype: Any) -> None:
    features = zeroth_order(dtype=dtype)
    for examples in (features, Gram(features @ features.T)):
        with refused("metric", InvalidInputError):
            BatchSelector(method, "batch", 5, metric="cosine")(examples)
    assert len(BatchSelector("colm", "batch", 5)(features)) == 5  # L1 distances tell them apart


def test_copies_of_one_example_are_no_reason_to_refuse() -> None:
    chosen = BatchSelector("uniproto", "batch", 3, metric="cosine")(np.ones((6, 4)))
    assert chosen.tolist() == [0, 1, 2]


# --- random numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["random", Greedy(sample=0.5)])
@pytest.mark.parametrize("mode", ["batch", "source"])
def test_draws_depend_on_the_seed_and_the_number_of_the_call(method: Any, mode: str) -> None:
    def run(seed: int, calls: int = 3) -> list[list[int]]:
        selector = BatchSelector(method, mode, 10, seed=seed)
        return [selector(pool(), sources=labels()).tolist() for _ in range(calls)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    first, second, third = run(1)
    assert first != second
    before, resumed = (BatchSelector(method, mode, 10, seed=1) for _ in range(2))
    for _ in range(2):
        before(pool(), sources=labels())
    resumed.calls, resumed.carried = before.calls, before.carried
    assert resumed(pool(), sources=labels()).tolist() == third


@pytest.mark.slow
def test_no_global_random_state_is_read_or_changed() -> None:
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for method in BATCH_METHODS:
        selector = BatchSelector(method, "source", 10)
        selector(**everything())
        assert selector.last is not None
        _ = selector.last.random_cost
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


# --- what the last call did ---------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["batch", "source"])
def test_the_record_holds_exact_costs(mode: str) -> None:
    given = everything()
    selector = BatchSelector("uniproto", mode, 16)
    chosen = selector(**given)
    record = selector.last
    assert record is not None
    costs = reference_costs(given["features"], "euclidean")
    expected = transport_cost(costs, chosen.tolist(), integer_masses(16, 40))
    assert record.cost == pytest.approx(expected)
    assert record.cost < record.random_cost
    assert record.pool.size == 40
    assert record.indices is chosen
    assert record.seconds > 0
    assert sum(record.per_source.values()) == 16


def test_without_features_there_is_no_cost() -> None:
    selector = BatchSelector("maxloss", "batch", 2)
    assert selector(None, losses=[0.1, 0.9, 0.5]).tolist() == [1, 2]
    assert selector.last is not None
    assert np.isnan(selector.last.cost)
    assert np.isnan(selector.last.random_cost)
    assert selector.last.per_source == {}


def test_methods_that_do_not_look_at_features_need_none() -> None:
    assert len(BatchSelector("random", "source", 2)(None, sources=["a", "b", "b", "a"])) == 2
    assert BatchSelector("full")(None, losses=[1.0, np.nan, 3.0]).tolist() == [0, 2]


def test_a_selector_survives_pickling() -> None:
    for method in ("uniproto", Greedy(plan="resolve")):
        selector = pickle.loads(pickle.dumps(BatchSelector(method, "batch", 9)))
        assert len(selector(pool())) == 9


# --- arrays of other frameworks -----------------------------------------------------------------


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_arrays_of_other_frameworks_are_taken_as_they_are(library: str) -> None:
    other = pytest.importorskip(library)
    given = everything()
    expected = BatchSelector("greats", "source", 15, learning_rate=ETA)(**given)
    given["sources"] = np.unique(given["sources"], return_inverse=True)[1]
    given = {name: other.asarray(values) for name, values in given.items()}
    if library == "torch":
        for name in ("features", "losses"):
            given[name].requires_grad_()
    chosen = BatchSelector("greats", "source", 15, learning_rate=ETA)(**given)
    assert chosen.tolist() == expected.tolist()
    half = other.asarray(pool(), dtype=other.bfloat16)
    assert len(BatchSelector("uniproto", "batch", 7)(half)) == 7


# --- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *({"method": odd} for odd in ("unipro", UniProto, 3)),
        {"mode": "sources"},
        *({"keep": odd} for odd in (0, 2.5, True)),
        {"metric": "cosinus"},
        *({"budgets": odd} for odd in ("fair", None)),
        {"keep_small": -1},
        {"keep_small": 0.1, "mode": "source"},
        {"keep_small": True, "budgets": {"a": 3}, "mode": "source", "keep": 3},
        {"coordinates": 0},
        {"seed": -1},
        {"method": "gradnorm", "metric": "precomputed"},
        {"method": "greats", "metric": "similarity"},
    ],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with refused(next(iter(options)), InvalidInputError):
        BatchSelector(**options)


@pytest.mark.parametrize(
    ("options", "change", "match"),
    [
        ({"keep": 41}, {}, "'keep' must not exceed the 40 examples"),
        ({}, {"features": None}, "'uniproto', which needs features"),
        ({"mode": "source"}, {"sources": None}, "'source', which needs sources"),
        ({"method": "maxloss"}, {"losses": None}, "'maxloss', which needs losses"),
        (
            {"method": "greats"},
            {"validation_features": None},
            "needs validation_features",
        ),
        (
            {"method": "greats"},
            {"features": Gram(np.eye(40))},
            "needs features.validation",
        ),
        (
            {"method": "greats"},
            {"validation_features": np.full((3, 12), np.nan)},
            "validation_features' must hold an anchor",
        ),
        ({}, {"losses": 0.3}, "losses' must have 1 dimension"),
        ({}, {"sources": ["a"] * 39}, "'sources' must hold one label per row, 40 in all"),
        ({}, {"sources": [None] * 40}, "'sources' must have a label in every row"),
        ({"mode": "source"}, {"sources": [1, "a"] * 20 + []}, None),
        ({}, {"features": np.ones(40)}, "features' must have 2 dimension"),
        ({}, {"features": np.ones((40, 0))}, "features' must have 2 dimension"),
        ({"metric": "precomputed"}, {}, "features' must be square.*not of shape"),
        (
            {"metric": "precomputed"},
            {"features": -np.eye(40)},
            "'features' must hold costs of at least 0.*Pass metric='similarity'",
        ),
        ({}, {"features": Gram(np.ones((40, 3)))}, "features.pool' must be square"),
        ({"method": "colm"}, {"features": Gram(np.eye(40))}, "needs the features themselves"),
        ({"method": "random"}, dict.fromkeys(everything()), "Pass features, losses or sources"),
        (
            {"keep": 21},
            {"features": np.where(np.arange(40) < 20, np.nan, pool().T).T},
            "20 of 40 examples can be used for keep=21",
        ),
        (
            {"mode": "source", "keep": 8, "budgets": {"a": 2, "b": 6}},
            {"sources": ["a"] * 35 + ["b"] * 5},
            "'b' must lie between 0 .* and 5 .*Got 6",
        ),
        (
            {"mode": "source", "keep": 5, "keep_small": 4},
            {"sources": ["a"] * 4 + ["b"] * 4 + ["c"] * 32},
            "Lower keep_small or raise keep",
        ),
    ],
)
def test_bad_arguments_are_refused(
    options: dict[str, Any], change: dict[str, Any], match: str | None
) -> None:
    selector = BatchSelector(**{"keep": 10, **options})
    given = {**everything(), **change}
    if match is None:  # NumPy turns numbers beside texts into texts
        assert len(selector(**given)) == 10
        return
    with pytest.raises(UniprotoError, match=match):
        selector(**given)
    assert selector.last is None


def test_costs_that_are_negative_by_rounding_alone_are_taken() -> None:
    costs = reference_costs(pool(), "cosine")
    costs[0, 0] = -1e-16
    chosen = BatchSelector("greedy", "batch", 9, metric="precomputed")(costs)
    assert chosen.tolist() == uniprot(costs, 9, integer_masses(9, 40))[0]
    entropic = Greedy(plan=Entropic(iterations=5))
    assert len(BatchSelector(entropic, "batch", 9, metric="precomputed")(costs)) == 9


@pytest.mark.parametrize("metric", ["dot", "euclidean", "cosine"])
def test_no_choice_costs_less_than_the_bound(metric: str) -> None:
    features = pool(10, 3, seed=5)
    selector = BatchSelector("uniproto", "batch", 4, metric=metric)
    selector(features)
    record = selector.last
    assert record is not None
    costs = reference_costs(features.astype(np.float64), metric)
    masses = integer_masses(4, 10)
    every = [transport_cost(costs, list(rows), masses) for rows in combinations(range(10), 4)]
    assert record.least_cost <= min(every) + 1e-9
    assert record.share_of_possible <= 1
