"""The search for prices if each prototype represents many targets.

A step over all rows would cost m · n distances. So steps use a few thousand candidate rows and all
targets (`smoothed_ascent.py`); then other rows are evaluated, those that undercut the candidates
are added, and the steps continue. The last pass evaluates every row, which makes the bound valid.
With very many targets, a search against a sample comes first (`Sample`); it shows which rows are
likely to undercut the candidates, and only these are evaluated until the bound stops rising, or the
last pass has to begin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.bound import Quota, admissible_rows
from uniproto.certificate.candidate_lists import build_lists, most_rows
from uniproto.certificate.gpu_rows import gpu_rows
from uniproto.certificate.row_bounds import RowBounds
from uniproto.certificate.smoothed_ascent import Climbed, Motion, Pace, ascend, sum_of_smallest
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import working_time
from uniproto.runtime.progress import Progress

_CANDIDATES = 2500  # initial rows, or _PER_PROTOTYPE for each prototype
_PER_PROTOTYPE = 6
_LOOKED_AT = 4  # rows evaluated between rounds, per candidate
_FIRST_ROUNDS = 3
_JOINING = 4  # candidates per row that may be added in a round
_UNDERCUT = 0.01  # of the cost: how far above the last summed value an added row may be
_STRIDE, _TEMPERATURE = 0.05, 0.01  # of the first round, as shares of the local cost scale
_COOLED = 0.7  # factor on both after each round
_FIRST_STEPS, _STEPS = 60, 100
_MOST_ROUNDS = 10
_LEAST_RISE = 3e-4  # of the cost: a round that raises the bound by less is the last
_RAISED = 0.85  # of the cost: prices that prove this much come from an earlier search
_STEPS_SHARE = 0.5  # the least share of the time limit for steps
_SAMPLE_SHARE = 0.35  # the most of the time limit for a search against a sample of targets
_SAMPLE_ROUNDS, _SAMPLE_ROUNDS_ON_GPU = 5, 15
_STEPS_AFTER_SAMPLE = 80  # on a CPU, where they are slow
_AFTER_SAMPLE = 3  # the round to continue with, as prices of a sample are close to the best
_LOW = 0.05  # of the cost: candidates of the sample further above the others are dropped
_SPARE = 1.1  # factor on the estimated time of the last pass over every row
_WELL_ABOVE = 0.1  # of the cost: rows with values this far above are bounded less closely
# Rows from which the time for all is estimated.
_TIMED, _TIMED_IN_GROUPS, _TIMED_ON_GPU = 256, 1024, 8192
_LONGER = 1.5  # of the time a pass had taken when cut short: the least it needs
_SEED = 0


@dataclass(frozen=True)
class AscentStart:
    """Where a search begins: at the best of these prices, with these rows among its candidates.

    `scale` is the size of the costs around each target. After a sample, `candidates` are places
    of more rows, and `likely` all places, those of rows that may undercut them first, if known.
    """

    prices: tuple[NDArray[np.float64], ...]
    scale: NDArray[np.float64]
    rows: NDArray[np.intp]
    candidates: NDArray[np.intp] | None = None
    likely: NDArray[np.intp] | None = None


@dataclass(frozen=True)
class FoundPrices:
    """Prices, a bound from below of every row's value at them, and how the search ended.

    `total` is k times the bound that these prove, but for the rounding of sums. Where time was up
    before the last look at every row was done, `look` is about how many seconds it takes.
    """

    prices: NDArray[np.float64]
    values: NDArray[np.float64]
    total: float
    steps: int
    converged: bool
    look: float | None = None


def search(
    problem: Problem, cost: float, start: AscentStart, deadline: float, progress: Progress
) -> FoundPrices:
    """Raise the bound from these prices until it no longer rises, or the time is up."""
    begin, sample = working_time(), sample_of(problem)
    if sample is not None:
        until = begin + _SAMPLE_SHARE * (deadline - begin)
        start = _after_sample(problem, cost, start, sample, until, progress)
    last = 2 * deadline - begin  # a pass over every row may still follow
    return _PriceSearch(problem, cost, start, deadline, last, progress).run()


def _after_sample(
    problem: Problem,
    cost: float,
    start: AscentStart,
    sample: Sample,
    until: float,
    progress: Progress,
) -> AscentStart:
    """Where to begin once a sample of the targets has been searched.

    Prices of an earlier search have nothing to learn from it.
    """
    part = replace(
        start,
        prices=tuple(prices[sample.targets] for prices in start.prices),
        scale=start.scale[sample.targets],
    )
    search = _PriceSearch(sample.problem, cost, part, until, 2 * until - working_time(), progress)
    if search.raised:
        return start
    found = search.run(_SAMPLE_ROUNDS if search.bounds.gpu is None else _SAMPLE_ROUNDS_ON_GPU)
    values = found.values[search.candidates]
    last = min(problem.k, len(values)) - 1  # of the rows that the bound sums
    low = values <= np.partition(values, last)[last] + _LOW * cost
    return replace(
        start,
        prices=(spread(problem, sample, found.prices, start.prices[0], cost),),
        candidates=search.candidates[low],
        likely=None if found.total == -np.inf else np.argsort(found.values, kind="stable"),
    )


class _PriceSearch:
    """Steps end at the deadline; a first look at every row, to make them a proof, at the last."""

    def __init__(
        self,
        problem: Problem,
        cost: float,
        start: AscentStart,
        deadline: float,
        last: float,
        progress: Progress,
    ) -> None:
        self.problem, self.cost, self.start = problem, cost, start
        self.deadline, self.last, self.progress = deadline, last, progress
        self.begun = working_time()
        self.rows, self.quotas = admissible_rows(problem)
        self.capacity = problem.masses.offer / problem.masses.need
        self.bounds = RowBounds(problem, self.rows)
        self.draw = np.random.default_rng(_SEED)
        self.motion = Motion(problem.n)
        self.most = most_rows(problem, self.bounds.gpu)
        self.unguided = start.candidates is None
        self.candidates = self._first_candidates()
        self.few = len(self.rows) <= _LOOKED_AT * len(self.candidates)
        self.look: float | None = None  # the time for the last pass over every row
        self.prices, likely, self.seconds, self.seconds_to_bounds = self._begin()
        self.raised = self.unguided and likely > _RAISED * problem.k * cost

    def run(self, most_rounds: int = _MOST_ROUNDS) -> FoundPrices:
        prices, seconds, steps = self.prices, self.seconds, 0
        rounds = range(0 if self.unguided else _AFTER_SAMPLE, most_rounds)
        best = FoundPrices(prices, np.full(len(self.rows), -np.inf), -np.inf, 0, False)
        if self.raised:  # large steps would move away from the best prices
            whole = self._look_at_all(prices, np.inf, self.last)
            best, rounds = self._found(prices, 0), range(_FIRST_ROUNDS, most_rounds)
            if not whole:
                return replace(best, look=self.look)
        little = _LEAST_RISE * self.problem.k * self.cost
        before = best.total  # k times the bound, by the last rows that decide it
        for number in rounds:
            begin = working_time()
            until = self._until(seconds)
            climbed = self._climb(prices, number, until)
            prices, steps = climbed.prices, steps + climbed.steps
            now = working_time()
            half = (now - begin) / 2  # no time for that: no time even for a short round
            late = now + half > until
            # Only to save work: values above it get a valid but looser bound.
            level = max(climbed.levels) + _WELL_ABOVE * self.cost
            if number < most_rounds - 1 and self._some_will_do(number) and not late:
                total = self._look_at_some(climbed, level)
                if total is None:  # they do not decide it
                    continue
                if max(climbed.total - total, total - before) > little:
                    before = total
                    continue
            begin = working_time()
            first = best.total == -np.inf  # without it there is no bound
            whole = self._look_at_all(prices, level, self.last if first else self.deadline)
            seconds = max(seconds / 2, working_time() - begin)
            found = self._found(prices, steps)
            risen = max(climbed.total - found.total, found.total - before)
            settled = risen <= little and not late
            best = found if found.total > best.total else best
            before = best.total
            self._join(climbed.levels, np.arange(len(self.rows)))
            late = late and working_time() + half > self._until(seconds)  # or the pass was quick
            if settled or late or not whole:
                return replace(best, steps=steps, converged=settled, look=self.look)
        return replace(best, steps=steps, look=self.look)

    def _some_will_do(self, number: int) -> bool:
        """Whether a look at some rows may follow the climb, and one at every row only later.

        The first rows to join are found anywhere; after a sample it is known where most are.
        """
        return not self.few and (number < _FIRST_ROUNDS or not self.unguided)

    def _look_at_some(self, climbed: Climbed, level: float) -> float | None:
        """Let some rows join that undercut the candidates.

        Where they are the likely ones: k times the bound by these and the candidates.
        """
        prices, count = climbed.prices, _LOOKED_AT * len(self.candidates)
        if self.start.likely is None:
            places = self.bounds.sample(self.draw, count)
        else:
            places = np.union1d(self.candidates, self.start.likely[:count])
        self.bounds.update(prices, places, level)
        self._join(climbed.levels, places)
        if self.start.likely is None:
            return None
        total = sum_of_smallest(self.bounds.values[places], _among(self.quotas, places))
        return total - float(self.capacity @ prices)

    def _until(self, seconds: float) -> float:
        """When steps must end, for a look at every row to follow in time.

        Without steps a look would be worth little, so they get a share of the time in any case,
        but for what it takes until every row has a bound: without that there is none.
        """
        if self.deadline == np.inf:
            return self.deadline
        least = self.begun + _STEPS_SHARE * (self.deadline - self.begun)
        until = max(self.deadline - _SPARE * seconds, least)
        return min(until, self.last - _SPARE * self.seconds_to_bounds)

    def _begin(self) -> tuple[NDArray[np.float64], float, float, float]:
        """The prices to begin at, and k times their bound by some rows.

        Also the time for all rows, and the time until each has a bound, which may not be close.
        """
        count = _TIMED if self.bounds.groups is None else _TIMED_IN_GROUPS
        count = count if self.bounds.gpu is None else _TIMED_ON_GPU
        in_hand = np.flatnonzero(np.isin(self.rows, self.start.rows))
        some = self.bounds.sample(self.draw, count)
        places = np.union1d(in_hand, some)
        prices, best, seconds = self.start.prices[0], -np.inf, 0.0
        self.bounds.update(prices, some[: len(some) // 8])  # compiles, which is not timed
        to_bounds = 0.0
        if self.bounds.groups is not None:
            to_bounds = self._timed(prices, self.bounds.sample(self.draw, count), -np.inf)
        for each in self.start.prices:
            self.bounds.update(each, in_hand)
            # Most rows are above the current ones, and need no tight bound.
            highest = self.bounds.values[in_hand].max() if len(in_hand) else np.inf
            took = self._timed(each, some, highest + _WELL_ABOVE * self.cost)
            seconds = max(seconds, took)
            quotas = _among(self.quotas, places)
            if any(len(quota.free) < quota.count for quota in quotas):
                continue
            total = sum_of_smallest(self.bounds.values[places], quotas)
            total -= float(self.capacity @ each)
            if total > best:
                prices, best = each, total
        return prices, best, seconds, seconds if self.bounds.groups is None else to_bounds

    def _timed(self, prices: NDArray[np.float64], places: NDArray[np.intp], level: float) -> float:
        """The estimated time for every row, from the rows at these positions."""
        begin = working_time()
        self.bounds.update(prices, places, level)
        return (working_time() - begin) / self.bounds.share_of(places)

    def _found(self, prices: NDArray[np.float64], steps: int) -> FoundPrices:
        values = self.bounds.values.copy()
        total = sum_of_smallest(values, self.quotas) - float(self.capacity @ prices)
        return FoundPrices(prices, values, total, steps, False)

    def _climb(self, prices: NDArray[np.float64], number: int, until: float) -> Climbed:
        """Steps against the candidates only, smaller in each round."""
        lists = build_lists(self.bounds, self.candidates, prices)
        steps = _STEPS
        if not self.unguided and self.bounds.gpu is None:
            steps = _STEPS_AFTER_SAMPLE
        elif self.unguided and number < _FIRST_ROUNDS:
            steps = _FIRST_STEPS
        cooled = _COOLED**number
        pace = Pace(steps, cooled * _STRIDE, cooled * _TEMPERATURE, _COOLED)
        scale = np.maximum(self.start.scale, 1e-3 * self.cost)
        scales = lists.averages(scale, prices), scale
        with self.progress.stage("certificate: raising the bound", pace.steps) as advance:
            return ascend(
                lists,
                _among(self.quotas, self.candidates),
                prices,
                self.capacity,
                scales,
                self.motion,
                pace,
                until,
                advance,
            )

    def _look_at_all(self, prices: NDArray[np.float64], level: float, until: float) -> bool:
        begin, unknown = working_time(), np.isneginf(self.bounds.values).sum()
        with self.progress.stage("certificate: every row", len(self.rows)) as advance:
            whole = self.bounds.update(prices, None, level, until, advance)
        passed, left = working_time() - begin, np.isneginf(self.bounds.values).sum()
        self.look = None if whole else max(self.seconds, _LONGER * passed)
        if 0 < left < unknown and self.bounds.groups is None:  # all rows take equally long
            self.look = passed * unknown / (unknown - left)
        return whole

    def _first_candidates(self) -> NDArray[np.intp]:
        """Positions of included rows, of the prototypes and of random rows of each quota."""
        wanted = min(max(_CANDIDATES, _PER_PROTOTYPE * self.problem.k), self.most)
        in_hand = np.isin(self.rows, self.start.rows)
        parts = [np.flatnonzero(in_hand)]
        if self.start.candidates is not None:
            given = [quota.given for quota in self.quotas]
            return np.unique(np.concatenate([*parts, *given, self.start.candidates[: self.most]]))
        for quota in self.quotas:
            share = -(-wanted * len(quota.free) // len(self.rows))
            count = max(share, min(2 * quota.count, len(quota.free)))
            parts += [quota.given, self.draw.permutation(quota.free)[:count]]
        return np.unique(np.concatenate(parts))

    def _join(self, levels: list[float], places: NDArray[np.intp]) -> None:
        """Add rows at these positions that undercut the candidates, the lowest first."""
        values, room = self.bounds.values, max(0, self.most - len(self.candidates))
        room = min(room, len(self.candidates) // _JOINING)
        others = np.zeros(len(self.rows), bool)
        others[places] = True
        others[self.candidates] = False
        joining = [self.candidates[:0]]
        for quota, level in zip(self.quotas, levels, strict=True):
            free = quota.free[others[quota.free]]
            joining.append(free[values[free] < level + _UNDERCUT * self.cost])
        new = np.concatenate(joining)
        new = new[np.argsort(values[new], kind="stable")[:room]]
        self.candidates = np.union1d(self.candidates, new)


def _among(quotas: list[Quota], candidates: NDArray[np.intp]) -> list[Quota]:
    """The quotas by positions in the list of candidates, which has all given rows."""
    found = []
    for quota in quotas:
        given = np.searchsorted(candidates, quota.given)
        free = np.flatnonzero(np.isin(candidates, quota.free, assume_unique=True))
        found.append(replace(quota, given=given, free=free))
    return found


# --- a search against a sample of the targets -----------------------------------------------------
# If a prototype represents thousands of targets, a few hundred of them suffice to find the rows
# that undercut the others, at a fraction of the work. Prices of the sample overfit: against all
# targets they prove less. But a few steps correct them, and the rows found are those that the steps
# need.


_SAMPLED, _SAMPLED_EACH = 20_000, 400  # targets of a sample
_WORTH = 3  # targets per sampled one, below which a sample saves nothing
_MOST_FEATURES = 10  # for which a tree finds neighbours quickly
_NEIGHBOURS = 8


@dataclass(frozen=True)
class Sample:
    """The problem against a sample of its targets, with all rows."""

    problem: Problem
    targets: NDArray[np.intp]


def sample_of(problem: Problem) -> Sample | None:
    """A sample, or None if it would not save work."""
    size = max(_SAMPLED, _SAMPLED_EACH * problem.k)
    if problem.n < _WORTH * size or problem.groups or not _has_neighbours(problem):
        return None
    targets, share = problem.drawn_targets(size, np.random.default_rng(_SEED))
    return Sample(problem.among(np.arange(problem.m), targets, share), targets)


def spread(
    problem: Problem,
    sample: Sample,
    found: NDArray[np.float64],
    before: NDArray[np.float64],
    scale: float,
) -> NDArray[np.float64]:
    """Prices of all targets, at least 0: the earlier ones plus interpolated changes of the sample.

    Nearer neighbours in the sample have larger weights; `scale` is the size of costs.
    """
    distances, neighbours = _neighbours(problem, sample.targets)
    weights = 1 / (distances + 1e-3 * scale)
    changes = (found - before[sample.targets])[neighbours]
    prices = before + (changes * weights).sum(axis=1) / weights.sum(axis=1)
    return np.asarray(prices - prices.min())


def _has_neighbours(problem: Problem) -> bool:
    """Whether nearest neighbours among targets can be found quickly."""
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
    """The nearest of these targets to every target, with distances of features."""
    gpu = gpu_rows(problem)
    if gpu is not None:
        return gpu.nearest_targets(targets, _NEIGHBOURS)
    from scipy.spatial import KDTree

    assert isinstance(problem.costs, FeatureCosts)
    features = problem.costs.target
    return KDTree(features[targets]).query(features, _NEIGHBOURS, workers=-1)
