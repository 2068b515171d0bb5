"""From a selection and what is known of its rows to what the page says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.report.album import Album
from uniproto.report.cards import (
    HOVER_TEXT,
    WORST_TEXT,
    RowWords,
    coordinate,
    fills_of,
    make_cards,
    name_of,
    share_of,
)
from uniproto.report.content import Content, Item, Worst
from uniproto.report.examples import Examples
from uniproto.report.methods_box import facts_of, methods_box
from uniproto.report.projection import Projection
from uniproto.report.shares import Codes, as_codes, code_of, coverage_of
from uniproto.report.targets import (
    arc_costs,
    cited_targets,
    costs_of_targets,
    drawn_targets,
    map_of,
    worst_targets,
)
from uniproto.report.verdict import curve_of, random_costs, rivals_of, verdict_of
from uniproto.report.words import NO_DATA

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


def gather(
    selection: Selection,
    source: Examples,
    target: Examples,
    *,
    problem: Problem | None,
    same_set: bool,
    title: str,
    commands: Sequence[tuple[str, str]],
    random: int | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> Content:
    """Work out what the page says."""
    plan = _tidied(selection.plan)
    k, rows = selection.k, selection.indices
    weights = np.asarray(plan.sum(axis=0)).ravel()
    arcs = None if problem is None else arc_costs(problem, rows, plan)
    costs = None if arcs is None else costs_of_targets(plan, arcs, weights)
    worst = worst_targets(costs, weights)
    drawn = drawn_targets(plan, weights, worst)
    cited = [cited_targets(plan, arcs, place, rows if same_set else None) for place in range(k)]
    on_cards = np.unique(np.concatenate([targets for targets, _ in cited]))
    shown = np.concatenate([drawn, np.setdiff1d(on_cards, drawn)])
    place_of = {int(row): place for place, row in enumerate(shown)}
    weighed = int((weights > 0).sum())
    projection, map_note = map_of(selection, problem, source, target, plan, drawn, weighed)

    labels = as_codes(source.labels, target.labels, rows, weights)
    groups = as_codes(source.groups, target.groups, rows, weights)
    album = Album(source, target, same_set)
    album.prototypes(rows)
    album.targets(np.union1d(worst, on_cards))
    album.hovers(drawn)
    fills = fills_of(selection)
    cards = make_cards(
        selection, source, target, problem, plan, cited, place_of, len(drawn), album, fills,
        labels, groups, projection,
    )  # fmt: skip
    drawn_costs, random_note = random_costs(selection, problem, random, comparison)
    certificate = selection.certificate
    return Content(
        title=title,
        verdict=verdict_of(selection, problem, weighed, drawn_costs),
        shape=selection.shape,
        k=k,
        cost=selection.cost,
        lower_bound=None if certificate is None else certificate.lower_bound,
        items=_items(target, problem, shown, costs, labels, groups, album, projection),
        drawn=len(drawn),
        projection=projection,
        map_note=map_note,
        cards=cards,
        coverage=coverage_of(selection, labels, groups, weights),
        worst=[] if costs is None else _worst(target, problem, plan, worst, costs, place_of),
        worst_note="" if costs is not None else NO_DATA,
        curve=curve_of(selection, fills, plan, arcs),
        rivals=rivals_of(selection, drawn_costs, comparison),
        rivals_note=random_note,
        pictures=album.uris,
        gaps=album.gaps(),
        methods=methods_box(selection, problem, drawn_costs),
        facts=facts_of(selection),
        commands=list(commands),
    )


def _tidied(plan: sp.csr_array) -> sp.csr_array:
    """A copy without stored zeros, whose targets are in order."""
    tidied = sp.csr_array(plan, copy=True)
    tidied.eliminate_zeros()
    tidied.sort_indices()
    return tidied


def _items(
    target: Examples,
    problem: Problem | None,
    shown: NDArray[np.intp],
    costs: NDArray[np.float64] | None,
    labels: Codes | None,
    groups: Codes | None,
    album: Album,
    projection: Projection | None,
) -> list[Item]:
    """The targets that the page shows, those of the map first."""
    words = RowWords(target, problem, shown, share_of(HOVER_TEXT, len(shown)), of_target=True)
    on_map = None if projection is None else projection.targets
    return [
        Item(
            row=row,
            name=name_of(target, row),
            text=words(row),
            cost=None if costs is None else float(costs[row]),
            label=code_of(labels, row, of_target=True),
            group=code_of(groups, row, of_target=True),
            picture=album.of_target(row),
            x=coordinate(on_map, place, 0),
            y=coordinate(on_map, place, 1),
        )
        for place, row in enumerate(shown.tolist())
    ]


def _worst(
    target: Examples,
    problem: Problem | None,
    plan: sp.csr_array,
    worst: NDArray[np.intp],
    costs: NDArray[np.float64],
    place_of: Mapping[int, int],
) -> list[Worst]:
    """The targets that cost most, with the ranks of the prototypes that stand for them."""
    words = RowWords(target, problem, worst, WORST_TEXT, of_target=True)
    by_target = sp.csc_array(plan)
    return [
        Worst(
            place_of[row],
            words(row),
            float(costs[row]),
            (by_target.indices[by_target.indptr[row] : by_target.indptr[row + 1]] + 1).tolist(),
        )
        for row in worst.tolist()
    ]
