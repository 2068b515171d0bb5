"""What a saved result claims, recomputed from its files and from its inputs.

Tolerances come from the costs in use: no price, and no cost that nobody pays, excuses anything.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
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
from uniproto.cli.inputs import Inputs
from uniproto.cli.select import CHOSEN, EXCLUDED, as_json, free_name, ids_of
from uniproto.geometry.rounded_costs import extreme_costs
from uniproto.problem.problem import Problem
from uniproto.runs.publish import place_of, read_published
from uniproto.runs.records import plain
from uniproto.selection.prototypes import prototype_table, write_csv
from uniproto.selection.selection import Selection
from uniproto.selection.storage import (
    CERTIFICATE,
    MANIFEST,
    PLAN,
    PROTOTYPES,
    PROTOTYPES_CSV,
    SELECTION,
    named_rows,
)
from uniproto.transport.prototypes import transport

_SUMS = 1e-12  # how far rounding puts costs off, as a share of them
_SHARES = 1e-9  # the same of sums of shares, and of bounds, which add up as many numbers
_PROVEN_ENTRIES = 200_000_000  # costs up to which a bound is proven in double precision
_PROVEN = 1e-4  # of the cost: how far rounding may put the optimum below it
# Costs that rise to 1 or 2 are made of rows of length 1, or of a curve, which are rounded as such.
_BOUNDED = dict.fromkeys(("cosine", "rbf", "laplacian"), 1e-14)
_SINGLE = 1e-3  # how far rounding on another machine puts a bound off that is not


class Check(NamedTuple):
    """One thing a result claims, whether it holds (None: not checked), and what was found."""

    claim: str
    holds: bool | None
    found: str = ""


def changed_files(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The files of a result that are not those of its manifest."""
    from uniproto.data.tables import file_digest

    said = manifest.get("files")
    digests: dict[str, Any] = said if isinstance(said, dict) else {}
    place = partial(place_of, folder, MANIFEST)
    optional = (PROTOTYPES, PROTOTYPES_CSV, CERTIFICATE, CHOSEN, EXCLUDED)
    there = {name for name in optional if place(name).exists()}
    return sorted(
        name
        for name in {SELECTION, PLAN} | there | digests.keys()
        if Path(name).name != name  # of another folder
        or not place(name).is_file()
        or file_digest(place(name)) != digests.get(name)
    )


def broken_conditions(rows: NDArray[np.int64], problem: Problem) -> list[str]:
    """What the rows must keep to and do not: `initial`, `exclude`, groups, limits, `distinct`."""
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
    if problem.limits is not None:
        broken += problem.limits.broken(rows)
    if problem.twin_distance is not None:
        near = np.array([problem.costs.twin_distances(int(row), rows) for row in rows])
        twins = near <= problem.twin_distance
        twins &= twins.T
        np.fill_diagonal(twins, False)
        twins[:given, :given] = False
        if twins.any():
            broken.append("two chosen rows are near-duplicates")
    return broken


def wrong_names(
    folder: Path, manifest: Mapping[str, Any], selection: Selection, inputs: Inputs
) -> list[str]:
    """The files whose ids or copied rows, which people read, are not those of the inputs."""

    def content(name: str) -> BytesIO:
        return BytesIO(read_published(folder, MANIFEST, name))

    listed, pool = manifest["files"], inputs.pool.table
    columns, arrays, named = named_rows(selection, **ids_of(inputs))
    checks: dict[str, Callable[[], bool]] = {
        SELECTION: lambda: _same_table(pq.read_table(content(SELECTION)), pa.table(columns)),
        PLAN: lambda: _same_arrays(content(PLAN), arrays),
        MANIFEST: lambda: manifest.get("id") == named.get("id"),
    }
    if pool is not None:
        chosen, as_csv = pool.take(selection.indices), BytesIO()
        write_csv(prototype_table(selection, chosen), as_csv)
        checks[PROTOTYPES] = lambda: _same_table(pq.read_table(content(PROTOTYPES)), chosen)
        checks[PROTOTYPES_CSV] = lambda: content(PROTOTYPES_CSV).getvalue() == as_csv.getvalue()
    if CHOSEN in listed:
        checks[CHOSEN] = lambda: _same_lines(content(CHOSEN), chosen, selection)
    if EXCLUDED in listed:
        excluded = set(map(str, inputs.spec.near_rows or ()))
        checks[EXCLUDED] = lambda: _first_values(content(EXCLUDED)) == excluded
    named_files = (SELECTION, PLAN, PROTOTYPES, PROTOTYPES_CSV)
    missing = [name for name in named_files if name in checks and name not in listed]
    return missing + [name for name in checks if name not in missing and not _holds(checks[name])]


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
    files = BytesIO(), BytesIO()
    for file, table in zip(files, (found, expected), strict=True):
        pq.write_table(table, file)
    return files[0].getvalue() == files[1].getvalue()


def _same_lines(file: BytesIO, chosen: pa.Table, selection: Selection) -> bool:
    """Whether chosen.jsonl holds these rows, in this order, each with the targets it serves."""
    rows = json.loads(json.dumps(as_json(chosen.to_pylist()), default=str))
    served = np.split(selection.plan.indices, selection.plan.indptr[1:-1])
    for place, (line, row) in enumerate(zip(file, rows, strict=True)):
        found, added = json.loads(line), {"rank": place + 1, "serves": served[place].tolist()}
        found.pop(free_name("cost", row))  # rounded, and not needed
        if found != row | {free_name(name, row): value for name, value in added.items()}:
            return False
    return True


def _first_values(file: BytesIO) -> set[str]:
    """What stands in the first column below its name."""
    return {line[0] for line in list(csv.reader(StringIO(file.getvalue().decode())))[1:]}


def plan_check(selection: Selection, problem: Problem) -> Check:
    plan, weights = selection.plan, problem.masses.weights
    rows_off = np.abs(plan.sum(axis=1) * problem.k - 1).max()
    columns_off = np.abs(plan.sum(axis=0) - weights).max() / weights.max()
    return Check(
        f"the plan gives every chosen row 1/{problem.k} and every target its weight",
        bool((plan.data >= 0).all() and rows_off <= _SHARES and columns_off <= _SHARES),
    )


def cost_checks(selection: Selection, problem: Problem, slack: float) -> Iterator[Check]:
    """The cost of the plan as it is written, and of the best plan of these rows."""
    found, rounding = _cost_of_plan(selection, problem)
    tolerance = rounding + _SUMS * found + slack
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
    wrong = []
    for group in problem.groups:
        inside = np.flatnonzero(np.isin(group.source_rows, selection.indices))
        cost = transport(group.problem, inside).cost
        written = selection.group_costs.get(plain(group.label), math.nan)
        if not abs(cost - written) <= 2 * tolerance + _SUMS * cost:
            wrong.append(str(group.label))
    if problem.groups or selection.group_costs:
        as_many = len(problem.groups) == len(selection.group_costs)
        yield Check("the groups cost what is written", as_many and not wrong, ", ".join(wrong))


def _cost_of_plan(selection: Selection, problem: Problem) -> tuple[float, float]:
    """What the plan costs, and how far the rounding of the costs it pays may put that off.

    Costs come from the differences of two rows, so that a third one, however far, puts none off.
    """
    costs, plan = problem.costs, selection.plan
    found, rounding = 0.0, 0.0
    for place, row in enumerate(selection.indices):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        paid = costs.exact_block(np.array([row]), plan.indices[part])
        least, most = (extreme_costs(costs, paid, side)[0] for side in (-1, 1))
        found += float(paid[0] @ plan.data[part])
        rounding += float((most - least) @ plan.data[part])
    return found, min(rounding, _SHARES * found + _BOUNDED.get(costs.metric, 0.0))


def bound_checks(
    record: Mapping[str, Any], selection: Selection, problem: Problem, slack: float
) -> Iterator[Check]:
    """What the prices prove, less all rounding, beside the bound that is written.

    A constant is taken off the prices first: it proves nothing, and a large one hides the others.
    """
    certificate = selection.certificate
    assert certificate is not None
    bound, found = certificate.lower_bound, f"{certificate.lower_bound:.10g} written"
    cost, rounding = _cost_of_plan(selection, problem)
    tolerance = 2 * rounding + _SHARES * cost + slack
    proven, how = -math.inf, "the prices prove it"
    with np.errstate(all="ignore"):
        prices = certificate.prices - certificate.prices.min()
        if certificate.proof is not None and not problem.groups:
            proven, how = _optimum(problem), "nor below the cost, as a look at all of them proves"
            bound = cost * (1 - _PROVEN)
        elif np.isfinite(prices).all():
            in_double = problem.m * problem.n <= _PROVEN_ENTRIES
            try:
                proven = (proven_bound if in_double else bound_by_rows)(problem, prices)
            except OverflowError:  # of their sum
                in_double = True
            if not in_double:  # which would take hours
                tolerance = max(tolerance, _SINGLE * proven)
                found += f", compared to {_SINGLE:.1%} in single precision"
    yield Check(
        f"no choice of {problem.k} rows can be below the lower bound: {how}",
        bound <= proven + tolerance,
        f"{found}, {proven:.10g} proven",
    )
    gap = certificate.gap if math.isfinite(certificate.gap) else None
    yield Check(
        "the gap is that of the cost and the bound",
        _same(record["gap"], gap)
        and _same(record["absolute_gap"], certificate.absolute_gap)
        and record["relative"] == (problem.costs.metric not in SHIFTED),
    )


def _optimum(problem: Problem) -> float:
    """The cost that no choice is below, where so few are possible that all can be ruled out."""
    from uniproto.methods.thorough.search import pick_thoroughly
    from uniproto.runtime.progress import Progress

    proof = pick_thoroughly(problem, None, Progress(False)).proof
    return -math.inf if proof is None else proof.least


def _same(said: float | None, found: float | None) -> bool:
    if said is None or found is None:
        return said is found
    return math.isclose(said, found, rel_tol=_SUMS)
