"""The page of an update: who stays, who leaves and who comes, and what each change is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import is_table
from uniproto.data.tables import rows_as_table
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.report.charts import BLUE, GREEN, GREY, INK, ORANGE, loose_scale
from uniproto.report.page import PageChart, ResultsPage, render_results
from uniproto.report.targets import MOST_DRAWN, project
from uniproto.report.words import LONGEST_NAME, counted, cut, figure, page_text

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection
    from uniproto.selection.update import Change, Updated

_WORST = 24  # targets that were covered badly
_MOST_VALUES = 4  # of a row, in the table
_KINDS = {
    "target": (GREY, "circle", 22, 0.35),
    "covered badly before": (ORANGE, "circle", 60, 0.9),
    "stays": (BLUE, "diamond", 130, 1.0),
    "left": (INK, "cross", 110, 1.0),
    "new": (GREEN, "triangle-up", 150, 1.0),
}


def update_page(selection: Selection, problem: Problem, *, title: str, command: str = "") -> str:
    """The page of a selection that `update` has made, which still holds its data."""
    updated = selection.details.updated
    assert updated is not None
    rows, k = selection.indices, selection.k
    before, now = _nearest(problem, updated.found[updated.found >= 0]), _nearest(problem, rows)
    worst = np.argsort(-before, kind="stable")[:_WORST]
    charts = [_curve(updated)]
    if isinstance(problem.costs, FeatureCosts):
        charts.insert(0, _map(selection, problem, updated, worst, before, now))
    head = ["left", "came in its place", "targets it represents", "what that saves"]
    lines = [_line(problem, updated, change) for change in updated.changes]
    notes = [
        "A row comes in the place of the prototype that would serve its targets at the lowest "
        "cost. What a change saves is what the cost would rise by if this one alone were taken "
        "back, give or take the standard error over the targets.",
        f"The {counted(len(worst), 'target')} farthest from the prototypes before: on average "
        f"{figure(float(before[worst].mean()), 3)} from the nearest one then, "
        f"{figure(float(now[worst].mean()), 3)} now.",
        "Rows that are nearly alike are exchanged for little: a change that saves less than twice "
        "its standard error may be left out as well.",
    ]
    m, n = selection.details.shape
    content = ResultsPage(
        eyebrow=f"{title}: {counted(m, 'row')}, {counted(n, 'target')}",
        headline=f"{k - updated.newcomers:,} of {counted(len(updated.earlier), 'prototype')} stay",
        lead=_lead(selection, updated),
        charts=charts,
        table=head,
        rows=lines or [["none", "none", "–", "–"]],
        notes=notes,
        command=command,
        texts=2,
    )
    return render_results(content)


def _lead(selection: Selection, updated: Updated) -> str:
    first, last = updated.curve[0], updated.curve[-1]
    words = (
        f"{counted(updated.newcomers, 'row')} of {selection.k:,} "
        f"{'was' if updated.newcomers == 1 else 'were'} no prototype before. The cost is "
        f"{figure(selection.cost)}; with {counted(first.changes, 'change')} it would be "
        f"{figure(first.cost)}"
    )
    if updated.fresh is not None:
        fresh = updated.fresh
        words += f", and a fresh selection, which changes {fresh.changes:,}, costs "
        words += figure(fresh.cost)
    elif last.changes > first.changes:
        words += f", and more than {counted(last.changes, 'change')} were not allowed"
    return words + "."


def _nearest(problem: Problem, rows: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """What the nearest of some rows costs each target."""
    found = np.full(problem.n, np.inf)
    for row in rows:
        np.minimum(found, problem.costs.block(np.array([row]))[0], out=found)
    return found


def _map(
    selection: Selection,
    problem: Problem,
    updated: Updated,
    worst: NDArray[np.intp],
    before: NDArray[np.float64],
    now: NDArray[np.float64],
) -> PageChart:
    """Targets, and the prototypes that stay, left and came."""
    drawn = np.arange(problem.n)
    if problem.n > MOST_DRAWN:
        some = np.random.default_rng(0).choice(problem.n, MOST_DRAWN, replace=False)
        drawn = np.union1d(some, worst)
    found = updated.found[updated.found >= 0]
    left = np.setdiff1d(found, selection.indices)
    rows = np.concatenate([selection.indices, left])
    places = project(problem, selection.plan, rows, drawn)
    kinds = ["stays" if row in found else "new" for row in selection.indices]
    points = [
        {"x": x, "y": y, "kind": kind, "row": int(row)}
        for (x, y), kind, row in zip(
            places.prototypes.tolist(), kinds + ["left"] * len(left), rows, strict=True
        )
    ]
    bad = set(worst.tolist())
    points += [
        {
            "x": x,
            "y": y,
            "kind": "covered badly before" if target in bad else "target",
            "row": target,
            "before": float(f"{before[target]:.4g}"),
            "now": float(f"{now[target]:.4g}"),
        }
        for (x, y), target in zip(places.targets.tolist(), drawn.tolist(), strict=True)
    ]
    names = list(_KINDS)
    bare = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    colours, shapes, sizes, opacities = zip(*_KINDS.values(), strict=True)
    legend = alt.Legend(orient="bottom", columns=2, labelLimit=200, title=None)
    tooltip = ["kind:N", "row:Q", "before:Q", "now:Q"]
    layers = [
        alt.Chart(alt.Data(values=[point for point in points if point["kind"] == name]))
        .mark_point(filled=name != "left", strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title=places.axes[0], axis=bare, scale=loose_scale(alt)),
            y=alt.Y("y:Q", title=places.axes[1], axis=bare, scale=loose_scale(alt)),
            color=alt.Color("kind:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            shape=alt.Shape("kind:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
            size=alt.value(sizes[names.index(name)]),
            opacity=alt.value(opacities[names.index(name)]),
            tooltip=tooltip if name in ("target", "covered badly before") else tooltip[:2],
        )
        for name in names
        if any(point["kind"] == name for point in points)
    ]
    shown = f"{len(drawn):,} of " if len(drawn) < problem.n else ""
    return PageChart(
        "map",
        "Who stays, who left, who came",
        f"{shown}{counted(problem.n, 'target')}. {places.words}",
        alt.layer(*layers).properties(height=420),
    )


def _curve(updated: Updated) -> PageChart:
    """The cost over the number of changes."""
    values = [{"changes": point.changes, "cost": point.cost} for point in updated.curve]
    base = alt.Chart(alt.Data(values=values))
    x = alt.X("changes:Q", title="changes", axis=alt.Axis(tickMinStep=1, format="d"))
    y = alt.Y("cost:Q", title="cost (lower is better)", scale=loose_scale(alt))
    tooltip = [alt.Tooltip("changes:Q"), alt.Tooltip("cost:Q", format=".5~g")]
    chosen = alt.Chart(
        alt.Data(values=[value for value in values if value["changes"] == updated.allowed])
    )
    layers = [
        base.mark_line(color=BLUE, strokeWidth=2.5, interpolate="step-after").encode(x=x, y=y),
        base.mark_point(color=BLUE, filled=True, size=50).encode(x=x, y=y, tooltip=tooltip),
        chosen.mark_point(color=GREEN, filled=True, size=180, shape="diamond").encode(x=x, y=y),
    ]
    words = "The diamond is this update."
    if updated.fresh is not None:
        fresh = alt.Chart(alt.Data(values=[{"cost": updated.fresh.cost}]))
        layers.append(fresh.mark_rule(color=ORANGE, strokeDash=[5, 4]).encode(y="cost:Q"))
        words += (
            f" The dashed line is a fresh selection, which changes {updated.fresh.changes:,} of "
            "the prototypes."
        )
    if updated.measured_on:
        words += f" Costs on {counted(updated.measured_on, 'target')}."
    return PageChart(
        "curve", "What fewer or more changes cost", words, alt.layer(*layers).properties(height=280)
    )


def _line(problem: Problem, updated: Updated, change: Change) -> list[str]:
    """One change, for the table."""
    left, came = "–", "–"
    if change.left is not None:
        left = f"row {change.left} before"
        row = int(updated.found[updated.earlier.tolist().index(change.left)])
        left += " (not in the new data)" if row < 0 else f": {_values(problem, row)}"
    if change.came is not None:
        came = f"row {change.came}: {_values(problem, change.came)}"
    saved = "–"
    if change.saved is not None and change.error is not None:
        saved = f"{figure(change.saved, 3)} ± {figure(change.error, 2)}"
    return [left.rstrip(": "), came.rstrip(": "), f"{len(change.targets):,}", saved]


def _values(problem: Problem, row: int) -> str:
    """The first values of a row of a table."""
    source = problem.given.source
    if source is None or not is_table(source):
        return ""
    table = rows_as_table(source, np.array([row]))
    names = [name for name in problem.given.columns if name in table.column_names]
    names = (names or table.column_names)[:_MOST_VALUES]
    values = table.select(names).to_pylist()[0]
    return cut(", ".join(f"{name} {page_text(values[name])}" for name in names), 2 * LONGEST_NAME)
