"""What the numbers mean, one sentence each, and what made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uniproto.problem.problem import Problem
from uniproto.report.shares import OVER, UNDER
from uniproto.report.verdict import conditions_of
from uniproto.report.words import counted, figure, page_text
from uniproto.runs.records import versions

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


def methods_box(
    selection: Selection, problem: Problem | None, random: Sequence[float]
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
            "Stands for",
            "The targets that a prototype sends mass to in the cheapest plan; a share is the part "
            "of the prototype's mass that goes there.",
        ),
        (
            "Gain and fill",
            "A fill is the average cost of the unclaimed target mass that a row would take when "
            f"it is picked; its gain is {figure(selection.beta)} (the largest possible cost) "
            "less the fill."
            if selection.method == "uniproto"
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
            "A lower bound by linear-programming duality that holds for every choice of "
            f"{k:,} rows{conditions_of(problem)}; its prices are saved, and 'uniproto verify' "
            "checks them."
            if selection.certificate is not None
            else "Was not computed; 'uniproto certify OUT' does.",
        ),
        (
            "Coverage",
            f"A class is marked where its number of prototypes is below {UNDER:.0%} or above "
            f"{OVER:.0%} of its share of the target, and off by one prototype at least.",
        ),
        (
            "Worst covered",
            "The targets whose mass is carried furthest: the highest average cost in the plan.",
        ),
    ]


def facts_of(selection: Selection) -> list[tuple[str, str]]:
    options = ", ".join(
        f"{name}={value}" for name, value in selection.options.items() if value is not None
    )
    weights = selection.notes.get("target_weights")
    found = [
        ("Method", f"{selection.method}{f' ({options})' if options else ''}"),
        ("Metric", selection.metric),
        ("Target weights", str(weights) if weights else ""),
        ("Seed", str(selection.seed)),
        ("Versions", ", ".join(f"{name} {number}" for name, number in _versions().items())),
    ]
    return [(name, page_text(value)) for name, value in found if value]


def _versions() -> dict[str, str]:
    import importlib.metadata

    import vl_convert

    return versions() | {
        "altair": importlib.metadata.version("altair"),
        "vega": vl_convert.get_vega_version(),
        "vega-lite": vl_convert.get_vegalite_versions()[-1],
    }
