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
from uniproto.methods.search.stage import Stage
from uniproto.methods.search.starts import centres_from, greedy_picks, work_of_centres
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import best_plan, feasible_plan

_ROUNDS = 4  # of medoids
_MOST_EACH = 5_000  # targets of a prototype: with more, medoids are nearly as good as exchanges
_SECONDS_OF_PASS = 4e-8  # for each prototype and target
_WORK_OF_GREEDY = 3.0  # for each row and target
_PAIRS_OF_PLAN = 2_000_000  # of prototypes and targets, whose exact plan takes a second
_SECONDS_OF_SOLVE = 6e-7  # for each of them
_WORTH = 0.002  # of the cost: what exchanges on an exact plan must save, for another one


def search_in_blocks(stage: Stage) -> None:
    """From balanced prices, where cells do not suit because targets are many."""
    part, began = stage.problem, time.perf_counter()
    assigner, begun = assigner_of(part), stage.begun
    stage.rows = _picked(stage) if begun is None else begun
    if stage.budget.seconds_left < _SECONDS_OF_PASS * part.k * part.n:
        return
    _descend(stage, assigner, stage.rows, free=begun is None)
    took = time.perf_counter() - began
    while stage.to_end and stage.budget.seconds_left > took:  # again, from others
        _descend(stage, assigner, _picked(stage), free=True)


def search_from_plan(stage: Stage) -> None:
    """From the plan that greedy picks have anyway, as balancing many prices takes long.

    Then from the exact plan, where that is quick or there are seconds left.
    """
    part, budget, plan = stage.problem, stage.budget, None
    rows = stage.begun
    if rows is not None and budget.seconds_left < _SECONDS_OF_PASS * part.k * part.n:
        stage.rows = rows
        return
    if rows is None:
        picks = stage.greedy.pick(part.changed(checkpoint=None), Progress(False))
        rows, plan = picks.rows, picks.plan
    plan = feasible_plan(part, rows) if plan is None else plan
    budget.spend(_WORK_OF_GREEDY * len(part.candidates) * part.n)
    gain, seconds = _exchange(stage, rows, plan, "start"), _SECONDS_OF_SOLVE * part.k * part.n
    pairs, least = (math.inf, LEAST_GAIN) if stage.to_end else (_PAIRS_OF_PLAN, _WORTH)
    while gain > least and part.k * part.n <= pairs and budget.seconds_left > seconds:
        gain = _exchange(stage, stage.rows, best_plan(part, stage.rows), "exact plan")


def _exchange(stage: Stage, rows: Rows, plan: sp.csr_array, kind: str) -> float:
    """Exchanges from a plan as long as they pay; the share of its cost that they save."""
    part, pays = stage.problem, True
    blocks = Blocks(part, rows.astype(np.intp), plan, stage.budget, to_end=stage.to_end)
    cost = blocks.cost
    stage.keep(rows, cost, kind)
    while pays and not stage.budget.is_late:
        pays = blocks.improve()
        stage.keep(blocks.rows, blocks.cost, "exchanges")
    if np.array_equal(blocks.rows, stage.rows):
        stage.paid = blocks.paid
    return 1 - blocks.cost / cost if cost > 0 else 0.0


def _picked(stage: Stage) -> Rows:
    return greedy_picks(stage.problem, stage.greedy, stage.random)


def _descend(stage: Stage, assigner: Assigner, rows: Rows, *, free: bool) -> None:
    """Medoids and exchanges from these rows, or where they are `free`, from their centres."""
    part, budget = stage.problem, stage.budget
    found, lasts = assigner.assign(rows), budget.part(math.inf)
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
