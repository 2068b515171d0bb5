"""How good the selection is: its cost beside random's, the bound and other methods'."""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.metrics import metric_label
from uniproto.methods.grouped import pick
from uniproto.methods.random import Random
from uniproto.problem.problem import Problem
from uniproto.report.content import OVER, UNDER, Curve, Rival, Tile, Verdict
from uniproto.report.words import (
    LONGEST_NAME,
    NO_DATA,
    counted,
    cut,
    figure,
    mean_and_spread,
    page_text,
    seconds,
)
from uniproto.runs.records import versions
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import transport

if TYPE_CHECKING:
    from uniproto.certificate.certificate import Certificate
    from uniproto.selection.selection import Selection

RANDOM_DRAWS = 5
_RANDOM_SECONDS = 30.0
_DISTANCES = ("cosine", "euclidean", "l1")
_LOOSE = 1.0  # a cost this much above the bound, as a share of it: the bound says nothing


def random_costs(
    selection: Selection,
    problem: Problem | None,
    draws: int | None,
    comparison: Mapping[str, Any] | None,
    limit: float = _RANDOM_SECONDS,
) -> tuple[list[float], str]:
    """Costs of random choices: from a comparison, or drawn now within `limit` seconds."""
    if draws == 0:
        return [], "Random choices were switched off (--random 0)."
    if comparison is not None and draws is None:
        rows = [row for row in comparison["rows"] if row["method"] == "random"]
        known = [row["cost"] for row in rows if row["cost"] is not None]
        if known:
            return known, ""
    if problem is None:
        return [], "Random's cost is not known. " + NO_DATA
    if not selection.cost_is_exact:
        return [], "Random's cost is missing: no exact solve fits this many targets."
    limit = limit if draws is None else math.inf
    expected = selection.details.timings.get("plan", 0.0)
    if expected > limit:
        return [], (
            f"Random's cost is missing: one exact solve took {seconds(expected)} here. "
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


def _unit(selection: Selection) -> str:
    """What a cost is measured in."""
    label = metric_label(selection.metric, selection.bandwidth)
    words = f"{label} distance" if selection.metric in _DISTANCES else f"{label} cost"
    return words if selection.details.preparation is None else f"{words} in spreads of a column"


def _median(costs: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The cost that half of the mass does not exceed."""
    order = np.argsort(costs)
    reached = np.cumsum(weights[order]) >= weights.sum() / 2
    return float(costs[order[int(np.argmax(reached))]])


def verdict_of(
    selection: Selection,
    problem: Problem | None,
    n: int,
    random: Sequence[float],
    certifier: str,
    costs: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Verdict:
    k, (m, everyone), cost = selection.k, selection.shape, selection.cost
    word = "" if selection.cost_is_exact else "at most "
    tiles = [
        Tile(
            "Cost",
            f"{word}{figure(cost)}",
            f"mean {_unit(selection)} to the prototypes, each of which has the same weight"
            + ("" if selection.cost_is_exact else "; no exact solve fits"),
        )
    ]
    parts = [f"On average a target is {word}{figure(cost)} from its prototype ({_unit(selection)})"]
    if costs is not None and weights is not None:
        parts.append(f", a typical one {figure(_median(costs, weights))}")
    if random:
        mean, spread = mean_and_spread(random)
        assert mean is not None
        value = figure(mean) + ("" if spread is None else f" ± {figure(spread, 2)}")
        below = _compared(cost, mean)
        draws = counted(len(random), "random choice")
        tiles.append(Tile("Random", value, f"{draws} of {k:,}: this one is {below}"))
        parts.append(f"; with random ones {value} ({counted(len(random), 'draw')}: {below})")
    conditions = conditions_of(problem)
    certificate = selection.certificate
    if selection.details.proof is not None:
        known = f"no choice of {k:,}{conditions} costs less: {selection.details.proof}"
        tiles.append(Tile("Best possible", figure(selection.cost), known))
        parts.append(f"; no choice of {k:,}{conditions} costs less (proven)")
    elif certificate is not None:
        bound, room = figure(certificate.lower_bound), _room(certificate)
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
        tiles.append(Tile("Best possible", "not known", f"{certifier} proves a lower bound"))
    tiles += [
        Tile("Prototypes", f"{k:,}", f"of {counted(m, 'source row')}, each with weight 1/{k:,}"),
        Tile(
            "Targets",
            f"{n:,}",
            f"{figure(n / k, 3)} to a prototype, by mass"
            + (f"; {everyone - n:,} more have no weight" if n < everyone else ""),
        ),
        Tile(
            "Time",
            seconds(sum(selection.details.timings.values())),
            ", ".join(
                f"{name} {seconds(spent)}" for name, spent in selection.details.timings.items()
            )
            or "not recorded",
        ),
    ]
    headline = f"{counted(k, 'example')} represent{'s' if k == 1 else ''} {n:,}"
    return Verdict(headline, "".join(parts) + ".", tiles)


def _room(certificate: Certificate) -> str:
    """How far the cost is above the bound, as a share of the bound wherever that is said."""
    if certificate.limit_needed is not None:
        limit = seconds(certificate.limit_needed)
        return f"a bound that says nothing; one that does needs a time limit of about {limit}"
    if not certificate.relative:
        return f"at most {figure(certificate.absolute_gap)} could be gained"
    if math.isinf(certificate.gap):
        return "as no cost can: this bound says nothing"
    if certificate.gap > _LOOSE:
        return "a loose bound, which says little"
    return f"this choice is at most {certificate.gap:.2%} above it (the gap)"


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
        if (
            "exchanged" in selection.details.notes
            or selection.details.notes.get("search") == "multilevel"
        ):
            words += ", what these prototypes cost."
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


def methods_box(
    selection: Selection, problem: Problem | None, random: Sequence[float], certifier: str
) -> list[tuple[str, str]]:
    k = selection.k
    exact = (
        "an exact solve"
        if selection.cost_is_exact
        else "the plan at hand, as no exact solve fits: the true cost may be lower"
    )
    return [
        (
            "Cost",
            f"The least total of {selection.metric} costs, weighted by mass, that carries {k:,} "
            f"equal weights to the target's weights; by {exact}.",
        ),
        (
            "Represents",
            "The targets that a prototype sends mass to in the cheapest plan; a share is the part "
            "of the prototype's mass that goes there.",
        ),
        (
            "Gain and fill",
            "A fill is the average cost of the unclaimed target mass that a row would take when "
            f"it is picked; its gain is {figure(selection.details.beta)} (the largest possible "
            "cost) less the fill."
            if selection.method in ("uniproto", "greedy")
            else f"A gain is what the pick added to the objective of {selection.method} itself.",
        ),
        (
            "Random",
            f"The mean cost of {counted(len(random), 'random choice')} of as many rows, judged the "
            "same way, ± their standard deviation."
            if random
            else "Was not computed for this page.",
        ),
        (
            "Best possible",
            f"No choice of {k:,} rows{conditions_of(problem)} costs less: the search ruled out all "
            "others, and 'uniproto verify' does so again."
            if selection.details.proof is not None
            else "A lower bound by linear-programming duality that holds for every choice of "
            f"{k:,} rows{conditions_of(problem)}; its prices are saved, and 'uniproto verify' "
            "checks them."
            if selection.certificate is not None
            else f"Was not computed; {certifier} does.",
        ),
        (
            "Coverage",
            f"A class is marked where its number of prototypes is below {UNDER:.0%} or above "
            f"{OVER:.0%} of its share of the target, and off by one prototype at least. "
            "'Represented by its own' is the share of a class's mass that the plan gives to "
            "prototypes of the same class; 'metric=\"rbf\"' often raises it for small classes.",
        ),
        (
            "Worst covered",
            "The targets whose mass is carried furthest: the highest average cost in the plan.",
        ),
    ]


def facts_of(selection: Selection) -> list[tuple[str, str]]:
    options = ", ".join(
        f"{name}={value}" for name, value in selection.details.options.items() if value is not None
    )
    search, why = selection.details.note("search"), selection.details.note("why")
    found = [
        ("Method", f"{selection.method}{f' ({options})' if options else ''}"),
        ("Search", f"{search}: {why}" if search else ""),
        ("Metric", metric_label(selection.metric, selection.bandwidth)),
        ("Bandwidth", selection.details.note("bandwidth_from") or ""),
        ("Target weights", selection.details.note("target_weights") or ""),
        ("Seed", str(selection.details.seed)),
        ("Versions", ", ".join(f"{name} {number}" for name, number in _versions().items())),
    ]
    return [(name, page_text(value)) for name, value in found if value]


def _versions() -> dict[str, str]:
    import vl_convert

    return versions() | {
        "altair": importlib.metadata.version("altair"),
        "vega": vl_convert.get_vega_version(),
        "vega-lite": vl_convert.get_vegalite_versions()[-1],
    }
