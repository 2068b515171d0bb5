"""The next cheapest fill, found lazily over neighbour lists: the picks of a scan of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.fills import fill_kernels as kernels
from uniproto.fills.list_memory import bytes_of_shortest_lists
from uniproto.geometry.cpu_lists import as_slice, nearest, rows_at_once
from uniproto.problem.masses import Masses
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SavedLists
from uniproto.runtime.progress import Advance, Progress, unseen
from uniproto.runtime.threads import available_cores, parallel_for, pieces_of

_SHORTEST_LIST = 32
_FEWEST_FILLS = 2
_ROWS_RECOMPUTED_TOGETHER, _SHARE_RECOMPUTED = 256, 32  # or a part of all rows
_ROWS_EVALUATED_TOGETHER = 1024
_PIECES_EACH = 8  # per core, if there are many rows
_FEWEST_ROWS_SAVED, _PIECES_SAVED = 256, 64  # of lists that are saved while they are built
_MORE_THAN_A_FILL = 1.25  # some of the nearest targets may be claimed
_GATHER_AGAIN = 0.9  # when the unclaimed targets are this share of those last gathered
# Sweep at this share of those of the last sweep; with more cores a sweep pays sooner.
_SWEEP_AGAIN = 0.25 ** (1 / available_cores())


def list_length(masses: Masses, fills: float = 8) -> int:
    """The number of nearest targets to list per row: those of about eight fills."""
    typical = float(np.median(masses.offer[masses.offer > 0]))
    return max(_SHORTEST_LIST, int(np.ceil(fills * masses.need / typical)))


def affordable_length(problem: Problem, rows: int) -> int:
    """The length of list that half of the memory holds for this many rows."""
    entry = bytes_of_shortest_lists(problem, rows)
    # With few prototypes, each fills from many targets: sorting long lists would take longer
    # than computing the costs.
    fills = min(problem.lists.fills, max(_FEWEST_FILLS, problem.k / 32))
    return min(list_length(problem.masses, fills), problem.memory // 2 // entry)


class LazyFills:
    """Fill costs of candidate rows against the unclaimed target mass, which only shrinks.

    Each row keeps a list of its nearest targets and the last known value of its fill cost. A row
    whose list runs out has a lower bound, and is recomputed in full only if that bound makes it
    the next best; such rows are recomputed together, against the unclaimed targets alone.
    """

    def __init__(
        self,
        problem: Problem,
        candidates: NDArray[np.intp],
        unclaimed: NDArray[Any],
        picks: int,
        progress: Progress | None = None,
        saved: SavedLists | None = None,
    ) -> None:
        """`saved` stores the lists while they are built, so that a killed run can resume."""
        self.problem, self.candidates = problem, candidates
        self.unclaimed, self.need = unclaimed, problem.masses.need
        self.recomputed = 0
        self._swept = int((unclaimed > 0).sum())  # targets unclaimed at the last sweep
        self._index = problem.lists.index(problem.costs)
        self._columns = np.arange(problem.n, dtype=np.int32)  # what it searches
        m, n = len(candidates), problem.n
        length = min(affordable_length(problem, m), self._swept)
        # If memory is too small for lists of a whole fill, they are still computed at that length.
        self._fill = int(_MORE_THAN_A_FILL * list_length(problem.masses, 1))
        self._lists = kernels.Lists(
            costs=np.empty((m, length), problem.costs.dtype),
            columns=np.empty((m, length), np.int32),
            prefix=np.zeros(m, np.int64),
            rest=np.zeros(m, np.int64),
            stop=np.zeros(m, np.int64),
            tail=np.zeros(m),
        )
        self._values = kernels.Values(
            cost=np.zeros(m),
            exact=np.zeros(m, np.bool_),
            moment=np.zeros(m, np.int64),
            alive=np.ones(m, np.bool_),
            keys=np.empty(m),
            rows=np.arange(m),
        )
        self._claims = kernels.Claims(
            picks=np.empty(picks, np.int64),
            costs=np.empty(picks),
            ends=np.empty(picks, np.int64),
            columns=np.empty(n + picks, np.int64),
            masses=np.empty(n + picks, np.int64),
        )
        self.picked = 0
        progress = progress or Progress(shown=False)
        with progress.stage("nearest targets", m) as advance:
            if saved is None:
                self._compute(np.arange(m), advance)
            else:
                self._compute_and_save(saved, advance)
        self._heap_size = m
        kernels.make_heap(self._values, np.arange(m))

    def _compute_and_save(self, saved: SavedLists, advance: Advance) -> None:
        """Read the saved lists; compute and save the others."""
        m = len(self.candidates)
        done = 0
        for first, arrays in saved.read(self._lists._asdict()):
            done = first + len(arrays["stop"])
            for name, values in arrays.items():
                getattr(self._lists, name)[first:done] = values
        self._evaluate(self._lists, np.arange(done), self._values.cost, self._values.exact)
        advance(done)
        unsaved = done
        for piece in pieces_of(m - done, max(_FEWEST_ROWS_SAVED, m // _PIECES_SAVED)):
            part = slice(done + piece.start, done + piece.stop)
            self._compute(np.arange(part.start, part.stop), advance)
            if saved.is_time():
                rows = slice(unsaved, part.stop)
                saved.write(
                    unsaved, {name: each[rows] for name, each in self._lists._asdict().items()}
                )
                unsaved = part.stop

    @property
    def picks(self) -> NDArray[np.int64]:
        """Positions (among the candidates) that `pick_and_claim` has picked, in order."""
        return self._claims.picks[: self.picked]

    @property
    def pick_costs(self) -> NDArray[np.float64]:
        """The fill cost of each of `picks`."""
        return self._claims.costs[: self.picked]

    @property
    def values(self) -> NDArray[np.float64]:
        """The last known fill cost of every candidate, a lower bound on the current one."""
        return self._values.cost

    def plan(self, first: int = 0) -> sp.csr_array:
        """The mass that `picks[first:]` claimed: a plan, though not always the cheapest."""
        ends = np.concatenate([[0], self._claims.ends[: self.picked]])[first:]
        part = slice(ends[0], ends[-1])
        shape = (len(ends) - 1, len(self.unclaimed))
        arrays = (self._claims.masses[part], self._claims.columns[part], ends - ends[0])
        return sp.csr_array(arrays, shape=shape)

    def pick_and_claim(self, last: int) -> None:
        """Pick until `last` rows are picked; each takes its fill out of `unclaimed`."""
        while self.picked < last:
            self.picked, self._heap_size, row = kernels.pick_and_claim(
                self._lists,
                self._values,
                self._heap_size,
                self.unclaimed,
                self.need,
                self._claims,
                self.picked,
                last,
            )
            if row >= 0:
                self._settle(row)

    def cheapest(self) -> tuple[int, float]:
        """The next pick and its fill cost, without claiming anything."""
        while True:
            row, self._heap_size = kernels.cheapest_row(
                self._lists, self._values, self._heap_size, self.picked, self.unclaimed, self.need
            )
            if self._values.exact[row]:
                return row, float(self._values.cost[row])
            self._recompute_with(row)

    def accept(self, row: int) -> None:
        """Note that the row from `cheapest` was picked and that `unclaimed` has been updated."""
        self._values.alive[row] = False
        self.picked += 1

    def forbid(self, rows: NDArray[np.intp]) -> None:
        """Rows (positions among the candidates) that may no longer be picked."""
        self._values.alive[rows] = False

    def _settle(self, row: int) -> None:
        """A row on top of the heap whose list ran out: compute it, or claim it in full."""
        if not self._values.exact[row]:
            self._recompute_with(row)
            return
        # The value is known, but the stored list is too short to claim from: read the whole row.
        _, order = nearest(self.problem.costs, self.candidates[row : row + 1], self.problem.n)
        offered = self.unclaimed[order[0]].astype(np.int64)
        left = np.maximum(self.need - np.cumsum(offered) + offered, 0)  # before each target
        taken = np.minimum(offered, left)
        used = np.flatnonzero(taken)
        first = self._claims.ends[self.picked - 1] if self.picked else 0
        end = first + len(used)
        self._claims.columns[first:end] = order[0, used]
        self._claims.masses[first:end] = taken[used]
        self.unclaimed[order[0]] -= taken.astype(self.unclaimed.dtype)
        self._claims.picks[self.picked] = row
        self._claims.costs[self.picked] = self._values.cost[row]
        self._claims.ends[self.picked] = end
        self.accept(row)

    def _recompute_with(self, row: int) -> None:
        """Recompute a row together with those most likely to need it next."""
        left = int((self.unclaimed > 0).sum())
        if left < _SWEEP_AGAIN * self._swept:
            self._sweep()
            self._swept = left
        together = max(_ROWS_RECOMPUTED_TOGETHER, len(self.candidates) // _SHARE_RECOMPUTED)
        waiting = self._waiting()
        if len(waiting) < together:  # the lists of rows that come next may have run out, too
            known = np.flatnonzero(self._values.alive & (self._values.moment < self.picked))
            if len(known) > together:
                known = known[np.argpartition(self._values.cost[known], together)[:together]]
            self._evaluate_again(known)
            waiting = self._waiting()
        if len(waiting) > together:
            likeliest = np.argpartition(self._values.cost[waiting], together)[:together]
            waiting = np.union1d(waiting[likeliest], [row])
        self._compute(waiting)
        self.recomputed += len(waiting)

    def _waiting(self) -> NDArray[np.intp]:
        """The rows whose lists ran out."""
        stale = ~self._values.exact
        if self._lists.columns.shape[1] < self._fill:  # useless after the next pick
            stale |= self._values.moment < self.picked
        return np.flatnonzero(stale & self._values.alive)

    def _sweep(self) -> None:
        """Evaluate every row on all cores, which leaves less serial work for the heap."""
        alive = np.flatnonzero(self._values.alive)
        self._evaluate_again(alive)
        self._heap_size = len(alive)
        kernels.make_heap(self._values, alive)

    def _evaluate_again(self, rows: NDArray[np.intp]) -> None:
        known = self._values.cost[rows]
        self._evaluate(self._lists, rows, self._values.cost, self._values.exact)
        bounds = ~self._values.exact[rows]  # may be weaker than the earlier bound
        self._values.cost[rows[bounds]] = np.maximum(self._values.cost[rows], known)[bounds]
        self._values.moment[rows] = self.picked

    def _evaluate(
        self,
        lists: kernels.Lists,
        rows: NDArray[np.intp],
        cost: NDArray[np.float64],
        exact: NDArray[np.bool_],
    ) -> None:
        def evaluate(piece: slice) -> None:
            kernels.fill_costs(lists, rows[piece], self.unclaimed, self.need, cost, exact)

        parallel_for(evaluate, _pieces(len(rows)))

    def _compute(self, rows: NDArray[np.intp], advance: Advance = unseen) -> None:
        """Exact fill costs and fresh lists of some rows, against the unclaimed targets alone."""
        unclaimed = np.flatnonzero(self.unclaimed > 0)
        # Gathering costs time, and targets claimed since the last one do no harm.
        if len(unclaimed) < _GATHER_AGAIN * len(self._columns):
            self._columns = unclaimed.astype(np.int32)
            self._index = self.problem.lists.index(self.problem.costs, unclaimed)
        self._compute_from(rows, max(self._fill, self._lists.columns.shape[1]), advance)

    def _compute_from(self, rows: NDArray[np.intp], length: int, advance: Advance = unseen) -> None:
        """`_compute` with lists of a given length, and longer ones where those are too short."""
        listed = min(length, len(self._columns))
        for piece in pieces_of(len(rows), rows_at_once(listed, self.problem.memory // 8)):
            short = self._compute_with(rows[piece], length, advance)
            self._compute_from(short, 4 * length)

    def _compute_with(
        self, rows: NDArray[np.intp], length: int, advance: Advance
    ) -> NDArray[np.intp]:
        """One attempt of `_compute`; returns the rows whose lists were too short."""
        found, where = self._index.nearest(self.candidates[rows], length, advance)
        if len(self._columns) < self.problem.n:
            parallel_for(
                lambda part: self._columns.take(where[part], out=where[part], mode="clip"),
                _pieces(len(rows)),
            )
        count = found.shape[1]
        complete = count == len(self._columns)
        tail = np.full(len(rows), np.inf) if complete else found[:, -1].astype(np.float64)
        lists = kernels.Lists(
            costs=found,
            columns=where,
            prefix=np.zeros(len(rows), np.int64),
            rest=np.zeros(len(rows), np.int64),
            stop=np.full(len(rows), count, np.int64),
            tail=tail,
        )
        cost, exact = np.empty(len(rows)), np.empty(len(rows), np.bool_)
        self._evaluate(lists, np.arange(len(rows)), cost, exact)
        done = rows[exact]
        stored = min(self._lists.columns.shape[1], count)
        if len(done) == len(self.candidates) and stored == count:  # all at once: no copy
            self._lists = self._lists._replace(costs=found, columns=where)
        else:

            def store(part: slice) -> None:
                kept = (
                    slice(None) if exact[part].all() else exact[part]
                )  # no copy in the usual case
                own = as_slice(rows[part][kept])
                self._lists.costs[own, :stored] = found[part][kept, :stored]
                self._lists.columns[own, :stored] = where[part][kept, :stored]

            parallel_for(store, _pieces(len(rows)))
        self._lists.prefix[done] = np.minimum(lists.prefix[exact], stored)
        self._lists.rest[done] = np.minimum(lists.rest[exact], stored)
        self._lists.stop[done] = stored
        self._lists.tail[done] = tail[exact] if stored == count else found[exact, stored - 1]
        self._values.cost[done], self._values.exact[done] = cost[exact], True
        self._values.moment[done] = self.picked
        return rows[~exact]


def _pieces(rows: int) -> list[slice]:
    """Split rows into pieces: enough for all cores, without too much overhead."""
    most = max(_ROWS_EVALUATED_TOGETHER, rows // (_PIECES_EACH * available_cores()))
    return pieces_of(rows, most)
