"""k-means on the target, each centre replaced by the nearest source row."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InfeasibleError
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk, narrow_indices
from uniproto.methods.contract import Picks
from uniproto.methods.picking import first_best, library_seed, need_features
from uniproto.problem.allowed import Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class KMeansNearest:
    """k-means centres of the target, then argmin_i |x_i − centre| over the unused source rows.

    scikit-learn minimises Σ_j ν_j min_c |y_j − centre_c|² over k centres. Each row of `include`
    replaces the centre nearest to it; the others, from the heaviest cluster to the lightest,
    take the nearest free row. The learned weights are the target mass of the clusters. Distances
    are Euclidean, between unit rows where the metric is cosine. Needs features and at least k
    targets of positive weight; all centres are found together, so gains are 0.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [2.0], [9.0]], k=2, metric="euclidean",
    ...                       method="kmeans")
    >>> sel.indices, sel.weights
    (array([1, 3]), array([0.75, 0.25]))

    Reference: Arthur, Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.
    """

    name: ClassVar[str] = "kmeans"

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        costs = need_features(problem, self.name)
        self.check(problem)
        centres, masses, inertia = _fit(problem, costs.target)
        distances = FeatureCosts(centres, costs.source, "sqeuclidean")
        slack = 2 * float(np.finfo(distances.dtype).eps) * distances.ceiling
        pool = Pool(problem)
        rows = problem.initial.tolist()
        used = _nearest_centres(distances.block(EVERY, problem.initial))
        heaviest_first = np.argsort(-masses, kind="stable")
        left = heaviest_first[~np.isin(heaviest_first, used)]
        for part in row_blocks(len(left), problem.m):
            for to_source in distances.block(left[part])[:, pool.rows]:
                pool.require_free()
                position = first_best(np.where(pool.free, -to_source, -np.inf), slack)
                pool.take(position)
                rows.append(int(pool.rows[position]))
        return Picks(
            np.array(rows, np.intp),
            np.zeros(problem.k),
            masses[np.concatenate([used, left])],
            notes={"inertia": inertia},
        )

    def check(self, problem: Problem) -> None:
        """Refuse more centres than there are targets."""
        present = np.count_nonzero(problem.masses.weights > 0)
        if present < problem.k:
            raise InfeasibleError(
                f"must not exceed the {present} targets of positive weight with method='kmeans' "
                f"(got {problem.k}). Lower it, or use another method.",
                parameter="k",
            )


def _fit(problem: Problem, target: Any) -> tuple[Any, NDArray[np.float64], float]:
    """The centres, the target mass of each, and Σ_j ν_j |y_j − centre|²."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    weights = problem.masses.weights
    present = np.flatnonzero(weights > 0)
    if isinstance(target, RowsOnDisk):
        require_memory(
            len(present) * target.shape[1] * target.dtype.itemsize,
            problem.memory,
            "method='kmeans' reads all target rows into memory",
            "Use method='kmedoids', which leaves them on disk, or a sample of the target.",
        )
        weights, target = weights[present], target[present]
    elif len(present) < len(weights):
        weights, target = weights[present], target[present]
    if sp.issparse(target):
        target = narrow_indices(target)
    model = KMeans(problem.k, random_state=library_seed(problem))
    # scikit-learn has threads of its own, which those of the matrix library would only disturb.
    with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
        # Fewer different targets than centres: a repeated centre takes its next nearest row.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(target, sample_weight=weights * len(weights))
    centres = model.cluster_centers_.astype(target.dtype, copy=False)
    if sp.issparse(target):
        centres = sp.csr_matrix(centres)
    masses = np.bincount(model.labels_, weights, minlength=problem.k).astype(np.float64)
    return centres, masses, float(model.inertia_ / len(weights))


def _nearest_centres(distances: NDArray[Any]) -> NDArray[np.intp]:
    """For each column in turn, the nearest centre no earlier column has."""
    used: list[int] = []
    for column in distances.T.astype(np.float64):
        column[used] = np.inf
        used.append(int(np.argmin(column)))
    return np.array(used, np.intp)
