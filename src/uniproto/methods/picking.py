"""What greedy methods share: the pool of free candidates, and the loop that adds the best one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import FEATURE_METRICS, Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.twins import TwinFinder
from uniproto.methods.contract import Picks
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


def need_features(problem: Problem, method: str) -> FeatureCosts:
    """The problem's feature rows; a matrix of costs alone is refused."""
    if isinstance(problem.costs, FeatureCosts):
        return problem.costs
    raise InvalidInputError(
        f"'metric' must be one of {', '.join(FEATURE_METRICS)} for method={method!r}, which works "
        "on feature rows. For costs, use 'uniproto', 'kmedoids', 'facility_location' or 'kcenter'."
    )


def need_one_set(problem: Problem, method: str) -> None:
    """Refuse a target that is not the source itself."""
    if not (problem.same_set or _is_distance_matrix(problem.costs)):
        raise InvalidInputError(
            f"'target' must be the source itself for method={method!r} (a matrix: square, "
            "symmetric, zero diagonal). Leave it out, or use method='kmedoids'."
        )


def _is_distance_matrix(costs: Costs) -> bool:
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


class Pool:
    """Rows that may still be chosen. Positions count the problem's candidates from 0.

    A pick rules out its near-duplicates and, where sources have limits, rows of other sources.
    With `lazy` near-duplicates are told only when they are about to be picked: `admits`.
    """

    def __init__(
        self,
        problem: Problem,
        sample_size: Callable[[int, int], int] | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        self.problem = problem
        self.rows = problem.candidates
        self.free = np.ones(len(self.rows), np.bool_)
        self.sampled = sample_size is not None
        self._size = sample_size(len(self.rows), problem.k) if sample_size else len(self.rows)
        self._random = np.random.default_rng(problem.seed)
        self._left = problem.k
        self._chosen: TwinFinder | None = None
        if lazy and problem.twin_distance is not None:
            self._chosen = problem.costs.twin_finder(problem.twin_distance)
        self._limits = None if problem.limits is None else LimitedSources(problem)
        for row in problem.initial:
            self._note(int(row))
        if self._limits is not None:
            self.free[self._limits.closed(self._left)] = False

    @property
    def thinning(self) -> bool:
        """Whether a pick can rule out other candidates."""
        return self.problem.twin_distance is not None or self._limits is not None

    def positions(self) -> NDArray[np.intp]:
        """What to look at now, ascending: every free row, or a fresh random sample of them."""
        free = np.flatnonzero(self.free)
        if self.sampled and len(free) > self._size:
            free = np.sort(self._random.choice(free, self._size, replace=False))
        return free

    def admits(self, position: int) -> bool:
        """Whether a row may be picked; one that is a near-duplicate of a pick never may again."""
        if self._chosen is not None and self._chosen.has_twin_of(int(self.rows[position])):
            self.free[position] = False
        return bool(self.free[position])

    def take(self, position: int) -> NDArray[np.intp]:
        """Note a pick; returns the positions it rules out, itself among them."""
        row = int(self.rows[position])
        ruled_out = np.append(self._note(row), position)
        if self._limits is not None:
            ruled_out = np.append(ruled_out, self._limits.closed(self._left))
        self.free[ruled_out] = False
        return ruled_out

    def _note(self, row: int) -> NDArray[np.intp]:
        """Count a row as chosen; returns the positions of its near-duplicates, unless lazy."""
        self._left -= 1
        if self._limits is not None:
            self._limits.count(row)
        if self._chosen is not None:
            self._chosen.note(row)
            return np.empty(0, np.intp)
        twins = self.problem.twins(row)
        self.free[twins] = False
        return twins

    def require_free(self) -> None:
        """Refuse to go on when near-duplicates have used up the pool."""
        if not self.free.any():
            raise self.problem.too_few_distinct(self.problem.k - self._left)


class LimitedSources:
    """How many rows each source may and must still give."""

    def __init__(self, problem: Problem) -> None:
        assert problem.limits is not None
        limits = problem.limits
        self._source_of_row = limits.source_of_row
        self._sources = limits.source_of_row[problem.candidates]
        self._may, self._must = limits.most.copy(), limits.least.copy()
        self._open = np.ones(len(limits.names), np.bool_)

    def count(self, row: int) -> None:
        source = self._source_of_row[row]
        self._may[source] -= 1
        self._must[source] -= self._must[source] > 0

    def closed(self, left: int) -> NDArray[np.intp]:
        """Positions of the sources that may give nothing more, as far as that is news."""
        still_open = self._open & (self._may > 0)
        if self._must.sum() >= left:  # every pick that is left is owed to some source
            still_open &= self._must > 0
        news = self._open & ~still_open
        self._open = still_open
        return np.flatnonzero(news[self._sources]) if news.any() else np.empty(0, np.intp)


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
