"""From a selection and what is known of its rows to what the page says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from uniproto.problem import Problem
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
from uniproto.report.shares import as_codes, code_of, coverage_of
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
from uniproto.selection import Selection


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
    plan = sp.csr_array(selection.plan, copy=True)
    plan.eliminate_zeros()
    plan.sort_indices()
    k, rows = selection.k, selection.indices
    weights = np.asarray(plan.sum(axis=0)).ravel()
    arcs = None if problem is None else arc_costs(problem, rows, plan)
    costs = None if arcs is None else costs_of_targets(plan, arcs, weights)
    worst = worst_targets(costs, weights)
    drawn = drawn_targets(plan, weights, worst)
    cited = [cited_targets(plan, arcs, place, rows if same_set else None) for place in range(k)]
    others = np.setdiff1d(np.unique(np.concatenate([targets for targets, _ in cited])), drawn)
    shown = np.concatenate([drawn, others])
    place_of = {int(row): place for place, row in enumerate(shown)}
    weighed = int((weights > 0).sum())
    projection, map_note = map_of(selection, problem, source, target, plan, drawn, weighed)

    labels = as_codes(source.labels, target.labels, rows, weights)
    groups = as_codes(source.groups, target.groups, rows, weights)
    album = Album(source, target, same_set)
    album.prototypes(rows)
    album.targets(np.unique(np.concatenate([worst, *(targets for targets, _ in cited)])))
    album.hovers(drawn)
    hover = RowWords(target, problem, shown, share_of(HOVER_TEXT, len(shown)), of_target=True)
    on_map = None if projection is None else projection.targets
    items = [
        Item(
            row=int(row),
            name=name_of(target, int(row)),
            text=hover(int(row)),
            cost=None if costs is None else float(costs[row]),
            label=code_of(labels, int(row), of_target=True),
            group=code_of(groups, int(row), of_target=True),
            picture=album.of_target(int(row)),
            x=coordinate(on_map, place, 0),
            y=coordinate(on_map, place, 1),
        )
        for place, row in enumerate(shown)
    ]
    fills = fills_of(selection)
    cards = make_cards(
        selection, source, target, problem, plan, cited, place_of, len(drawn), album, fills,
        labels, groups, projection,
    )  # fmt: skip
    worst_words = RowWords(target, problem, worst, WORST_TEXT, of_target=True)
    by_target = sp.csc_array(plan)
    drawn_costs, random_note = random_costs(selection, problem, random, comparison)
    rivals = rivals_of(selection, drawn_costs, comparison)
    certificate = selection.certificate
    return Content(
        title=title,
        verdict=verdict_of(selection, problem, weighed, drawn_costs),
        shape=selection.shape,
        k=k,
        cost=selection.cost,
        lower_bound=None if certificate is None else certificate.lower_bound,
        items=items,
        drawn=len(drawn),
        projection=projection,
        map_note=map_note,
        cards=cards,
        coverage=coverage_of(selection, labels, groups, weights),
        worst=[
            Worst(
                place_of[int(row)],
                worst_words(int(row)),
                float(costs[row]),
                (by_target.indices[by_target.indptr[row] : by_target.indptr[row + 1]] + 1).tolist(),
            )
            for row in worst
            if costs is not None
        ],
        worst_note="" if costs is not None else NO_DATA,
        curve=curve_of(selection, fills, plan, arcs),
        rivals=rivals,
        rivals_note=random_note,
        pictures=album.uris,
        gaps=album.gaps(),
        methods=methods_box(selection, problem, drawn_costs),
        facts=facts_of(selection),
        commands=list(commands),
    )
