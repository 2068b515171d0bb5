"""All but a few of the rows must be those chosen before: search, proof and bound against trying
every set of rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from tests.bounds import weights_of

from uniproto import UniProto
from uniproto.algorithm import transport_cost
from uniproto.certificate.ascent import certify
from uniproto.certificate.bound import proven_bound
from uniproto.methods.search.prove import prove
from uniproto.problem.groups import SourceLimits
from uniproto.problem.keep import keep_all_but
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget
from uniproto.select import run_method
from uniproto.transport.prototypes import transport

WEIGHTS = ["uniform", "uneven", "heavy", "zeros"]


def small_problem(seed: int) -> tuple[Problem, SourceLimits]:
    """A problem of few sets, and a rule that some of them obey."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.integers(*ends)) for ends in ((5, 12), (4, 15), (1, 5)))
    source, target = rng.normal(size=(m, 2)), rng.normal(size=(n, 2)) + rng.normal(size=2)
    same = seed % 3 == 0
    weights = weights_of(WEIGHTS[seed % 4], rng, m if same else n)
    old = rng.permutation(m)[: int(rng.integers(1, k + 2))]
    changes = int(rng.integers(max(0, k - len(old)), k + 1))
    options = {"exclude": [int(np.setdiff1d(np.arange(m), old)[0])]} if seed % 5 == 0 else {}
    if seed % 7 == 0:
        options["include"] = [int(old[0])]
    metric = ("euclidean", "sqeuclidean", "l1")[seed % 3]
    problem = Problem(
        source, None if same else target, metric=metric, target_weights=weights, **options
    )
    return problem.with_k(k), keep_all_but(changes, old, k, m)


def least_cost(problem: Problem, keep: SourceLimits) -> float:
    """The lowest cost of any rows under the rule, by trying them all."""
    costs = problem.costs.exact_block(slice(None))
    free = problem.k - len(problem.initial)
    sets = (
        [*problem.initial.tolist(), *rows]
        for rows in combinations(problem.candidates.tolist(), free)
    )
    allowed = (rows for rows in sets if not keep.broken(np.array(rows)))
    return min(transport_cost(costs, rows, problem.masses) for rows in allowed)


@pytest.mark.parametrize("seed", range(200))
def test_search_proof_and_bound_under_the_rule(seed):
    problem, keep = small_problem(seed)
    least, problem = least_cost(problem, keep), problem.changed(keep=keep)
    found = run_method(problem, UniProto(), progress=False)
    assert not keep.broken(found.indices)
    assert found.cost == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert found.details.proven[1] <= least * (1 + 1e-12)
    solved = transport(problem, found.indices)
    assert proven_bound(problem, solved.prices) <= least * (1 + 1e-12)
    if seed % 4 == 0:
        best = certify(problem, found.cost, solved.prices, rows=found.indices, plan=solved.plan)
        assert best.lower_bound <= least * (1 + 1e-12)


def test_a_bound_under_the_rule_is_higher_than_one_without():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.normal(size=(150, 2)), rng.normal(size=(150, 2)) + 4])
    problem, old = Problem(points).with_k(10), np.arange(10)
    bounds = []
    for keep in (None, *(keep_all_but(changes, old, 10, 300) for changes in (3, 1, 0))):
        asked = problem.changed(keep=keep)
        found = run_method(asked, UniProto(), progress=False)
        bounds.append(found.certify().lower_bound / found.cost)
        assert bounds[-1] <= 1
        problem_bound = found.certificate.lower_bound
        assert problem_bound <= found.cost
    assert min(bounds) > 0.9  # of costs that differ by more than half


def test_rows_that_break_the_rule_prove_nothing():
    problem, keep = small_problem(1)
    found = run_method(problem.changed(keep=keep), UniProto(), progress=False)
    proof = prove(problem.changed(keep=keep), found.indices, Budget())
    assert proof is not None
    assert proof.least <= found.cost
