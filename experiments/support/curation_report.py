"""Tables and the figure of `experiments/curation.py`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from support.statistics import Difference, by, difference
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

Rows = Sequence[Mapping[str, Any]]
Way = tuple[str, str]  # method and features
_WAY = ("method", "features")
OURS, RANDOM = ("uniproto", "gradients"), ("random", "none")
BESIDE_RANDOM, VERDICTS, BY_K = "uniproto, gradients − random", "uniproto, gradients", "by k"


def curation_reports(rows: Rows) -> dict[str, str]:
    """Every table of docs/curation-results.md, by its name.

    Over all settings UniPROT on gradients less random rows, and how often it is settled to be ahead
    of every other way. For each setting the log-perplexity after training and the time of choosing,
    exact answers, every way less random rows, UniPROT on gradients less every other way, and
    UniPROT on the features of each way less that way, draw by draw. At the end log-perplexity by k.
    """
    found = {BESIDE_RANDOM: _everywhere(rows), VERDICTS: _verdicts(rows)}
    for (pool, k, setting), of_setting in _settings(rows).items():
        title = f"pool {pool}, k = {k:,}, {setting}"
        found[title] = _after(of_setting, title)
        found[f"{title}, right"] = _right(of_setting, f"exactly right, %, {setting}")
        ways = _ways(of_setting)
        found[f"{title}, beside random"] = _differences(
            of_setting,
            f"… − random, {setting}",
            [way for way in ways if way != RANDOM],
            lambda way: (way, RANDOM),
        )
        found[f"{title}, beside"] = _differences(
            of_setting,
            f"uniproto, gradients − …, {setting}",
            [way for way in ways if way != OURS],
            lambda way: (OURS, way),
        )
        found[f"{title}, same features"] = _differences(
            of_setting,
            f"uniproto on the same features − …, {setting}",
            [way for way in ways if ("uniproto", way[1]) in ways and way[0] != "uniproto"],
            lambda way: (("uniproto", way[1]), way),
        )
    for (setting,), of_setting in by(rows, "setting").items():
        found[f"{BY_K}, {setting}"] = _by_k(of_setting, f"{BY_K}, {setting}")
    return found


def tables(rows: Rows) -> str:
    return "\n\n".join(curation_reports(rows).values())


def _settings(rows: Rows) -> dict[tuple[Any, ...], list[Any]]:
    """The rows of every setting: pools without the target's kind first, then by k."""
    found = by(rows, "pool", "k", "setting")
    return {key: found[key] for key in sorted(found, key=lambda key: (key[0] != "apart", key))}


def _everywhere(rows: Rows) -> str:
    """UniPROT on gradients less random rows in every setting."""
    settings = _settings(rows)
    shown = {BESIDE_RANDOM: [f"pool {pool}, k = {k:,}, {setting}" for pool, k, setting in settings]}
    for (target,) in by(rows, "target"):
        shown[target] = [
            _apart(by(found, "target").get((target,), []), OURS, RANDOM)
            for found in settings.values()
        ]
    return aligned(shown)


def _verdicts(rows: Rows) -> str:
    """Of all settings and targets with two draws or more: how often UniPROT is ahead of a way."""
    others = [way for way in _ways(rows) if way != OURS]
    counts = {way: {"below": 0, "open": 0, "above": 0} for way in others}
    for found in by(rows, "pool", "k", "setting", "target").values():
        for way in others:
            apart = _paired(found, OURS, way)
            if apart is not None and apart.error is not None:
                counts[way][apart.verdict] += 1
    kept = [way for way in others if any(counts[way].values())]
    return aligned(
        {f"{VERDICTS} beside …": [_name(way) for way in kept]}
        | {name: [str(counts[way][name]) for way in kept] for name in ("below", "open", "above")}
    )


def _by_k(rows: Rows, title: str) -> str:
    """Log-perplexity for every k, from the pool without the target's own kind, in equal steps."""
    apart = by(rows, "pool")[("apart",)]
    every = list(dict.fromkeys(sorted(row["k"] for row in apart)))
    ways = [way for way in _ways(apart) if _has_all(apart, way, every)]
    shown = {title: [_name(way) for way in ways for _ in every],
             "k": [f"{k:,}" for _ in ways for k in every]}  # fmt: skip
    for (target,), found in by(apart, "target").items():
        of_k = by(found, "k")
        each = {k: _means(of_k.get((k,), []), ways, "after", 1, 3) for k in every}
        shown[target] = [each[k][place] for place in range(len(ways)) for k in every]
    return aligned(shown)


def _has_all(rows: Rows, way: Way, every: Sequence[int]) -> bool:
    """Whether most targets were looked at with this way at every k."""
    targets = len(by(rows, "target"))
    of_way = by(by(rows, "method", "features")[way], "k")
    return all(2 * len(by(of_way.get((k,), []), "target")) > targets for k in every)


def _after(rows: Rows, title: str) -> str:
    """Log-perplexity of every way: mean ± standard error over the draws of each target."""
    ways, of_way = _ways(rows), by(rows, "method", "features")
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        before = np.mean([row["before"] for row in found])
        shown[f"{target} (before {before:.3f})"] = _means(found, ways, "after", 1, 3)
    for words in ("embedding", "choosing"):
        shown[f"{words}, s"] = [
            f"{np.mean([row[f'{words}_seconds'] for row in of_way[way]]):.1f}" for way in ways
        ]
    return aligned(shown)


def _right(rows: Rows, title: str) -> str:
    """How many held-out answers every way gives exactly, in per cent."""
    ways = _ways(rows)
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        before = 100 * np.mean([row["right_before"] for row in found])
        shown[f"{target} (before {before:.1f})"] = _means(found, ways, "right_after", 100, 1)
    return aligned(shown)


def _differences(
    rows: Rows, title: str, ways: Sequence[Way], pair: Callable[[Way], tuple[Way, Way]]
) -> str:
    """The first of a pair less the second, for these ways."""
    shown: dict[str, list[str]] = {title: [_name(way) for way in ways]}
    for (target,), found in by(rows, "target").items():
        shown[target] = [_apart(found, *pair(way)) for way in ways]
    return aligned(shown)


def _apart(rows: Rows, way: Way, other: Way) -> str:
    """One way less another over the draws they have in common: mean ± error, and what it says."""
    apart = _paired(rows, way, other)
    if apart is None:
        return "–"
    if apart.error is None:
        return f"{apart.mean:+.3f} one draw"
    return f"{apart.mean:+.3f} ± {apart.error:.3f} {apart.verdict}"


def _paired(rows: Rows, way: Way, other: Way) -> Difference | None:
    ours, theirs = (
        {row["seed"]: row["after"] for row in rows if (row["method"], row["features"]) == each}
        for each in (way, other)
    )
    both = [draw for draw in ours if draw in theirs]
    if not both:
        return None
    return difference([ours[draw] for draw in both], [theirs[draw] for draw in both])


def _ways(rows: Rows) -> list[Way]:
    """Methods and features in the order of the rows, UniPROT on gradients first."""
    return sorted(by(rows, "method", "features"), key=lambda way: way != OURS)


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
    """Every way less random rows, draw by draw, for the pool and k that most is known of."""
    import altair as alt

    from support.charts import dots_and_means
    from uniproto.report.charts import BLUE, GREY, loose_scale, small_multiples, styled

    (pool, k), most = max(by(rows, "pool", "k").items(), key=lambda found: len(found[1]))
    shown = _less_random(most)
    ways = [_name(way) for way in _ways(shown)]
    panels = [
        dots_and_means(
            found,
            x=alt.X("apart:Q", title="log-perplexity − random", scale=loose_scale(alt)),
            y=alt.Y("way:N", title=None, sort=ways, axis=alt.Axis(ticks=False)),
            series="way",
            colours={
                row["way"]: BLUE if row["method"].startswith("uniproto") else GREY for row in found
            },
            title=f"{target}, {setting}",
            height=18 * len({row["way"] for row in found}),
        )
        for (target, setting), found in by(shown, "target", "setting").items()
    ]
    return styled(
        small_multiples(panels, columns=2),
        f"Held-out rows after training on {k:,} chosen ones, pool {pool}",
        "left of 0: better than random rows; blue: UniPROT; circles: draws, diamonds: their mean",
    )


def _less_random(rows: Rows) -> list[dict[str, Any]]:
    """Rows of draws that random rows were trained on, too, with their difference `apart`.

    Without those of the target's rows alone, which are so far off that nothing else would show.
    """
    draws = by(rows, "target", "setting", "seed").values()
    found = []
    for draw in draws:
        at_random = [row["after"] for row in draw if (row["method"], row["features"]) == RANDOM]
        found += [
            {**row, "way": _name((row["method"], row["features"])), "apart": row["after"] - random}
            for random in at_random
            for row in draw
            if row["method"] != "target"
        ]
    return found


def picks_table(rows: Rows) -> list[str]:
    """Lines of a Markdown table about the picks of rows of mawps, by way, over all draws.

    How many per cent are generated questions and how many of asdiv; the mean distance to the
    nearest row of the target and the density of the pool around them, by gradients.
    """
    found = []
    for way, of_way in by([row for row in rows if row["target"] == "mawps"], *_WAY).items():
        sources, counts = zip(*((row["source"], row["rows"]) for row in of_way), strict=True)
        shares = [
            100 * np.dot([kind in source for source in sources], counts) / sum(counts)
            for kind in ("/DM/", "/asdiv")
        ]
        cells = [f"{share:.0f}" for share in shares] + ["–", "–"]
        if of_way[0]["distance"] is not None:
            distance, density = (
                np.average([row[name] for row in of_way], weights=counts)
                for name in ("distance", "density")
            )
            cells[2:] = [f"{distance:.3f}", f"{density:.0f}"]
        found.append(f"| {_name(way)} | {' | '.join(cells)} |")
    return found
