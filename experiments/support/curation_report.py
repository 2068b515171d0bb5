"""Tables and the figure of `experiments/curation.py`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from support.statistics import by, difference
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

Rows = Sequence[Mapping[str, Any]]
Way = tuple[str, str]  # method and features
OURS, RANDOM = ("uniproto", "gradients"), ("random", "none")


def curation_reports(rows: Rows) -> dict[str, str]:
    """Every table of docs/curation.md, by its name.

    For each setting the log-perplexity after training and the time of choosing, exact answers,
    every way less random rows, and UniPROT on gradients less every other way, draw by draw.
    """
    found = {}
    for (pool, k, setting), of_setting in by(rows, "pool", "k", "setting").items():
        title = f"pool {pool}, k = {k:,}, {setting}"
        found[title] = _after(of_setting, title)
        found[f"{title}, right"] = _right(of_setting, f"exactly right, %, {setting}")
        found[f"{title}, beside random"] = _differences(
            of_setting, f"… − random, {setting}", RANDOM, lambda way: (way, RANDOM)
        )
        found[f"{title}, beside"] = _differences(
            of_setting, f"uniproto, gradients − …, {setting}", OURS, lambda way: (OURS, way)
        )
    return found


def tables(rows: Rows) -> str:
    return "\n\n".join(curation_reports(rows).values())


def _after(rows: Rows, title: str) -> str:
    """Log-perplexity of every way: mean ± standard error over the draws of each target."""
    ways = by(rows, "method", "features")
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        before = np.mean([row["before"] for row in found])
        shown[f"{target} (before {before:.3f})"] = _means(found, list(ways), "after", 1, 3)
    for words in ("embedding", "choosing"):
        shown[f"{words}, s"] = [
            f"{np.mean([row[f'{words}_seconds'] for row in found]):.1f}" for found in ways.values()
        ]
    return aligned(shown)


def _right(rows: Rows, title: str) -> str:
    """How many held-out answers every way gives exactly, in per cent."""
    ways = list(by(rows, "method", "features"))
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        before = 100 * np.mean([row["right_before"] for row in found])
        shown[f"{target} (before {before:.1f})"] = _means(found, ways, "right_after", 100, 1)
    return aligned(shown)


def _differences(rows: Rows, title: str, fixed: Way, pair: Callable[[Way], tuple[Way, Way]]) -> str:
    """The first of a pair less the second, for every way beside the fixed one."""
    ways = [way for way in by(rows, "method", "features") if way != fixed]
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        shown[target] = [_apart(found, *pair(way)) for way in ways]
    return aligned(shown)


def _apart(rows: Rows, way: Way, other: Way) -> str:
    """One way less another over the draws they have in common: mean ± error, and what it says."""
    ours, theirs = (
        {row["seed"]: row["after"] for row in rows if (row["method"], row["features"]) == each}
        for each in (way, other)
    )
    both = [draw for draw in ours if draw in theirs]
    if not both:
        return "–"
    apart = difference([ours[draw] for draw in both], [theirs[draw] for draw in both])
    error = "one draw" if apart.error is None else f"± {apart.error:.3f}"
    return f"{apart.mean:+.3f} {error} {apart.verdict}"


def _means(rows: Rows, ways: Sequence[Way], column: str, factor: float, digits: int) -> list[str]:
    of_way = by(rows, "method", "features")
    return [_mean([factor * row[column] for row in of_way.get(way, [])], digits) for way in ways]


def _mean(values: Sequence[float], digits: int) -> str:
    mean, spread = mean_and_spread(values)
    if mean is None:
        return "–"
    if spread is None:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {spread / len(values) ** 0.5:.{digits}f}"


def _name(way: Way) -> str:
    method, features = way
    return method if features == "none" else f"{method}, {features}"


def chart(rows: Rows) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from uniproto.report.charts import BLUE, GREY, loose_scale, small_multiples, styled

    shown = [{**row, "way": _name((row["method"], row["features"]))} for row in rows]
    panels = [
        dots_and_means(
            found,
            x=alt.X("after:Q", title="log-perplexity", scale=loose_scale(alt)),
            y=alt.Y("way:N", title=None, sort=list(dict.fromkeys(row["way"] for row in found)),
                    axis=alt.Axis(ticks=False)),
            series="way",
            colours={row["way"]: BLUE if row["method"] == "uniproto" else GREY for row in found},
            title=f"{target}, {setting}",
        )
        for (target, setting), found in by(shown, "target", "setting").items()
    ]  # fmt: skip
    return styled(
        small_multiples(panels, columns=2),
        "Held-out rows of the target's source, after training on what was chosen",
        "circles: draws, diamonds: their mean",
    )
