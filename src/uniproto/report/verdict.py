"""How good the selection is: its cost beside random's, the bound and other methods'."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.methods.grouped import pick
from uniproto.methods.random import Random
from uniproto.problem.problem import Problem
from uniproto.report.content import Curve, Rival, Tile, Verdict
from uniproto.report.words import (
    LONGEST_NAME,
    NO_DATA,
    counted,
    cut,
    figure,
    mean_and_spread,
    seconds,
)
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import transport

if TYPE_CHECKING:
    from uniproto.certificate.bound import Certificate
    from uniproto.selection.selection import Selection

RANDOM_DRAWS = 5
_RANDOM_SECONDS = 30.0
_LOOSE = 0.5  # of the cost: a bound that leaves more than this open tells nobody anything


def random_costs(
    selection: Selection,
    problem: Problem | None,
    draws: int | None,
    comparison: Mapping[str, Any] | None,
) -> tuple[list[float], str]:
    """Costs of random choices: from a comparison, or drawn now where that is affordable."""
    if draws == 0:
        return [], "Random choices were not asked for."
    if comparison is not None and draws is None:
        rows = [row for row in comparison["rows"] if row["method"] == "random"]
        known = [row["cost"] for row in rows if row["cost"] is not None]
        if known:
            return known, ""
    if problem is None:
        return [], "Random's cost is not known. " + NO_DATA
    if not selection.cost_is_exact:
        return [], "Random's cost is left out: no exact solve fits this many targets."
    limit = _RANDOM_SECONDS if draws is None else math.inf
    expected = selection.timings.get("plan", 0.0)
    if expected > limit:
        return [], (
            f"Random's cost is left out: one exact solve took {seconds(expected)} here. "
            "Ask for it with --random 5 (random=5 in Python)."
        )
    found: list[float] = []
    begin = time.perf_counter()
    wanted = RANDOM_DRAWS if draws is None else draws
    for seed in range(wanted):
        picks, _ = pick(problem.with_seed(seed), Random(), Progress(False))
        found.append(transport(problem, picks.rows).cost)
        spent = time.perf_counter() - begin
        if spent + spent / len(found) > limit:
            break
    note = "" if len(found) == wanted else f"Time allowed {counted(len(found), 'random choice')}."
    return found, note


def rivals_of(
    selection: Selection, random: Sequence[float], comparison: Mapping[str, Any] | None
) -> list[Rival]:
    found = [Rival("this selection", selection.cost, None, 1)]
    summaries = [] if comparison is None else list(comparison["summary"])
    if random and not any(summary["method"] == "random" for summary in summaries):
        mean, spread = mean_and_spread(random)
        assert mean is not None
        found.append(Rival("random", mean, spread, len(random)))
    found += [
        Rival(
            cut(summary["method"], LONGEST_NAME),
            float(summary["cost"]),
            summary["cost_spread"],
            int(summary["runs"]),
        )
        for summary in summaries
        if summary["cost"] is not None
    ]
    return sorted(found, key=lambda rival: rival.cost)


def verdict_of(
    selection: Selection, problem: Problem | None, n: int, random: Sequence[float]
) -> Verdict:
    k, (m, everyone), cost = selection.k, selection.shape, selection.cost
    word = "" if selection.cost_is_exact else "at most "
    tiles = [
        Tile(
            "Cost",
            f"{word}{figure(cost)}",
            "optimal transport between the prototypes, all counting equally, and the target"
            + ("" if selection.cost_is_exact else "; no exact solve fits"),
        )
    ]
    parts = [f"They cost {word}{figure(cost)}"]
    if random:
        mean, spread = mean_and_spread(random)
        assert mean is not None
        value = figure(mean) + ("" if spread is None else f" ± {figure(spread, 2)}")
        below = _compared(cost, mean)
        draws = counted(len(random), "random choice")
        tiles.append(Tile("Random", value, f"{draws} of {k:,}: this one is {below}"))
        parts.append(f", {below} than random ({value} over {counted(len(random), 'draw')})")
    conditions = conditions_of(problem)
    certificate = selection.certificate
    if certificate is not None:
        bound, room = figure(certificate.lower_bound), _room(certificate, cost)
        early = "" if certificate.converged else "; the search for the bound stopped early"
        tiles.append(
            Tile(
                "Best possible",
                f"≥ {bound}",
                f"no choice of {k:,}{conditions} can be below this: {room}{early}",
            )
        )
        parts.append(f"; no choice of {k:,}{conditions} can be below {bound}")
    else:
        tiles.append(
            Tile("Best possible", "not known", "'uniproto certify OUT' proves a lower bound")
        )
    tiles += [
        Tile("Prototypes", f"{k:,}", f"of {counted(m, 'source row')}, each counting 1/{k:,}"),
        Tile(
            "Targets",
            f"{n:,}",
            f"{figure(n / k, 3)} to a prototype, by mass"
            + (f"; {everyone - n:,} more have no weight" if n < everyone else ""),
        ),
        Tile(
            "Time",
            seconds(sum(selection.timings.values())),
            ", ".join(f"{name} {seconds(spent)}" for name, spent in selection.timings.items())
            or "not recorded",
        ),
    ]
    headline = f"{counted(k, 'example')} stand{'s' if k == 1 else ''} for {n:,}"
    return Verdict(headline, "".join(parts) + ".", tiles)


def _room(certificate: Certificate, cost: float) -> str:
    """How much better than this the best choice could be."""
    if not certificate.relative:
        return f"at most {figure(certificate.absolute_gap)} could be gained"
    if math.isinf(certificate.gap):
        return "as no cost can: this bound says nothing"
    saved = 1 - certificate.lower_bound / cost if cost > 0 else 0.0
    if saved > _LOOSE:
        return "a loose bound, which says little"
    return f"at most {saved:.2%} could be saved"


def _compared(cost: float, other: float) -> str:
    if other <= 0 or abs(cost / other - 1) < 5e-4:
        return "no cheaper"
    share = 1 - cost / other
    return f"{abs(share):.1%} {'cheaper' if share > 0 else 'dearer'}"


def conditions_of(problem: Problem | None) -> str:
    if problem is None:
        return ""
    barred = len(problem.initial) + len(problem.candidates) < problem.m
    return " under the same conditions" if problem.groups or len(problem.initial) or barred else ""


def curve_of(
    selection: Selection,
    fills: NDArray[np.float64] | None,
    plan: sp.csr_array,
    arcs: NDArray[np.float64] | None,
) -> Curve | None:
    k = selection.k
    if fills is not None:
        values = np.cumsum(fills) / k
        end = figure(float(values[-1]))
        words = f"The fills of all {k:,} picks add up to {end}"
        if selection.options.get("polish"):
            words += ", what the polished prototypes cost."
        elif selection.group_costs:
            words += "; each is a cost inside the pick's own group."
        else:
            words += (
                f"; sharing the targets out anew among the same rows costs "
                f"{figure(selection.cost)}."
            )
        return Curve("Cumulative fill cost over picks", values.tolist(), words)
    if arcs is None:
        return None
    places = np.repeat(np.arange(k), np.diff(plan.indptr))
    values = np.cumsum(np.bincount(places, plan.data * arcs, minlength=k))
    return Curve(
        "Cumulative cost over picks",
        values.tolist(),
        f"{selection.method} has no fills: this adds up what each prototype costs in the final "
        "plan, in pick order.",
    )
