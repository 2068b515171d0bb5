"""The search for the k rows of lowest cost, at every size.

    stages: a sample of the rows, a larger one, … , all rows
        starts      greedy picks, free centres, rows apart from each other
        exchanges   single rows for better ones on the exact plan
        relocation  one prototype moved elsewhere, kept where that is better
        restarts    from other rows, as long as that pays

Each stage begins where the last one ended. How far it goes is counted in work, and it ends where
work gains next to nothing: the same seed leads to the same rows on every machine. Seconds let it
go on, or end it early; more than it takes without them never lead to worse rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from uniproto.errors import TooFewApartError
from uniproto.methods.contract import INTERRUPTED, Method, Picks
from uniproto.methods.search.exact_plan import LEAST_GAIN, Rows
from uniproto.methods.search.exchanges import Exchanges, rows_apart
from uniproto.methods.search.line import best_on_line, can_solve_on_line
from uniproto.methods.search.on_table import OnTable
from uniproto.methods.search.picks import picks_of, picks_of_stage
from uniproto.methods.search.prove import count_of_sets, may_be_proven, prove
from uniproto.methods.search.stage import FRUITLESS, PICKED_FROM, Beginning, Log, Stage
from uniproto.problem.allowed import Allowed
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget, Gains
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import blas_on_one_core
from uniproto.transport.prototypes import SMALL

# Tuned on mixtures of 700 to 200,000 rows, breast cancer and digits of scikit-learn, and MNIST.
_SAMPLE, _SAMPLE_EACH = 5_000, 400  # rows of the first stage: in all, or for each prototype
_FEWEST_EACH = 10  # where seconds are limited, so that there are rows soon
_PAIRS_EACH_SECOND = 12_500_000  # of rows and targets: such a sample takes a part of them
_TIMES_OF_FEW = 30  # as many as pairs of prototypes and targets, where prototypes are few
_LEAST_LEFT = 0.2  # of the seconds, for another sample
_GROWTH = 64  # of a sample, from one stage to the next
_SHARE, _LEAST = 0.5, 2e-4  # of the work, the latest, and what that must gain of the cost
_FEW_TO_MOVE = 30  # prototypes: with more a relocation saves less, and that share is smaller
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
        return picks_of(problem, best, prove(problem, best, Budget()), {})
    if count_of_sets(problem) == 1 and Allowed(problem).is_free:
        only = np.concatenate([problem.initial, problem.candidates])[: problem.k]
        proof = prove(problem, only, Budget())
        if rows is None:
            return picks_of(problem, only, proof, {})
        return picks_of(problem, rows, proof, {"exchanged": 0}, in_order=True)
    random, budget = np.random.default_rng([problem.seed, 1]), Budget.of_seconds(seconds)
    whole = Stage(problem, greedy, budget, random, Log(), to_end=seconds is not None)
    notes: dict[str, Any] = {"stages": whole.log.entries}
    resumed = whole.resumed() if rows is None else None
    begun = resumed if rows is None else rows
    with blas_on_one_core(), progress.stage("searching", 1) as advance:
        try:
            if begun is None:
                _in_stages(whole, seconds)
            else:
                whole.begun, whole.rows = begun, begun.copy()
                if len(problem.initial) < problem.k and not budget.is_late:
                    _search(whole)
        except KeyboardInterrupt:
            if not len(whole.rows):
                raise
            notes["interrupted"] = INTERRUPTED
        advance(1)
    if problem.checkpoint is not None:
        notes["resumed_from_pick"] = 0 if resumed is None else problem.k
    if rows is not None:
        notes["exchanged"] = len(np.setdiff1d(whole.rows, rows))
    return picks_of_stage(whole, notes, in_order=rows is not None)


def _in_stages(whole: Stage, seconds: float | None) -> None:
    """Search samples first, and all rows last."""
    problem, began, fruitless = whole.problem, time.perf_counter(), 0
    usual = size = max(_SAMPLE, _SAMPLE_EACH * problem.k)
    if seconds is not None:
        times = _TIMES_OF_FEW if whole.are_few else PICKED_FROM
        soon = int(seconds * _PAIRS_EACH_SECOND / (times * problem.k))
        size = min(usual, max(_SAMPLE, _FEWEST_EACH * problem.k, soon))
    pairs, count = len(problem.candidates) * problem.n, 0
    while pairs > SMALL and size**2 < pairs:
        try:
            _search_sample(whole, size, count)
        except TooFewApartError:  # in the sample, but perhaps not among all rows
            break
        size, count = usual if size < usual else _GROWTH * size, count + 1
        if whole.budget.is_late:
            return
        if seconds is not None and whole.budget.seconds_left < _LEAST_LEFT * seconds:
            break
    if len(whole.rows):
        whole.begun, whole.is_carried = whole.rows, True
    _search(whole)
    whole.save()
    took = time.perf_counter() - began
    while whole.goes_on_in_samples and fruitless < FRUITLESS and whole.budget.seconds_left > took:
        began, before, count = time.perf_counter(), whole.cost, count + 1
        try:
            _search_sample(whole, usual, count, again=True)
        except TooFewApartError:
            return
        _search(whole)
        took, fruitless = time.perf_counter() - began, fruitless + 1
        if whole.cost < before:
            whole.save()
            fruitless = 0


def _search_sample(whole: Stage, size: int, count: int, *, again: bool = False) -> None:
    """Search so many of the rows, from the best so far; `again`: from others."""
    from uniproto.methods.search.starts import sampled

    random = np.random.default_rng([whole.problem.seed, count])
    keep = whole.rows[:0] if again else whole.rows
    part, numbers = sampled(whole.problem, size, random, keep)
    stage = Stage(part, whole.greedy, whole.budget, random, whole.log, is_sample=True)
    if len(keep):
        stage.begun, stage.is_carried = np.searchsorted(numbers, keep), True
    try:
        _search(stage)
    finally:
        if again:
            whole.begun = numbers[stage.rows]
        elif len(stage.rows):
            whole.rows, whole.paid = numbers[stage.rows], stage.paid
            whole.save()


def _search(stage: Stage) -> None:
    """Search every row of a stage, on a table, on cells or in blocks."""
    if may_be_proven(stage.problem):
        table = OnTable(stage)
        _improve(stage, table.beginning)
        table.prove()
        if stage.proof is None and stage.to_end:
            before = stage.cost
            _go_on(stage, table.beginning)
            if stage.cost < before:
                table.prove()
        return
    if stage.are_cells:
        from uniproto.methods.search.on_cells import begin_on_cells

        beginning = begin_on_cells(stage)
        _improve(stage, beginning)
        if stage.to_end:
            _go_on(stage, beginning)
        return
    from uniproto.methods.search.in_blocks import search_in_blocks

    search_in_blocks(stage)


def _improve(stage: Stage, beginning: Beginning) -> None:
    """Exchanges from every start, then relocations and restarts as long as they pay."""
    part, plan, budget = stage.problem, beginning.plan, stage.budget
    if len(part.initial) == part.k:
        return
    lasts, begun = budget.part(stage.work), budget.done
    share = min(_SHARE, _FEW_TO_MOVE / part.k)
    gains = Gains(budget, share=share, least=_LEAST, work=beginning.floor * stage.effort)
    gains.note(plan.cost)

    def goes_on() -> bool:
        return gains.pays and lasts()

    exchanges = Exchanges(plan, Allowed(part), lasts, gains)  # the first start to its end
    try:
        exchanges.descend_all()
        exchanges.goes_on = goes_on
        _keep(stage, beginning, "exchanges")
        for rows in beginning.others:
            if budget.done - begun > beginning.floor or budget.is_late:
                break
            plan.start(rows)
            exchanges.descend_all()
            _keep(stage, beginning, "exchanges")
        if not stage.is_sample:
            stage.save()
        plan.start(stage.rows)
        if stage.is_carried and not stage.is_sample:
            return  # relocations were tried in the sample, where they are cheap
        for _ in _moves(stage, exchanges, beginning):
            if not goes_on():
                break
    finally:
        _keep(stage, beginning, "exchanges")  # also those before Ctrl-C


def _moves(stage: Stage, exchanges: Exchanges, beginning: Beginning) -> Iterator[None]:
    """Look for better rows by relocations, and from other starts; in the end try everything.

    The next turn is of the kind that has been in vain for the least work since it last led to
    something better: while relocations do, starts are few.
    """
    plan, random, budget, fruitless = exchanges.plan, stage.random, stage.budget, 0
    best, best_plan, start_again = plan.cost, plan.saved(), _WORK_OF_START * plan.problem.k

    def start(kind: str) -> Rows | None:
        if kind == "some other rows":
            return beginning.improved(exchanges.with_others(stage.rows, random))
        rows = rows_apart(plan.problem, beginning.costs, random)
        return None if rows is None else beginning.improved(rows)

    in_vain = {"relocation": 0.0, "some other rows": start_again, "restart": start_again}
    while fruitless < FRUITLESS:
        kind, before = min(in_vain, key=in_vain.__getitem__), budget.done
        if kind == "relocation":
            if plan.cost > best:
                plan.restore(best_plan)
            exchanges.relocate(random)
        elif (rows := start(kind)) is not None:
            plan.start(rows)
            exchanges.descend_all()
        in_vain[kind] += budget.done - before + _WORK_OF_TURN
        fruitless += kind != "relocation"
        if plan.cost < best * (1 - LEAST_GAIN):
            best, best_plan, fruitless = plan.cost, plan.saved(), 0
            in_vain[kind] = 0.0
            _keep(stage, beginning, kind)
        yield
    plan.start(stage.rows)
    while not stage.is_sample and exchanges.try_all():
        exchanges.descend_all()
        _keep(stage, beginning, "every exchange")
        yield


def _go_on(stage: Stage, beginning: Beginning) -> None:
    """Use what is left of the seconds."""
    plan = beginning.plan
    plan.start(stage.rows)
    exchanges = Exchanges(plan, Allowed(plan.problem), lambda: not stage.budget.is_late)
    try:
        for _ in _moves(stage, exchanges, beginning):
            if stage.budget.is_late:
                break
    finally:
        _keep(stage, beginning, "exchanges")


def _keep(stage: Stage, beginning: Beginning, kind: str) -> None:
    stage.keep(beginning.plan.rows, beginning.plan.cost, kind)
