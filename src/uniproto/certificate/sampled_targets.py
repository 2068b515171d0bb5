"""A search against a sample of the targets first, and what its prices say of all of them.

Where a prototype represents thousands of targets, a few hundred of them tell which rows undercut
the others, at a fraction of the work. Prices of the sample alone are too good for it: against all
targets they prove less. But they are a beginning that few steps mend, and the rows that the sample
has found are those that the steps must look at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.gpu_rows import gpu_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem

_FEWEST, _PER_PROTOTYPE = 20_000, 400  # targets of a sample
_WORTH = 3  # times as many targets: below, a sample saves nothing
_MOST_FEATURES = 10  # of neighbours that a tree finds quickly
_NEIGHBOURS = 8
_SEED = 0


@dataclass(frozen=True)
class Sample:
    """The problem against some of its targets, and which these are; all rows are in it."""

    problem: Problem
    targets: NDArray[np.intp]


def sample_of(problem: Problem) -> Sample | None:
    """A sample worth beginning with, or None."""
    size = max(_FEWEST, _PER_PROTOTYPE * problem.k)
    if problem.n < _WORTH * size or problem.groups or not _has_neighbours(problem):
        return None
    draw = np.random.default_rng(_SEED)
    weights, share = problem.target_weights, None
    if weights is None:
        targets = np.sort(draw.permutation(problem.n)[:size])
    else:
        drawn = draw.choice(problem.n, size, p=weights / weights.sum())
        targets, counts = np.unique(drawn, return_counts=True)
        share = counts / counts.sum()
    return Sample(problem.among(np.arange(problem.m), targets, share), targets)


def spread(
    problem: Problem,
    sample: Sample,
    found: NDArray[np.float64],
    before: NDArray[np.float64],
    scale: float,
) -> NDArray[np.float64]:
    """Prices of all targets, at least 0: what they were before, and what the sample has changed.

    A target changes as its neighbours in the sample did, the nearest most; `scale` is the size of
    costs.
    """
    distances, neighbours = _neighbours(problem, sample.targets)
    weights = 1 / (distances + 1e-3 * scale)
    changes = (found - before[sample.targets])[neighbours]
    prices = before + (changes * weights).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(prices - prices.min())


def _has_neighbours(problem: Problem) -> bool:
    """Whether the nearest among some targets can be told quickly."""
    costs = problem.costs
    if gpu_rows(problem) is not None:
        return True
    return (
        isinstance(costs, FeatureCosts)
        and isinstance(costs.target, np.ndarray)
        and costs.target.shape[1] <= _MOST_FEATURES
    )


def _neighbours(
    problem: Problem, targets: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """The nearest of these targets to every target, and how far they are: distances of features."""
    gpu = gpu_rows(problem)
    if gpu is not None:
        return gpu.nearest_targets(targets, _NEIGHBOURS)
    from scipy.spatial import KDTree

    assert isinstance(problem.costs, FeatureCosts)
    features = problem.costs.target
    return KDTree(features[targets]).query(features, _NEIGHBOURS, workers=-1)
