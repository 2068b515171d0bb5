"""The search for the k rows of lowest cost, at every size.

    stages: a sample of the rows, a larger one, … , all rows
        starts      greedy picks, free centres, rows apart from each other
        exchanges   single rows for better ones on the exact plan
        relocation  one prototype moved elsewhere, kept where that is better
        restarts    from other rows, as long as that pays

Each stage begins where the last one ended. How far it goes is counted in work, and it ends where
work gains next to nothing: the same seed leads to the same rows on every machine. Seconds let it
go on, or end it early; more of them never lead to worse rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import TooFewApartError
from uniproto.methods.contract import INTERRUPTED, Method, Optimum, Picks
from uniproto.methods.search.exact_plan import LEAST_GAIN, CostsOfRows, ExactPlan, Rows
from uniproto.methods.search.exchanges import Exchanges, rows_apart
from uniproto.methods.search.line import best_on_line, can_solve_on_line
from uniproto.methods.search.prove import (
    Prover,
    count_of_sets,
    may_be_proven,
    proof_of_cost,
    prove,
)
from uniproto.methods.search.table import SolvedSet, Table
from uniproto.methods.search.table_plan import TablePlan, greedy_rows
from uniproto.problem.allowed import Allowed
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedPicks
from uniproto.runtime.budget import Budget, Gains
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import blas_on_one_core, parallel_map
from uniproto.transport.prototypes import FEW, SMALL, Transport, cost_of, feasible_plan, transport

# Tuned on mixtures of 700 to 200,000 rows, breast cancer and digits of scikit-learn, and MNIST.
_SAMPLE, _SAMPLE_EACH = 5_000, 400  # rows of the first stage: in all, or for each prototype
_SOONER_EACH = 80  # the same where seconds are limited, so that there are rows soon
_GROWTH = 64  # of a sample, from one stage to the next
_ENOUGH = 2  # times a sample: so few rows are not sampled, where cells hold all of them
_ROUNDS = 4  # of medoids, on all rows of a stage
_WORK, _WORK_EACH_ROW = 5.0e8, 5.0e4  # of a stage, at most
_FLOOR, _FLOOR_EACH = 1.2e8, 4e6  # work before which gains are not asked for: and for each of k
_FLOOR_ROWS = 10_000  # with more rows as many times that work
_FLOOR_OF_TABLE = 1.2e8  # the same for a small problem, whose plans take longer
_OF_SAMPLE = 3  # times as much in a sample, where relocations are cheap
_SHARE, _LEAST = 0.5, 2e-4  # of the work, the latest, and what that must gain of the cost
_MET, _BEST_MET = 8, 3  # sets met while prices are found: solved, and begun from
_HOPELESS = 1.02  # times the best cost: sets that are not worth improving
_EFFORT = 1.0  # times the usual work: less in tests that are not about the search
_MOST_EACH = 5_000  # targets of a prototype: with more, medoids are nearly as good as exchanges
_SECONDS_OF_PLAN, _SECONDS_OF_PASS = 5e-8, 4e-8  # for each prototype and target
_PAIRS_AT_ONCE = 5_000_000  # of prototypes and targets, whose plan takes less than a second
_WORK_OF_GREEDY = 3.0  # for each row and target
_FRUITLESS = 8  # starts in a row, after which every single exchange is tried
_WORK_OF_TURN = 1e5  # beside what is counted
_WORK_OF_START = 1e6  # about, for each prototype


def search(
    problem: Problem,
    greedy: Method,
    seconds: float | None,
    progress: Progress,
    rows: Rows | None = None,
) -> Picks:
    """The best rows found, and the proof where they are known to be the best there are.

    With `rows` it goes on from these. Ctrl-C ends it and keeps the best rows so far.
    """
    if rows is None and (line := can_solve_on_line(problem)) is not None:
        on_line = best_on_line(problem, line)[0]
        best = np.concatenate([problem.initial, np.setdiff1d(on_line, problem.initial)])
        return _picks(problem, best, prove(problem, best, Budget()), {})
    if count_of_sets(problem) == 1 and Allowed(problem).is_free:
        only = np.concatenate([problem.initial, problem.candidates])[: problem.k]
        proof = prove(problem, only, Budget())
        if rows is None:
            return _picks(problem, only, proof, {})
        return _picks(problem, rows, proof, {"exchanged": 0}, in_order=True)
    return _Search(problem, greedy, seconds, progress).run(rows)


class _Search:
    """The best rows so far, and how much longer to look for better ones."""

    def __init__(
        self, problem: Problem, greedy: Method, seconds: float | None, progress: Progress
    ) -> None:
        self.problem, self.greedy, self.progress = problem, greedy, progress
        self.seconds = seconds
        self.budget = Budget.of_seconds(seconds)
        self.random = np.random.default_rng([problem.seed, 1])
        self.rows = np.empty(0, np.intp)  # the best of the stage
        self.cost = np.inf
        self.prices: NDArray[np.float64] | None = None
        self.paid: NDArray[np.float64] | None = None  # for each place, about, of many targets
        self.proof: Optimum | None = None
        self.is_sample = False
        self.stages: list[dict[str, Any]] = []
        self.began = time.perf_counter()

    def run(self, rows: Rows | None) -> Picks:
        notes: dict[str, Any] = {"stages": self.stages}
        resumed = self._resumed() if rows is None else None
        begun = rows if rows is not None else resumed
        stage = self.progress.stage("searching", 1)
        with blas_on_one_core(), stage as advance:
            try:
                if begun is not None:
                    self.rows = begun.copy()
                    if len(self.problem.initial) < self.problem.k and not self.budget.is_late:
                        self._all_rows(self.problem, [begun])
                else:
                    self._in_stages()
            except KeyboardInterrupt:
                if not len(self.rows):
                    raise
                notes["interrupted"] = INTERRUPTED
            advance(1)
        if self.problem.checkpoint is not None:
            notes["resumed_from_pick"] = 0 if resumed is None else self.problem.k
        if rows is not None:
            notes["exchanged"] = len(np.setdiff1d(self.rows, rows))
        k, n = self.problem.k, self.problem.n
        later = k > FEW or self.budget.seconds_left < _SECONDS_OF_PLAN * k * n
        if later and self.paid is None and k * n > _PAIRS_AT_ONCE:
            self.paid = _paid_in_sample(self.problem, self.rows)
        return _picks(
            self.problem,
            self.rows,
            self.proof,
            notes,
            prices=self.prices,
            paid=self.paid if later else None,
            in_order=rows is not None,
        )

    # --- stages: samples first, all rows last ---

    def _in_stages(self) -> None:
        problem = self.problem
        usual = max(_SAMPLE, _SAMPLE_EACH * problem.k)
        size = usual if self.seconds is None else max(_SAMPLE, _SOONER_EACH * problem.k)
        pairs, stage = len(problem.candidates) * problem.n, 0
        while pairs > SMALL and (_times_enough(problem) * size) ** 2 < pairs:
            from uniproto.methods.search.starts import sampled

            random, stage = np.random.default_rng([problem.seed, stage]), stage + 1
            part, numbers = sampled(problem, size, random, self.rows)
            before, self.cost = np.searchsorted(numbers, self.rows), np.inf
            try:
                self._stage(part, before, numbers)
            except TooFewApartError:  # in the sample, but perhaps not among all rows
                break
            size = usual if size < usual else _GROWTH * size
            if self.budget.is_late:
                return
        before, self.cost = self.rows, np.inf
        self._all_rows(problem, [before] if len(before) else [], carried=len(before) > 0)
        self._save()

    def _stage(self, part: Problem, before: Rows, numbers: Rows) -> None:
        """Search a sample of the rows, from those of the stage before."""
        found = _Search(part, self.greedy, None, self.progress)
        found.budget, found.stages, found.began = self.budget, self.stages, self.began
        found.random, found.is_sample = self.random, True
        try:
            found._all_rows(part, [before] if len(before) else [], carried=len(before) > 0)
        finally:
            if len(found.rows):
                self.rows = numbers[found.rows]
                self._save()

    def _all_rows(self, part: Problem, starts: list[Rows], *, carried: bool = False) -> None:
        """Search every row of a part: from these starts, or from its own where there are none."""
        if may_be_proven(part):
            self._with_table(part, starts)
            return
        from uniproto.transport.cells import cells_suit  # what is compiled loads late

        if part.k > FEW:
            self._from_plan(part, starts)
        elif cells_suit(part.k, part.n):
            self._with_cells(part, starts, carried)
        else:
            self._in_blocks(part, starts)

    def _with_table(self, part: Problem, starts: list[Rows]) -> None:
        table = Table(part, self.budget)
        starts = starts or [greedy_rows(table)]
        plan, prover = TablePlan(table, starts[0]), Prover(table)
        self._keep(plan, "start")
        starts = [*starts, *self._met(plan, prover)]
        self._improve(plan, plan, starts, _FLOOR_OF_TABLE, plan.medoids_from)
        plan.start(self.rows)
        best = plan.set
        for _ in range(2):
            self.proof, better = prover.prove(best)
            if better is best or self.proof is not None:
                break
            plan.start(table.rows[better.members])
            Exchanges(plan, Allowed(part), self.budget.part(_WORK)).descend_all()
            best = plan.set
        plan.start(table.rows[better.members])
        self._keep(plan, "proof")
        if self.proof is None and self.seconds is not None:
            self._go_on(plan, plan, plan.medoids_from)
            plan.start(self.rows)
            if not np.array_equal(np.sort(plan.set.members), np.sort(better.members)):
                self.proof = prover.prove(plan.set)[0]

    def _met(self, plan: TablePlan, prover: Prover) -> Iterator[Rows]:
        """Rows that prices which bound every choice lead to, the best first."""
        if not Allowed(plan.problem).is_free:
            return
        table, met = plan.table, prover.prices_from(plan.set)[1][-_MET:]
        solved = [SolvedSet(members, table.solve(members)) for members in met]
        for found in sorted(solved, key=lambda found: found.cost)[:_BEST_MET]:
            if found.cost < _HOPELESS * plan.solved.cost:
                yield table.rows[found.members]

    def _with_cells(self, part: Problem, starts: list[Rows], carried: bool) -> None:
        from uniproto.methods.search.cell_plan import CellPlan
        from uniproto.methods.search.centres import move_to_medoids
        from uniproto.methods.search.gpu_assigner import assigner_of, row_costs_of
        from uniproto.methods.search.starts import (
            centres_pay,
            greedy_picks,
            near_centres,
            work_of_centres,
        )

        costs = row_costs_of(part)
        held, work = costs.problem_from_held, self._work(part)
        prices = None
        if carried:
            assigner = assigner_of(held)
            found = assigner.assign(starts[0])
            found = move_to_medoids(assigner, found, 2 * _ROUNDS, self.budget.part(work))
            starts, prices = [found.prototypes.astype(np.intp)], found.prices * assigner.unit
        elif not starts:
            starts = [greedy_picks(held, self.greedy, self.random)]
            if centres_pay(part, work):
                assigner = assigner_of(held)
                starts.append(near_centres(assigner, starts[0], self.budget.part(np.inf)))
                starts = [min(starts, key=lambda rows: assigner.assign(rows).value)]
        plan = CellPlan(part, starts[0], costs, self.budget, prices)
        self._keep(plan, "start")

        def improved(rows: Rows) -> Rows:
            if not centres_pay(part, work):
                return rows
            self.budget.spend(work_of_centres(part))
            return near_centres(assigner_of(held), rows, self.budget.part(np.inf))

        times = _OF_SAMPLE if self.is_sample else min(max(1, part.n / _FLOOR_ROWS), _OF_SAMPLE)
        floor = (_FLOOR + _FLOOR_EACH * part.k) * times
        self._improve(plan, costs, starts, floor, improved, carried=carried)
        if self.seconds is not None:
            self._go_on(plan, costs, improved)

    def _improve(
        self,
        plan: ExactPlan,
        costs: CostsOfRows,
        starts: list[Rows],
        floor: float,
        improved: Callable[[Rows], Rows],
        *,
        carried: bool = False,
    ) -> None:
        """Exchanges from every start, then relocations and restarts as long as they pay."""
        part = plan.problem
        if len(part.initial) == part.k:
            return
        work = self._work(part)
        lasts, begun = self.budget.part(work), self.budget.done
        gains = Gains(self.budget, share=_SHARE, least=_LEAST, work=floor * part.effort * _EFFORT)
        gains.note(plan.cost)

        def goes_on() -> bool:
            return gains.pays and lasts()

        exchanges = Exchanges(plan, Allowed(part), lasts, gains)  # the first start to its end
        try:
            for rows in starts:
                if rows is not starts[0]:
                    if self.budget.done - begun > floor or self.budget.is_late:
                        break
                    plan.start(rows)
                exchanges.descend_all()
                exchanges.goes_on = goes_on
                self._keep(plan, "exchanges")
            if not self.is_sample:
                self._save()
            plan.start(self.rows)
            if carried and not self.is_sample:  # relocations were tried there, where they are cheap
                return
            for _ in self._moves(exchanges, costs, improved):
                if not goes_on():
                    break
        finally:
            self._keep(plan, "exchanges")  # also those before Ctrl-C

    def _moves(
        self, exchanges: Exchanges, costs: CostsOfRows, improved: Callable[[Rows], Rows]
    ) -> Iterator[None]:
        """Look for better rows by relocations, and from other starts; in the end try everything.

        The next turn is of the kind that has been in vain for the least work since it last led to
        something better: while relocations do, starts are few.
        """
        plan, random, fruitless = exchanges.plan, self.random, 0
        best, best_plan, start_again = plan.cost, plan.saved(), _WORK_OF_START * plan.problem.k

        def start(kind: str) -> Rows | None:
            if kind == "some other rows":
                return improved(exchanges.with_others(self.rows, random))
            rows = rows_apart(plan.problem, costs, random)
            return None if rows is None else improved(rows)

        in_vain = {"relocation": 0.0, "some other rows": start_again, "restart": start_again}
        while fruitless < _FRUITLESS:
            kind, before = min(in_vain, key=in_vain.__getitem__), self.budget.done
            if kind == "relocation":
                if plan.cost > best:
                    plan.restore(best_plan)
                exchanges.relocate(random)
            elif (rows := start(kind)) is not None:
                plan.start(rows)
                exchanges.descend_all()
            in_vain[kind] += self.budget.done - before + _WORK_OF_TURN
            fruitless += kind != "relocation"
            if plan.cost < best * (1 - LEAST_GAIN):
                best, best_plan, fruitless = plan.cost, plan.saved(), 0
                in_vain[kind] = 0.0
                self._keep(plan, kind)
            yield
        plan.start(self.rows)
        while not self.is_sample and exchanges.try_all():
            exchanges.descend_all()
            self._keep(plan, "every exchange")
            yield

    def _go_on(self, plan: ExactPlan, costs: CostsOfRows, improved: Callable[[Rows], Rows]) -> None:
        """Use what is left of the seconds."""
        plan.start(self.rows)
        exchanges = Exchanges(plan, Allowed(plan.problem), lambda: not self.budget.is_late)
        try:
            for _ in self._moves(exchanges, costs, improved):
                if self.budget.is_late:
                    break
        finally:
            self._keep(plan, "exchanges")

    # --- many prototypes or many targets: exchanges in blocks ---

    def _in_blocks(self, part: Problem, starts: list[Rows]) -> None:
        from uniproto.methods.search.gpu_assigner import assigner_of
        from uniproto.methods.search.starts import greedy_picks

        assigner, began = assigner_of(part), time.perf_counter()
        self.rows = starts[0] if starts else greedy_picks(part, self.greedy, self.random)
        if self.budget.seconds_left < _SECONDS_OF_PASS * part.k * part.n:
            return
        self._descend_in_blocks(part, assigner, self.rows, free=not starts)
        took = time.perf_counter() - began
        while self.seconds is not None and self.budget.seconds_left > took:  # again, from others
            picked = greedy_picks(part, self.greedy, self.random)
            self._descend_in_blocks(part, assigner, picked, free=True)

    def _descend_in_blocks(self, part: Problem, assigner: Any, rows: Rows, *, free: bool) -> None:
        """Medoids and exchanges from these rows, or where they are `free`, from their centres."""
        from uniproto.methods.search.centres import have_centres, move_to_medoids, snapped
        from uniproto.methods.search.starts import centres_from, work_of_centres

        found, lasts = assigner.assign(rows), self.budget.part(np.inf)
        if free and have_centres(part.costs):
            value = found.value
            self.budget.spend(work_of_centres(part))
            found = centres_from(assigner, rows, found, lasts)  # columns of rows are held no longer
            if not lasts() and self.cost < np.inf:
                return
            found = assigner.assign(snapped(assigner, found.prototypes[assigner.given :]))
            found = found if found.value < value else assigner.assign(rows)
        found = move_to_medoids(assigner, found, _ROUNDS, lasts)
        self._keep_assigned(assigner, found, "start")
        value, prices, cells = found.value, found.prices, found.cells
        rows = found.prototypes.astype(np.intp)
        del found  # blocks need the memory of its columns
        targets = np.flatnonzero(part.masses.offer)
        whole = (part.masses.offer[targets], (cells[targets], targets))
        held = sp.csr_array(whole, shape=(part.k, part.n))
        blocks = self._blocks(part, rows, held, value * assigner.unit)
        pays = part.n <= _MOST_EACH * part.k
        while pays and not self.budget.is_late:
            pays = blocks.improve()
            better = assigner.assign(blocks.rows, prices=prices)
            pays &= better.value < value
            value, prices = better.value, better.prices
            self._keep_assigned(assigner, better, "exchanges")
            del better
        if self.seconds is not None and np.array_equal(blocks.rows, self.rows):
            self.paid = blocks.paid

    def _blocks(self, part: Problem, rows: Rows, held: sp.csr_array, cost: float) -> Any:
        """Blocks that are improved as long as that pays, or with seconds, at all."""
        from uniproto.methods.search.blocks import Blocks

        return Blocks(part, rows, held, cost, self.budget, to_end=self.seconds is not None)

    def _from_plan(self, part: Problem, starts: list[Rows]) -> None:
        """From the plan that greedy picks have anyway: balancing many prices takes long."""
        if starts:
            self.rows, plan = starts[0], feasible_plan(part, starts[0])
        else:
            picks = self.greedy.pick(part.changed(checkpoint=None), Progress(False))
            self.rows = picks.rows.astype(np.intp)
            plan = feasible_plan(part, self.rows) if picks.plan is None else picks.plan
        self.budget.spend(_WORK_OF_GREEDY * len(part.candidates) * part.n)
        self.cost = cost_of(part, self.rows, plan) / part.masses.total
        self._note("start")
        blocks = self._blocks(part, self.rows, plan, self.cost)
        while not self.budget.is_late and blocks.improve():
            self.rows, self.cost = blocks.rows.copy(), blocks.cost
            self._note("exchanges")
        if blocks.cost < self.cost:
            self.rows, self.cost = blocks.rows.copy(), blocks.cost
            self._note("exchanges")
        self.paid = blocks.paid

    def _keep_assigned(self, assigner: Any, found: Any, stage: str) -> None:
        """Note rows whose prices nearly balance them, if they are better than the best so far."""
        cost = found.value * assigner.unit
        if cost < self.cost:
            self.rows, self.prices = found.prototypes.astype(np.intp), found.prices * assigner.unit
            self.cost, self.paid = cost, None
            self._note(stage)

    # --- the best rows so far ---

    def _work(self, part: Problem) -> float:
        return (_WORK + _WORK_EACH_ROW * part.n) * part.effort * _EFFORT

    def _keep(self, plan: ExactPlan, stage: str) -> None:
        """Note rows that are better than the best so far."""
        if plan.cost < self.cost * (1 - LEAST_GAIN):
            self.rows, self.cost, self.prices = plan.rows.copy(), plan.cost, None
            self._note(stage)

    def _note(self, stage: str) -> None:
        seconds = round(time.perf_counter() - self.began, 3)
        self.stages.append({"stage": stage, "cost": self.cost, "seconds": seconds})

    def _save(self) -> None:
        """Keep the best rows: what a killed run goes on from."""
        if self.problem.checkpoint is not None:
            rows, state = self.rows.astype(np.int64), {"work": self.budget.done}
            saved = SavedPicks(rows, np.zeros(len(rows)), None, SEARCHING, state)
            self.problem.checkpoint.write(saved, now=True)

    def _resumed(self) -> Rows | None:
        """The rows that a run which was killed had come to, if there was one."""
        checkpoint = self.problem.checkpoint
        before = checkpoint.read() if checkpoint is not None else None
        if checkpoint is None or before is None or before.stage != SEARCHING:
            return None
        rows, given = before.rows.astype(np.intp), self.problem.initial
        allowed = np.isin(rows[len(given) :], self.problem.candidates).all()
        if len(rows) != self.problem.k or not allowed or (rows[: len(given)] != given).any():
            raise checkpoint.refused("its rows are not k of those that may be chosen")
        return rows


def _picks(
    problem: Problem,
    rows: Rows,
    proof: Optimum | None,
    notes: dict[str, Any],
    *,
    prices: NDArray[np.float64] | None = None,
    paid: NDArray[np.float64] | None = None,
    in_order: bool = False,
) -> Picks:
    """The rows with their exact plan; given ones first, the others by what each costs.

    With what each has `paid`, about, the plan is left until somebody asks for it. `in_order` leaves
    every row at its place.
    """
    solved = None
    if paid is None:
        solved = transport(problem, rows, prices=prices)
        paid = _held_costs(problem, rows, solved)
    order, given = np.arange(len(rows)), len(problem.initial)
    if not in_order:
        order[given:] = given + np.argsort(paid[given:], kind="stable")
    if solved is not None:
        solved = replace(solved, plan=solved.plan[order])
    return Picks(
        rows[order],
        problem.costs.ceiling - paid[order],
        notes=notes,
        transport=solved,
        proof=None if proof is None or solved is None else proof_of_cost(proof, solved),
    )


def _times_enough(problem: Problem) -> int:
    """How many times a sample the rows may be before they are sampled."""
    from uniproto.transport.cells import cells_suit

    in_blocks = problem.k <= FEW and not cells_suit(problem.k, problem.n)
    return 1 if in_blocks else _ENOUGH  # what blocks begin from is best found in a sample


def _paid_in_sample(problem: Problem, rows: Rows) -> NDArray[np.float64]:
    """What each prototype's share costs it for a unit of mass, about, where time is up."""
    from uniproto.methods.search.starts import sampled

    random = np.random.default_rng([problem.seed, 2])
    part, numbers = sampled(problem, _SAMPLE, random, rows)
    chosen = np.searchsorted(numbers, rows)
    return _held_costs(part, chosen, transport(part, chosen))


def _held_costs(problem: Problem, rows: Rows, solved: Transport) -> NDArray[np.float64]:
    """What each prototype's share of the targets costs it, for a unit of mass."""
    plan, k = solved.plan, len(rows)

    def of(place: int) -> float:
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[part])[0]
        return k * float(costs @ plan.data[part])

    return np.array(list(parallel_map(of, range(k))))
