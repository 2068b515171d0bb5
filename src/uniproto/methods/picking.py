"""What greedy methods share: the loop that adds the best free candidate, and nearest rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import FEATURE_METRICS, Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Picks
from uniproto.problem.allowed import Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


def need_features(problem: Problem, method: str) -> FeatureCosts:
    """The problem's feature rows; a matrix of costs alone is refused."""
    if isinstance(problem.costs, FeatureCosts):
        return problem.costs
    raise InvalidInputError(
        f"must be one of {', '.join(FEATURE_METRICS)} for method={method!r}, which works "
        "on feature rows. For costs, use 'uniproto', 'kmedoids', 'facility_location' or 'kcenter'.",
        parameter="metric",
    )


def need_one_set(problem: Problem, method: str) -> None:
    """Refuse a target that is not the source itself."""
    if not (problem.same_set or is_distance_matrix(problem.costs)):
        raise InvalidInputError(
            f"must be the source itself for method={method!r} (a matrix: square, "
            "symmetric, zero diagonal). Leave it out, or use method='kmedoids'.",
            parameter="target",
        )


def is_distance_matrix(costs: Costs) -> bool:
    """Whether a matrix is square and symmetric with a zero diagonal, up to rounding."""
    m, n = costs.shape
    if m != n or isinstance(costs, FeatureCosts):
        return False
    tolerance = 4 * np.sqrt(np.finfo(costs.dtype).eps) * costs.ceiling
    for part in row_blocks(m, n):
        block = costs.block(part)
        asymmetry = np.abs(block - costs.block(EVERY, part).T).max()
        if max(asymmetry, np.diagonal(block, part.start).max()) > tolerance:
            return False
    return True


def library_seed(problem: Problem) -> int:
    """The problem's seed as the 32-bit number other libraries take."""
    return int(np.random.default_rng(problem.seed).integers(2**31))


def nearest_rows(
    costs: Costs,
    rows: NDArray[np.intp],
    targets: NDArray[np.intp],
    length: int,
    progress: Progress,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The `length` of these rows that are nearest to each target, nearest first, and their costs.

    Equal ones come in the order of the rows.
    """
    length = min(length, len(rows))
    near = np.empty((len(targets), length), np.intp)
    far = np.empty((len(targets), length))
    with progress.stage("nearest rows", len(targets)) as advance:
        for part in row_blocks(len(targets), len(rows)):
            block = costs.block(rows, targets[part]).T.astype(np.float64)
            found = np.argsort(block, axis=1, kind="stable")[:, :length]
            near[part] = rows[found]
            far[part] = np.take_along_axis(block, found, axis=1)
            advance(part.stop - part.start)
    return near, far


class Objective(Protocol):
    """What a greedy method climbs: a function of the prototypes added so far."""

    def best(self, free: NDArray[np.intp]) -> int:
        """The row of `free` (ascending, never empty) to add next; ties go to the lowest."""
        ...

    def add(self, row: int) -> float:
        """Add a prototype; returns what it added to the objective."""
        ...


def first_best(values: NDArray[Any], slack: float) -> int:
    """The first position whose value is the largest, or below it by rounding alone.

    Two rows can be equally good by symmetry, such as the two members of a cluster: which is
    taken must not hang on the last digit.

    >>> first_best(np.array([0.5, 1.0 - 1e-16, 1.0]), slack=1e-15)
    1
    """
    return int(np.argmax(values >= values.max() - slack))


def pick_in_order(
    problem: Problem,
    gains: NDArray[np.float64],
    order: NDArray[np.float64] | None = None,
    notes: dict[str, Any] | None = None,
) -> Picks:
    """The given prototypes, then the free rows from the highest value of `order` (or gain) down.

    Equal ones go to the lowest row.
    """
    values = gains if order is None else order
    pool = Pool(problem, lazy=True)
    rows: list[int] = problem.initial.tolist()
    for position in np.argsort(-values[pool.rows], kind="stable").tolist():
        if len(rows) == problem.k:
            break
        if pool.free[position] and pool.admits(position):
            pool.take(position)
            rows.append(int(pool.rows[position]))
    if len(rows) < problem.k:
        raise problem.too_few_distinct(len(rows))
    chosen = np.array(rows, np.intp)
    return Picks(chosen, gains[chosen].astype(np.float64), notes=notes or {})


def pick_greedily(
    problem: Problem, objective: Objective, progress: Progress
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The given prototypes, then the best free candidate until there are k: rows and gains."""
    from threadpoolctl import threadpool_limits

    pool = Pool(problem)
    rows: list[int] = problem.initial.tolist()
    # A pick is too little work to share among cores: waiting threads would cost more than they do.
    blas = threadpool_limits(limits=1, user_api="blas")
    with blas, progress.stage("picking", problem.k - len(rows)) as advance:
        gains = [objective.add(row) for row in rows]
        while len(rows) < problem.k:
            pool.require_free()
            row = objective.best(pool.rows[pool.free])
            pool.take(int(np.searchsorted(pool.rows, row)))
            rows.append(row)
            gains.append(objective.add(row))
            advance(1)
    return np.array(rows, np.intp), np.array(gains, np.float64)
