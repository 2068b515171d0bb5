"""What a saved result claims, recomputed from its files and from its inputs.

Tolerances come from the costs in use: they do not grow with prices, nor with
costs that the plan does not pay.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uniproto.certificate.bound import proven_bound
from uniproto.certificate.certificate import SHIFTED
from uniproto.certificate.row_bounds import bound_by_rows
from uniproto.cli.recorded_inputs import Result
from uniproto.cli.select import CHOSEN, EXCLUDED, free_name, json_rows
from uniproto.data.tables import file_digest
from uniproto.geometry.rounded_costs import extreme_costs
from uniproto.methods import as_method
from uniproto.methods.search.prove import prove
from uniproto.problem.keep import least_kept
from uniproto.problem.problem import Problem
from uniproto.report.targets import arc_costs
from uniproto.report.words import counted
from uniproto.runs.publish import place_of, read_published
from uniproto.runs.records import plain
from uniproto.runtime.budget import Budget
from uniproto.selection.details import recorded_options
from uniproto.selection.prototypes import prototype_table, write_csv
from uniproto.selection.storage import (
    CERTIFICATE,
    MANIFEST,
    PLAN,
    PROTOTYPES,
    PROTOTYPES_CSV,
    SELECTION,
    compared,
    ids_of,
    named_rows,
)
from uniproto.transport.prototypes import transport

_SUMS = 1e-12  # how far rounding puts costs off, as a share of them
_SHARES = 1e-9  # the same of sums of shares, and of bounds, which add up as many numbers
_PROVEN_ENTRIES = 200_000_000  # costs up to which a bound is proven in double precision
_EMBEDDED = 1e-5  # vectors computed again, in other batches, are off by as much
# Costs that rise to 1 or 2 are made of rows of length 1, or of a curve, which are rounded as such.
_BOUNDED = dict.fromkeys(("cosine", "rbf", "laplacian"), 1e-14)
_WRITTEN = 1e-6  # of a cost in chosen.jsonl: it is rounded
_PATIENCE = 20.0  # times the work in which a search found its proof
_SINGLE = 1e-3  # how far rounding on another machine puts a bound off that is not


class Check(NamedTuple):
    """One thing a result claims, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str = ""


def changed_files(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The files of a result that are not those of its manifest."""
    digests = found if isinstance(found := manifest.get("files"), dict) else {}
    optional = (PROTOTYPES, PROTOTYPES_CSV, CERTIFICATE, CHOSEN, EXCLUDED)
    there = {name for name in optional if place_of(folder, MANIFEST, name).exists()}
    return sorted(
        name
        for name in {SELECTION, PLAN} | there | digests.keys()
        if Path(name).name != name  # of another folder
        or not (path := place_of(folder, MANIFEST, name)).is_file()
        or file_digest(path) != digests.get(name)
    )


def record_check(result: Result) -> Check:
    """Whether what the record says of the question, which people read, is true of the inputs."""
    manifest, problem, call = result.manifest, result.problem, result.call
    method = as_method(call["method"])
    notes = {
        "target_weights": problem.weights_origin,
        "bandwidth_from": problem.bandwidth_origin,
    }
    found = {
        "method": method.name,
        "options": recorded_options(method),
        "seed": call.get("seed", 0),
        "metric": problem.costs.metric,
        "bandwidth": problem.costs.bandwidth,
        "features": None,
        "preparation": None,
        **compared(problem.given),
    }
    found = json.loads(json.dumps(found))
    others = [name for name in found if manifest.get(name, found[name]) != found[name]]
    others += [name for name in notes if notes[name] != manifest["notes"].get(name)]
    return Check("the record agrees with the inputs", not others, ", ".join(others))


def rows_check(result: Result) -> Check:
    broken = broken_conditions(result.selection.indices, result.problem)
    claim = f"{result.problem.k} different rows of the source are chosen, all of them allowed"
    if result.problem.keep is not None:
        least = least_kept(result.problem.keep)
        claim += f", and at least {counted(least, 'earlier prototype')} among them"
    return Check(claim, not broken, "; ".join(broken))


def broken_conditions(rows: NDArray[np.int64], problem: Problem) -> list[str]:
    """Which conditions the rows break: include, exclude, groups, limits, min_distance."""
    broken, given = [], len(problem.initial)
    if not np.array_equal(rows[:given], problem.initial):
        broken.append("the given rows do not come first")
    if not np.isin(rows[given:], problem.candidates).all():
        broken.append("an excluded row is chosen")
    broken += [
        f"group {group.label} has another number of rows"
        for group in problem.groups
        if np.isin(rows, group.source_rows).sum() != group.problem.k
    ]
    for rule in problem.rules:
        broken += rule.broken(rows)
    if problem.twin_distance is not None:
        near = np.array([problem.costs.twin_distances(int(row), rows) for row in rows])
        twins = near <= problem.twin_distance
        twins &= twins.T
        np.fill_diagonal(twins, False)
        twins[:given, :given] = False
        if twins.any():
            broken.append("two chosen rows are near-duplicates")
    return broken


def names_check(result: Result, folder: Path) -> Check:
    """Whether ids and copied rows, which people read, are those of the inputs, in every file."""

    def content(name: str) -> BytesIO:
        return BytesIO(read_published(folder, MANIFEST, name))

    manifest, selection, problem, _ = result
    listed = manifest["files"]
    table = problem.given.inputs[0].table
    chosen = None if table is None else table.take(selection.indices)
    columns, arrays, named = named_rows(selection, ids_of(problem))
    checks: dict[str, Callable[[], bool]] = {
        SELECTION: lambda: _same_table(pq.read_table(content(SELECTION)), pa.table(columns)),
        PLAN: lambda: _same_arrays(content(PLAN), arrays),
        MANIFEST: lambda: manifest.get("id") == named.get("id"),
    }
    if chosen is not None:
        as_csv = BytesIO()
        write_csv(prototype_table(selection, chosen), as_csv)
        checks[PROTOTYPES] = lambda: _same_table(pq.read_table(content(PROTOTYPES)), chosen)
        checks[PROTOTYPES_CSV] = lambda: content(PROTOTYPES_CSV).getvalue() == as_csv.getvalue()
    if CHOSEN in listed:
        checks[CHOSEN] = lambda: _same_lines(content(CHOSEN), chosen, result)
    if EXCLUDED in listed:
        excluded = set(map(str, problem.near_rows))
        checks[EXCLUDED] = lambda: _first_values(content(EXCLUDED)) == excluded
    wrong = [name for name, check in checks.items() if not _holds(check)]
    return Check("rows and ids are those of the inputs", not wrong, ", ".join(wrong))


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:  # what a parser makes of a forged file can be anything
        return False


def _same_arrays(file: BytesIO, arrays: Mapping[str, Any]) -> bool:
    with np.load(file, allow_pickle=False) as found:
        same = (np.array_equal(found[name], arrays[name]) for name in arrays)
        return set(found) == arrays.keys() and all(same)


def _same_table(found: pa.Table, expected: pa.Table) -> bool:
    """Whether two tables are the same; a NaN, which equals nothing, is as good as another."""
    once = BytesIO()  # reading back names the items of lists
    pq.write_table(expected, once)
    files = BytesIO(), BytesIO()
    for file, table in zip(files, (found, pq.read_table(once)), strict=True):
        pq.write_table(table, file)
    return files[0].getvalue() == files[1].getvalue()


def _same_lines(file: BytesIO, chosen: pa.Table, result: Result) -> bool:
    """Whether chosen.jsonl holds these rows in this order, with what each serves and costs."""
    rows = json.loads(json.dumps(json_rows(chosen), default=str))
    plan, costs = result.selection.plan.sorted_indices(), result.problem.k * _paid(result)[0]
    served = np.split(plan.indices, plan.indptr[1:-1])
    for place, (line, row) in enumerate(zip(file, rows, strict=True)):
        found, added = json.loads(line), {"rank": place + 1, "serves": served[place].tolist()}
        off = abs(found.pop(free_name("cost", row)) - costs[place])
        if not off <= _WRITTEN + _slack(result):
            return False
        if found != row | {free_name(name, row): value for name, value in added.items()}:
            return False
    return True


def _first_values(file: BytesIO) -> set[str]:
    """What stands in the first column below its name."""
    return {line[0] for line in list(csv.reader(StringIO(file.getvalue().decode())))[1:]}


def plan_check(result: Result) -> Check:
    problem, plan, weights = result.problem, result.selection.plan, result.problem.masses.weights
    rows_off = np.abs(plan.sum(axis=1) * problem.k - 1).max()
    columns_off = np.abs(plan.sum(axis=0) - weights).max() / weights.max()
    learned = np.ptp(result.selection.weights) > 0  # which only the method could find again
    return Check(
        f"the plan gives every chosen row 1/{problem.k} and every target its weight",
        bool((plan.data >= 0).all() and rows_off <= _SHARES and columns_off <= _SHARES),
        f"weights that {result.selection.details.method} learned are not checked"
        if learned
        else "",
    )


def _slack(result: Result) -> float:
    """How far vectors that were computed again may put any cost off."""
    embedded = "embedding" in result.manifest["inputs"]["source"]
    return _EMBEDDED * result.problem.costs.ceiling if embedded else 0.0


def cost_checks(result: Result) -> Iterator[Check]:
    """The cost of the plan as it is written, and of the best plan of these rows."""
    selection, problem = result.selection, result.problem
    paid, rounding = _paid(result)
    found = float(paid.sum())
    tolerance = rounding + _SUMS * found + _slack(result)
    yield Check(
        "the plan costs what is written",
        abs(found - selection.cost) <= tolerance,
        f"{selection.cost:.10g} written, {found:.10g} found",
    )
    best = transport(problem, selection.indices)
    if not (best.is_exact or selection.cost_is_exact):
        return  # then no exact solve fits, and the cost is the plan's
    yield Check(
        "no plan of these rows costs less",
        best.is_exact == selection.cost_is_exact
        and abs(best.cost - selection.cost) <= 2 * tolerance + _SUMS * best.cost,
        f"{best.cost:.10g} by another exact solve",
    )
    written, costs = selection.group_costs, {}
    for group in problem.groups:
        inside = np.flatnonzero(np.isin(group.source_rows, selection.indices))
        costs[plain(group.label)] = transport(group.problem, inside).cost
    if written or costs:
        off = {label: abs(written.get(label, math.nan) - cost) for label, cost in costs.items()}
        wrong = [label for label in off if not off[label] <= 2 * tolerance + _SUMS * costs[label]]
        holds = written.keys() == costs.keys() and not wrong
        yield Check("the groups cost what is written", holds, ", ".join(map(str, wrong)))


def _paid(result: Result) -> tuple[NDArray[np.float64], float]:
    """What the plan pays for each row, and how far rounding of those costs may put the sum off.

    Costs come from the differences of two rows, so that a third one, however far, puts none off.
    """
    costs, plan, k = result.problem.costs, result.selection.plan, result.problem.k
    arcs = arc_costs(result.problem, result.selection.indices, plan)
    least, most = (extreme_costs(costs, arcs, side) for side in (-1, 1))
    rounding = float((most - least) @ plan.data)
    places = np.repeat(np.arange(k), np.diff(plan.indptr))
    found = np.bincount(places, arcs * plan.data, minlength=k).astype(np.float64)
    return found, min(rounding, _SHARES * found.sum() + _BOUNDED.get(costs.metric, 0.0))


def certificate_checks(result: Result) -> Iterator[Check]:
    """The proof that no choice costs less, the lower bound and the gap, where they are recorded."""
    selection, problem = result.selection, result.problem
    certificate, proof = selection.certificate, None
    if selection.details.proof is not None or (certificate and certificate.proof is not None):
        proof = prove(problem, selection.indices, Budget(), _slack(result), patience=_PATIENCE)
        recorded = {
            selection.details.proof,
            selection.details.proof if certificate is None else certificate.proof,
        }
        claim = f"no choice of {problem.k} rows costs less: the proof was found again"
        found = "there is none" if proof is None else proof.why
        yield Check(claim, proof is not None and recorded == {proof.why}, found)
    if certificate is None:
        return
    yield bound_check(result, None if proof is None else proof.least)
    record, gap = result.manifest["certificate"], certificate.gap
    yield Check(
        "the gap is that of the cost and the bound",
        record["gap"] == (gap if math.isfinite(gap) else None)
        and record["absolute_gap"] == certificate.absolute_gap
        and record["relative"] == (problem.costs.metric not in SHIFTED),
    )


def bound_check(result: Result, least: float | None = None) -> Check:
    """The lower bound against what the prices prove, or against `least`, which is proven."""
    certificate, problem = result.selection.certificate, result.problem
    assert certificate is not None
    paid, rounding = _paid(result)
    tolerance = 2 * rounding + _SHARES * paid.sum() + _slack(result)
    bound, how, found = certificate.lower_bound, "the prices prove it", ""
    lowest = -math.inf
    if least is None:
        least = _proven_by(certificate.prices, problem)
        if problem.m * problem.n > _PROVEN_ENTRIES:
            tolerance = max(tolerance, _SINGLE * least)
            found = f", compared to {_SINGLE:.1%} in single precision"
    else:
        how, lowest = "the same proof says so", least - tolerance
    return Check(
        f"no choice of {problem.k} rows can be below the lower bound: {how}",
        lowest <= bound <= least + tolerance,
        f"{bound:.10g} written, {least:.10g} proven{found}",
    )


def _proven_by(prices: NDArray[np.float64], problem: Problem) -> float:
    """The bound that prices prove, less all rounding; in double precision unless it takes hours.

    A constant is taken off the prices first: it proves nothing, and a large one hides the others.
    """
    with np.errstate(all="ignore"):
        prices = prices - prices.min()
        if not np.isfinite(prices).all():
            return -math.inf
        try:
            in_double = problem.m * problem.n <= _PROVEN_ENTRIES
            return (proven_bound if in_double else bound_by_rows)(problem, prices)
        except OverflowError:  # of their sum
            return -math.inf
