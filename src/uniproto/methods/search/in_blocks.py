"""The search with many prototypes or many targets: exchanges in blocks of what is near."""

from __future__ import annotations

import math
import time

import numpy as np
import scipy.sparse as sp

from uniproto.methods.search.assigner import Assigned, Assigner
from uniproto.methods.search.blocks import Blocks
from uniproto.methods.search.centres import have_centres, move_to_medoids, snapped
from uniproto.methods.search.exact_plan import LEAST_GAIN, Rows
from uniproto.methods.search.gpu_assigner import assigner_of
from uniproto.methods.search.stage import FRUITLESS, Stage
from uniproto.methods.search.starts import centres_from, greedy_picks, work_of_centres
from uniproto.transport.prototypes import best_plan, feasible_plan

_ROUNDS = 4  # of medoids
_MOST_EACH = 5_000  # targets of a prototype: with more, medoids are nearly as good as exchanges
_SECONDS_OF_PASS = 4e-8  # for each prototype and target
_WORK_OF_GREEDY = 15.0  # for each prototype and target
_SECONDS_OF_SOLVE = 6e-7  # for each of them: an exact plan


def search_in_blocks(stage: Stage) -> None:
    """Improve the best rows so far, or greedy picks; with seconds left, other picks, too."""
    part, budget, began, fruitless = stage.problem, stage.budget, time.perf_counter(), 0
    rows, plan = _picked(stage) if stage.begun is None else (stage.begun, None)
    if not len(stage.rows):
        stage.rows = rows
    if budget.seconds_left < _SECONDS_OF_PASS * part.k * part.n:
        return
    while True:
        before = stage.cost
        if stage.are_few:
            _search_from_prices(stage, rows, free=plan is not None)
        else:
            _search_from_plan(stage, rows, plan)
        took = time.perf_counter() - began
        fruitless = 0 if stage.cost < before else fruitless + 1
        if (
            not stage.to_end
            or stage.goes_on_in_samples
            or fruitless == FRUITLESS
            or budget.seconds_left < took
        ):
            return
        began = time.perf_counter()
        rows, plan = _picked(stage, again=True)


def _picked(stage: Stage, *, again: bool = False) -> tuple[Rows, sp.csr_array | None]:
    """Greedy picks, and the plan that they have anyway."""
    picks = greedy_picks(stage.problem, stage.greedy, stage.random, again=again)
    stage.budget.spend(_WORK_OF_GREEDY * stage.problem.k * stage.problem.n)
    return picks.rows, picks.plan


def _search_from_plan(stage: Stage, rows: Rows, plan: sp.csr_array | None) -> None:
    """From this plan; with seconds left from the exact one, as long as that gains anything."""
    part, budget = stage.problem, stage.budget
    plan = feasible_plan(part, rows) if plan is None else plan
    blocks, gain = _exchange(stage, rows, plan, "start")
    seconds = _SECONDS_OF_SOLVE * part.k * part.n
    while stage.to_end and gain > LEAST_GAIN and budget.seconds_left > seconds:
        blocks, gain = _exchange(stage, blocks.rows, best_plan(part, blocks.rows), "exact plan")


def _exchange(stage: Stage, rows: Rows, plan: sp.csr_array, kind: str) -> tuple[Blocks, float]:
    """Exchanges from a plan as long as they pay, and the share of its cost that they save."""
    part, pays = stage.problem, True
    blocks = Blocks(part, rows.astype(np.intp), plan, stage.budget, to_end=stage.to_end)
    cost = blocks.cost
    stage.keep(rows, cost, kind)
    while pays and not stage.budget.is_late:
        pays = blocks.improve()
        stage.keep(blocks.rows, blocks.cost, "exchanges")
    if np.array_equal(blocks.rows, stage.rows):
        stage.paid = blocks.paid
    return blocks, 1 - blocks.cost / cost if cost > 0 else 0.0


def _search_from_prices(stage: Stage, rows: Rows, *, free: bool) -> None:
    """Medoids and exchanges from these rows, or where they are `free`, from their centres."""
    part, budget, assigner = stage.problem, stage.budget, assigner_of(stage.problem)
    began = time.perf_counter()
    found = assigner.assign(rows)
    took = time.perf_counter() - began

    def lasts() -> bool:
        return budget.seconds_left > took  # for another pass

    if free and have_centres(part.costs):
        value = found.value
        budget.spend(work_of_centres(part))
        found = centres_from(assigner, rows, found, lasts)  # columns of rows are held no longer
        if not lasts() and stage.cost < math.inf:
            return
        found = assigner.assign(snapped(assigner, found.prototypes[assigner.given :]))
        found = found if found.value < value else assigner.assign(rows)
    found = move_to_medoids(assigner, found, _ROUNDS, lasts)
    _keep(stage, assigner, found, "start")
    value, prices, cells = found.value, found.prices, found.cells
    rows = found.prototypes.astype(np.intp)
    del found  # blocks need the memory of its columns
    targets = np.flatnonzero(part.masses.offer)
    whole = (part.masses.offer[targets], (cells[targets], targets))
    held = sp.csr_array(whole, shape=(part.k, part.n))
    cost = value * assigner.unit
    blocks = Blocks(part, rows, held, budget, cost=cost, to_end=stage.to_end)
    pays = part.n <= _MOST_EACH * part.k
    while pays and not budget.is_late:
        pays = blocks.improve()
        better = assigner.assign(blocks.rows, prices=prices)
        pays &= better.value < value
        value, prices = better.value, better.prices
        _keep(stage, assigner, better, "exchanges")
        del better
    if stage.to_end and np.array_equal(blocks.rows, stage.rows):
        stage.paid = blocks.paid


def _keep(stage: Stage, assigner: Assigner, found: Assigned, kind: str) -> None:
    """Note rows and the prices that nearly balance them."""
    cost, prices = found.value * assigner.unit, found.prices * assigner.unit
    stage.keep(found.prototypes, cost, kind, prices)
