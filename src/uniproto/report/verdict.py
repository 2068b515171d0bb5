"""How good the selection is: its cost next to random's, the bound and other methods'."""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.errors import TooFewApartError
from uniproto.geometry.metrics import metric_label
from uniproto.methods.grouped import pick
from uniproto.methods.random import Random
from uniproto.problem.keep import is_kept, kept_in_words, least_kept
from uniproto.problem.problem import Problem
from uniproto.report.targets import typical_cost
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
    from uniproto.report.content import Content
    from uniproto.selection.selection import Selection

RANDOM_DRAWS = 5
_RANDOM_SECONDS = 30.0
_DISTANCES = ("cosine", "euclidean", "l1")
_LOOSE = 1.0  # a cost this far above the bound, as a share of it: the bound is too loose to show


@dataclass(frozen=True)
class Tile:
    """One number of the verdict, and what it means."""

    name: str
    value: str
    words: str


@dataclass(frozen=True)
class Verdict:
    headline: str
    sentence: str
    tiles: list[Tile]


@dataclass(frozen=True)
class CostCurve:
    """What the picks cost, added up, as shares of the total: the last is the cost."""

    title: str
    values: list[float]
    words: str


@dataclass(frozen=True)
class Rival:
    """A method's cost in the final comparison."""

    name: str
    cost: float
    spread: float | None
    runs: int


def random_costs(
    selection: Selection,
    problem: Problem | None,
    draws: int | None,
    comparison: Mapping[str, Any] | None,
) -> tuple[list[float], str]:
    """Costs of random choices: from a comparison, or drawn now, as many as half a minute allows."""
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
    limit = _RANDOM_SECONDS if draws is None else math.inf
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
        try:
            picks, _ = pick(problem.with_seed(seed), Random(), Progress(False))
        except TooFewApartError:  # after the first rows drawn, too few others are far enough away
            wanted -= 1
            continue
        found.append(transport(problem, picks.rows).cost)
        spent = time.perf_counter() - begin
        if spent + spent / len(found) > limit:
            break
    if not found:
        return [], "Random's cost is missing: random choices leave too few rows that far apart."
    note = "" if len(found) == wanted else f"Time allowed {counted(len(found), 'random choice')}."
    return found, note


def mean_in_words(costs: Sequence[float]) -> str:
    """Their mean, and the spread where there is one.

    >>> mean_in_words([0.5, 0.7])
    '0.6000 ± 0.14'
    """
    mean, spread = mean_and_spread(costs)
    assert mean is not None
    return figure(mean) + ("" if spread is None else f" ± {figure(spread, 2)}")


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
    label = metric_label(selection.details.metric, selection.details.bandwidth)
    words = f"{label} distance" if selection.details.metric in _DISTANCES else f"{label} cost"
    return words if selection.details.preparation is None else f"{words} in spreads of a column"


def verdict_of(content: Content) -> Verdict:
    selection, n, random = content.selection, content.weighed, content.draws
    k, (m, everyone), cost = selection.k, selection.details.shape, selection.cost
    word = "" if selection.cost_is_exact else "at most "
    tiles = [
        Tile(
            "Cost",
            f"{word}{figure(cost)}",
            f"mean {_unit(selection)} to the {content.noun}s, each of which has the same weight"
            + ("" if selection.cost_is_exact else "; no exact solve fits"),
        )
    ]
    parts = [
        f"On average a target is {word}{figure(cost)} from its {content.noun} ({_unit(selection)})"
    ]
    if content.costs is not None:
        parts.append(f", a typical one {figure(typical_cost(content.costs, content.weights))}")
    if random:
        mean, _ = mean_and_spread(random)
        assert mean is not None
        value = mean_in_words(random)
        below = _compared(cost, mean)
        draws = counted(len(random), "random choice")
        tiles.append(Tile("Random", value, f"{draws} of {k:,}: this one is {below}"))
        parts.append(f"; with random ones {value} ({counted(len(random), 'draw')}: {below})")
    certificate, proof = selection.certificate, selection.details.proof
    best, known = "not known", f"{content.certifier} proves a lower bound"
    none = f"no choice of {k:,}{content.conditions}"
    if proof is not None:
        best, known = figure(cost), f"{none} costs less: {proof}"
        parts.append(f"; {none} costs less (proven)")
    elif certificate is not None:
        bound, room = figure(certificate.lower_bound), _room(certificate)
        early = "" if certificate.converged else "; the search for the bound stopped early"
        best, known = f"≥ {bound}", f"{none} can be below this: {room}{early}"
        parts.append(f"; {none} can be below {bound}")
    tiles += [
        Tile("Best possible", best, known),
        Tile(
            f"{content.noun.capitalize()}s",
            f"{k:,}",
            f"of {counted(m, 'source row')}, each with weight 1/{k:,}",
        ),
        Tile(
            "Targets",
            f"{n:,}",
            f"{figure(n / k, 3)} to a {content.noun}, by mass"
            + (f"; {everyone - n:,} more have no weight" if n < everyone else ""),
        ),
        Tile(
            "Time",
            seconds(sum(selection.details.timings.values())),
            ", ".join(
                f"{name} {seconds(spent)}"
                for name, spent in selection.details.timings.items()
                if spent >= 0.001
            )
            or "not recorded",
        ),
    ]
    headline = f"{counted(k, 'example')} represent{'s' if k == 1 else ''} {n:,}"
    return Verdict(headline, "".join(parts) + ".", tiles)


def _room(certificate: Certificate) -> str:
    """How far the cost is above the bound, as a share of the bound."""
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
        return "the same"
    share = 1 - cost / other
    return f"{abs(share):.1%} {'lower' if share > 0 else 'higher'}"


def conditions_of(problem: Problem | None) -> str:
    if problem is None:
        return ""
    if problem.keep is not None:
        earlier = int(is_kept(problem.keep, np.arange(problem.m)).sum())
        return kept_in_words(least_kept(problem.keep), earlier)
    barred = len(problem.initial) + len(problem.candidates) < problem.m
    return " under the same conditions" if problem.groups or len(problem.initial) or barred else ""


def curve_of(content: Content) -> CostCurve | None:
    selection, k, plan = content.selection, content.k, content.plan
    if content.fills is not None:
        values = np.cumsum(content.fills) / k
        end = figure(float(values[-1]))
        words = f"The fills of all {k:,} picks add up to {end}"
        if "stages" in selection.details.notes:
            words += f", what these {content.noun}s cost."
        elif selection.group_costs:
            words += "; each is a cost inside the pick's own group."
        else:
            words += f"; an exact plan for the same rows costs {figure(selection.cost)}."
        return CostCurve("Cumulative fill cost over picks", values.tolist(), words)
    if content.arcs is None:
        return None
    places = np.repeat(np.arange(k), np.diff(plan.indptr))
    values = np.cumsum(np.bincount(places, plan.data * content.arcs, minlength=k))
    return CostCurve(
        "Cumulative cost over picks",
        values.tolist(),
        f"{selection.details.method} has no fills: this adds up what each {content.noun} costs in "
        "the final plan, in pick order.",
    )


def facts_of(selection: Selection) -> list[tuple[str, str]]:
    options = ", ".join(
        f"{name}={value}" for name, value in selection.details.options.items() if value is not None
    )
    found = [
        ("Method", f"{selection.details.method}{f' ({options})' if options else ''}"),
        ("Metric", metric_label(selection.details.metric, selection.details.bandwidth)),
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
