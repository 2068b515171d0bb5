"""Tables and the figure's numbers of `experiments/bandwidth.py`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from support.statistics import ACCURACIES, by, difference
from uniproto.comparing.results import aligned

Rows = Sequence[dict[str, Any]]
CRITERION = "balanced_accuracy"  # of UniPROT on the tuning draws decides which share is chosen
_LINES = (  # of the table of docs/bandwidth.md: method, rows, σ (None: the plain metric)
    *(("uniproto", "as given", share) for share in (None, 0.35, 0.25, 0.2, 0.15, 0.1)),
    *(("uniproto", "unit", share) for share in (None, 0.35, 0.25, 0.2, 0.15, 0.1)),
    *(("kmedoids", kind, share) for kind in ("as given", "unit") for share in (None, 0.25)),
    ("mmd_critic", "as given", 0.25),
    ("mmd_critic", "unit", 0.25),
    ("kmeans", "as given", None),
    ("kmeans", "unit", None),
    ("random", "as given", None),
)


def bandwidth_reports(rows: Rows) -> dict[str, str]:
    """Every table of docs/bandwidth.md on the bandwidth, and those behind them, by name."""
    tuning, held_out = ([r for r in rows if r["draws"] == d] for d in ("tuning", "held out"))
    return {
        "shares": _shares_table(rows),
        "choice": _choice(rows),
        "without": _without_one(rows),
        "held out": _held_out_table(held_out),
        "own best": _own_best(rows),
        "same": "\n\n".join(_same(held_out, chosen_share(tuning))),
    }


def _setting(row: dict[str, Any]) -> str:
    plain = row["share"] is None
    return row["metric"] if plain else f"{row['rows']}, rbf {row['share']:g}"


def _scopes() -> Iterator[tuple[str, Callable[[dict[str, Any]], bool]]]:
    """Over what a mean is taken: everything, or one way and one kind of rows."""
    yield "all", lambda row: True
    for way in ("pool", "summary"):
        for kind in ("as given", "unit"):
            yield f"{way}, {kind}", _within(way, kind)


def _within(way: str, kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: row["way"] == way and row["rows"] == kind


def _gains(rows: Rows, share: float | None, column: str) -> list[float]:
    """UniPROT with σ less UniPROT in the plain metric: a mean for every data set."""
    ours = [row for row in rows if row["method"] == "uniproto"]
    plain = {_draw(row): row[column] for row in ours if row["share"] is None}
    apart = [
        {"data": row["data"], "gain": row[column] - plain[_draw(row)]}
        for row in ours
        if row["share"] == share
    ]
    return _by_data(apart, "gain")


def _draw(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["data"], row["way"], row["rows"], row["seed"]


def _by_data(rows: Rows, column: str) -> list[float]:
    """The mean of every data set, in the order of their names."""
    groups = by(rows, "data")
    return [float(np.mean([row[column] for row in groups[key]])) for key in sorted(groups)]


def _shares(rows: Rows) -> list[float]:
    return sorted({row["share"] for row in rows if row["share"] is not None}, reverse=True)


def chosen_share(rows: Rows) -> float:
    """The share of the median distance with the best criterion on the given draws."""
    return max(_shares(rows), key=lambda share: np.mean(_gains(rows, share, CRITERION)))


def _points(values: Sequence[float]) -> str:
    """Mean ± standard error, in points; draws of one data set are alike, so values are its."""
    return difference(list(values), [0.0] * len(values)).starred(100, 1).strip()


def _shares_table(rows: Rows) -> str:
    """What decides: the gain in balanced accuracy over the plain metric on the tuning draws."""
    tuning = [row for row in rows if row["draws"] == "tuning"]
    shares = _shares(rows)
    table = {"balanced, tuning draws": [f"rbf {share:g}" for share in shares]}
    for title, wanted in _scopes():
        some = list(filter(wanted, tuning))
        table[title] = [_points(_gains(some, share, CRITERION)) for share in shares]
    return aligned(table)


def _choice(rows: Rows) -> str:
    """The chosen σ by scope, how close the next one is, and what it gains on other draws."""
    lines: dict[str, list[str]] = {
        name: []
        for name in (
            "chosen on",
            "σ / median",
            "ahead of the next",
            *ACCURACIES.values(),
            "gain in",
        )
    }
    for title, wanted in _scopes():
        some = list(filter(wanted, rows))
        tuning = [row for row in some if row["draws"] == "tuning"]
        held_out = [row for row in some if row["draws"] == "held out"]
        best = chosen_share(tuning)
        others = [row for row in tuning if row["share"] != best]
        second = chosen_share(others)
        lead = np.subtract(_gains(tuning, best, CRITERION), _gains(tuning, second, CRITERION))
        lines["chosen on"].append(title)
        lines["σ / median"].append(f"{best:g}")
        lines["ahead of the next"].append(f"{_points(lead.tolist())} ({second:g})")
        for measure, word in ACCURACIES.items():
            lines[word].append(_points(_gains(held_out, best, measure)))
        gains = _gains(held_out, best, CRITERION)
        lines["gain in"].append(f"{sum(gain > 0 for gain in gains)} of {len(gains)} data sets")
    return f"Chosen on the tuning draws, gains on the held-out draws\n{aligned(lines)}"


def _without_one(rows: Rows) -> str:
    """Whether the choice hangs on a single data set."""
    tuning = [row for row in rows if row["draws"] == "tuning"]
    names = [name for (name,) in by(rows, "data")]
    if len(names) == 1:
        return ""
    chosen = [
        f"{name} {chosen_share([row for row in tuning if row['data'] != name]):g}" for name in names
    ]
    return f"Chosen without one of the data sets: {', '.join(chosen)}"


def _held_out_table(held_out: Rows) -> str:
    """Every line compared with UniPROT in the plain metric of its rows, as in docs/bandwidth.md."""
    head = [
        f"{way}: {word}" for way in ("pool", "summary") for word in (*ACCURACIES.values(), "cost")
    ]
    lines = [f"| held out | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for method, kind, share in _LINES:
        some = [
            row
            for row in held_out
            if (row["method"], row["rows"], row["share"]) == (method, kind, share)
        ]
        if not some or (method, kind, share) == ("uniproto", "as given", None):
            continue
        cells = []
        for way in ("pool", "summary"):
            mine = [row for row in some if row["way"] == way]
            plain = {
                (row["data"], row["seed"], row["rows"]): row
                for row in held_out
                if row["way"] == way and row["method"] == "uniproto" and row["share"] is None
            }
            for measure in ACCURACIES:
                # Comparable for both kinds of rows: the reference is the Euclidean distance.
                apart = [
                    {
                        "data": row["data"],
                        "apart": row[measure]
                        - plain[row["data"], row["seed"], "as given"][measure],
                    }
                    for row in mine
                ]
                cells.append(_points(_by_data(apart, "apart")))
            costs = [row["cost"] / plain[row["data"], row["seed"], kind]["cost"] for row in mine]
            cells.append(f"{np.mean(costs):.3f}")
        lines.append(f"| {_line_name(method, kind, share)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _line_name(method: str, kind: str, share: float | None) -> str:
    if method in ("kmeans", "random"):
        return f"`{method}`" if kind == "as given" else f"`{method}`, unit rows"
    if share is None:
        return f"`{method}`, `{'euclidean' if kind == 'as given' else 'cosine'}`"
    return f"`{method}`, `rbf`, {share:g} median" + (", unit rows" if kind == "unit" else "")


def _own_best(rows: Rows) -> str:
    """Held-out draws, every method with the setting that is best for it on the tuning draws."""
    best = {}
    tuning = [row for row in rows if row["draws"] == "tuning"]
    for key, group in by(tuning, "way", "data", "method").items():
        found = by([row | {"setting": _setting(row)} for row in group], "setting")
        best[key] = max(found, key=lambda s: np.mean([r[CRITERION] for r in found[s]]))[0]
    chosen = [
        row
        for row in rows
        if row["draws"] == "held out"
        and _setting(row) == best[row["way"], row["data"], row["method"]]
    ]
    return _beside_uniproto(chosen, "each with its own best setting, data set by data set")


def _same(held_out: Rows, share: float) -> Iterator[str]:
    """Held-out draws, all methods that have a kernel with the same one."""
    for kind in ("as given", "unit"):
        some = [
            row
            for row in held_out
            if row["rows"] == kind
            and (row["share"] == share or row["method"] in ("kmeans", "random"))
        ]
        if some:
            yield _beside_uniproto(some, f"{kind}, rbf {share:g}")


def _beside_uniproto(chosen: Rows, title: str) -> str:
    """Accuracies, and how far UniPROT is above each method, over data sets and draws."""
    lines: dict[str, list[str]] = {f"held out, {title}": []}
    for word in ACCURACIES.values():
        lines |= {word: [], f"UniPROT − this, {word}": []}
    for (way, method), group in by(chosen, "way", "method").items():
        lines[f"held out, {title}"].append(f"{way}: {method}")
        ours = [row for row in chosen if (row["way"], row["method"]) == (way, "uniproto")]
        for measure, word in ACCURACIES.items():
            mine, its = (_by_data(some, measure) for some in (ours, group))
            lines[word].append(f"{100 * np.mean(its):.1f}")
            lines[f"UniPROT − this, {word}"].append(_points(np.subtract(mine, its).tolist()))
    return aligned(lines)


def bandwidth_cells(rows: Rows) -> list[dict[str, Any]]:
    """Held-out accuracies less those of UniPROT in the plain metric of the same rows."""
    held_out = [row for row in rows if row["draws"] == "held out"]
    plain = {
        _draw(row): row for row in held_out if row["method"] == "uniproto" and row["share"] is None
    }
    apart = [
        {
            "panel": f"{row['way']}, {'unit rows' if row['rows'] == 'unit' else 'rows as given'}",
            "measure": f"{word} accuracy",
            "method": row["method"],
            "share": row["share"],
            "data": row["data"],
            "difference": row[measure] - plain[_draw(row)][measure],
        }
        for row in held_out
        if row["method"] in ("uniproto", "kmedoids", "mmd_critic")
        for measure, word in ACCURACIES.items()
    ]
    columns = ("panel", "measure", "method", "share")
    cells = []
    for key, group in by(apart, *columns).items():
        found = difference(values := _by_data(group, "difference"), [0.0] * len(values))
        cells.append(
            dict(zip(columns, key, strict=True)) | {"mean": found.mean, "error": found.error or 0.0}
        )
    return cells
