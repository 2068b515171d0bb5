"""From a selection and what is known of its rows to what the page says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, is_table, take_rows
from uniproto.data.columns import arrow_table
from uniproto.features.preparation import Preparation
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.report.columns import UNUSUAL, TableColumns
from uniproto.report.content import (
    Card,
    Codes,
    Content,
    Item,
    Represented,
    Worst,
    as_codes,
    code_of,
    composition_of,
    coverage_of,
    weights_note,
)
from uniproto.report.examples import Examples
from uniproto.report.pictures import Album
from uniproto.report.targets import (
    Projection,
    arc_costs,
    cited_targets,
    costs_of_targets,
    drawn_targets,
    map_of,
    worst_targets,
)
from uniproto.report.verdict import (
    curve_of,
    facts_of,
    methods_box,
    random_costs,
    rivals_of,
    verdict_of,
)
from uniproto.report.words import LONGEST_NAME, NO_DATA, cut, full_length

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
    certifier: str = "'selection.certify()'",
) -> Content:
    """Work out what the page says; `certifier` is what proves a lower bound."""
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
    columns = _columns(source, target, rows, weights)
    cards = make_cards(
        selection, source, target, problem, plan, cited, place_of, len(drawn), album, fills,
        labels, groups, projection, columns, arcs,
    )  # fmt: skip
    given = None if problem is None else problem.given
    prepared = None if given is None else given.preparation
    became = (
        {} if prepared is None else {name: f"{kind}: {how}" for name, kind, how in prepared.rows}
    )
    drawn_costs, random_note = random_costs(selection, problem, random, comparison)
    certificate = selection.certificate
    return Content(
        title=title,
        verdict=verdict_of(selection, problem, weighed, drawn_costs, certifier, costs, weights),
        shape=selection.shape,
        k=k,
        cost=selection.cost,
        lower_bound=None if certificate is None else certificate.lower_bound,
        bound_note=""
        if certificate is not None or selection.details.proof is not None
        else f"No lower bound is known: {certifier} proves one.",
        items=_items(target, problem, shown, costs, labels, groups, album, projection),
        drawn=len(drawn),
        projection=projection,
        map_note=map_note,
        cards=cards,
        columns=[]
        if columns is None
        else columns.charts(became, () if given is None else given.columns),
        columns_note=weights_note(weights),
        table=_table_names(source, cards),
        coverage=coverage_of(selection, labels, groups, weights),
        composition=composition_of(selection, labels),
        worst=[]
        if costs is None
        else _worst(source, target, problem, selection, plan, worst, costs, place_of),
        worst_note="" if costs is not None else NO_DATA,
        curve=curve_of(selection, fills, plan, arcs),
        rivals=rivals_of(selection, drawn_costs, comparison),
        rivals_note=random_note,
        pictures=album.uris,
        gaps=album.gaps(),
        methods=methods_box(selection, problem, drawn_costs, certifier),
        facts=facts_of(selection),
        commands=list(commands),
    )


def _columns(
    source: Examples, target: Examples, rows: NDArray[np.int64], weights: NDArray[np.float64]
) -> TableColumns | None:
    """The columns of both sets, where there are any to look at."""
    if not isinstance(source.table, pa.Table) or not isinstance(target.table, pa.Table):
        return None
    return TableColumns(source.table, target.table, rows, weights)


def _table_names(source: Examples, cards: Sequence[Card]) -> list[str]:
    """The columns of the cards, in the order of the table."""
    shown = dict.fromkeys(name for card in cards for name, _ in card.fields)
    order = (
        [] if source.table is None else [cut(n, LONGEST_NAME) for n in source.table.column_names]
    )
    return [name for name in order if name in shown] + [n for n in shown if n not in order]


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
            row=target.number(row),
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
    source: Examples,
    target: Examples,
    problem: Problem | None,
    selection: Selection,
    plan: sp.csr_array,
    worst: NDArray[np.intp],
    costs: NDArray[np.float64],
    place_of: Mapping[int, int],
) -> list[Worst]:
    """The targets that cost most, the prototypes that represent them, and what sets them apart."""
    words = RowWords(target, problem, worst, WORST_TEXT, of_target=True)
    by_target = sp.csc_array(plan)
    found = []
    for row in worst.tolist():
        held = slice(by_target.indptr[row], by_target.indptr[row + 1])
        places = by_target.indices[held][np.argsort(-by_target.data[held], kind="stable")]
        prototype = int(selection.indices[places[0]])
        apart = _apart(source, target, problem, row, prototype)
        told = "" if apart else words(row)
        found.append(Worst(place_of[row], told, float(costs[row]), (places + 1).tolist(), apart))
    return found


def _apart(
    source: Examples, target: Examples, problem: Problem | None, row: int, prototype: int
) -> list[tuple[str, str, str]]:
    """The columns of a prepared table in which a target differs most from a prototype."""
    given = None if problem is None else problem.given
    prepared = None if given is None else given.preparation
    if problem is None or not isinstance(prepared, Preparation):
        return []
    own, other = (
        examples.fields or _vector(problem, of_target)
        for examples, of_target in ((target, True), (source, False))
    )
    if own is None or other is None or not isinstance(problem.costs, FeatureCosts):
        return []
    apart = np.abs(problem.costs.target[row] - problem.costs.source[prototype])
    begins = np.cumsum([0, *(column.width for column in prepared.columns[:-1])])
    by_column = np.add.reduceat(apart, begins)
    values, others = own(np.array([row]))[0], other(np.array([prototype]))[0]
    names = [prepared.columns[place].name for place in np.argsort(-by_column)[:_MOST_APART]]
    return [
        (cut(name, LONGEST_NAME), cut(values.get(name), 40), cut(others.get(name), 40))
        for name in names
        if values.get(name) != others.get(name)
    ]


# How much text the page may hold, in bytes, and the longest piece of each kind.
_CARD_TEXT = (1_300_000, 6_000)
_EXAMPLE_TEXT = (900_000, 280)
HOVER_TEXT = (900_000, 160)
WORST_TEXT = 600
_MOST_APART = 3  # columns in which a target differs most from its prototype
_FIELDS = (40, 96)  # columns of a card, bytes of a value
_FIRST_VALUES = 12  # of an array


def make_cards(
    selection: Selection,
    source: Examples,
    target: Examples,
    problem: Problem | None,
    plan: sp.csr_array,
    cited: list[tuple[NDArray[np.intp], NDArray[np.float64]]],
    place_of: Mapping[int, int],
    drawn: int,
    album: Album,
    fills: NDArray[np.float64] | None,
    labels: Codes | None,
    groups: Codes | None,
    projection: Projection | None,
    columns: TableColumns | None,
    arcs: NDArray[np.float64] | None,
) -> list[Card]:
    rows = selection.indices.astype(np.intp)
    most = share_of(_CARD_TEXT, selection.k)
    texts = None if source.text is None else source.text(rows)
    most_fields = _FIELDS[0] if selection.k <= 300 else _FIELDS[0] // 2
    read = source.fields or _vector(problem, of_target=False) or _saved(selection)
    fields = None
    if texts is None and source.pictures is None and read is not None:
        fields = read(rows)
    on_cards = np.concatenate([targets for targets, _ in cited])
    words = RowWords(
        target, problem, np.unique(on_cards), share_of(_EXAMPLE_TEXT, len(on_cards)), of_target=True
    )
    given = 0 if problem is None else len(problem.initial)
    known = None if problem is None else problem.given
    compared = () if known is None else known.columns
    places = None if projection is None else projection.prototypes
    cards = []
    for place, row in enumerate(rows):
        on_map = plan.indices[plan.indptr[place] : plan.indptr[place + 1]]
        lights = [place_of[int(t)] for t in on_map if place_of.get(int(t), drawn) < drawn]
        text = None if texts is None else cut(texts[place], most)
        length = 0 if texts is None else full_length(texts[place])
        values = {} if fields is None else fields[place]
        surprise = {name: _surprise(columns, compared, name, place) for name in values}
        ranked = sorted(values, key=lambda name: -surprise[name])
        carried = slice(plan.indptr[place], plan.indptr[place + 1])
        cards.append(
            Card(
                rank=place + 1,
                row=source.number(int(row)),
                name=name_of(source, int(row)),
                gain=float(selection.details.gains[place]),
                fill=None if fills is None else float(fills[place]),
                mass=float(selection.weights[place]),
                targets=len(on_map),
                label=code_of(labels, int(row)),
                group=code_of(groups, int(row)),
                given=place < given,
                picture=album.of_source(int(row)),
                missing=album.reason(int(row)),
                text=text,
                length=0 if text is None or length <= len(text) else length,
                fields=[
                    (cut(name, LONGEST_NAME), cut(values[name], _FIELDS[1]))
                    for name in ranked[:most_fields]
                ],
                unusual=[cut(name, LONGEST_NAME) for name in ranked if surprise[name] >= UNUSUAL],
                away=None
                if arcs is None
                else float(np.average(arcs[carried], weights=plan.data[carried])),
                represented=[
                    Represented(place_of[int(t)], float(share), words(int(t)))
                    for t, share in zip(*cited[place], strict=True)
                ],
                lights=lights,
                x=coordinate(places, place, 0),
                y=coordinate(places, place, 1),
            )
        )
    return cards


def _surprise(
    columns: TableColumns | None, compared: Sequence[str], name: str, place: int
) -> float:
    """How unusual a value is; columns that are not compared come last."""
    if columns is None:
        return 0.0
    return columns.surprise(name, place) if not compared or name in compared else -1.0


def coordinate(points: NDArray[np.float64] | None, place: int, side: int) -> float | None:
    return None if points is None or place >= len(points) else float(points[place, side])


def fills_of(selection: Selection) -> NDArray[np.float64] | None:
    """What each pick's fill cost. Other methods' gains are of objectives of their own."""
    return (
        selection.details.beta - selection.details.gains
        if selection.method in ("uniproto", "greedy")
        else None
    )


class RowWords:
    """A row in a line or a paragraph, for the rows announced."""

    def __init__(
        self,
        examples: Examples,
        problem: Problem | None,
        rows: NDArray[Any],
        most: int,
        *,
        of_target: bool = False,
    ) -> None:
        self.most = most
        self.text: dict[int, Any] = {}
        self.fields: dict[int, dict[str, Any]] = {}
        given = None if problem is None else problem.given
        compared = () if given is None else given.columns
        self.first = {name: place for place, name in enumerate(compared)}  # what is compared
        listed = [int(row) for row in rows]
        if examples.text is not None:
            self.text = dict(zip(listed, examples.text(np.asarray(rows)), strict=True))
        elif examples.pictures is None and listed:
            read = examples.fields or _vector(problem, of_target)
            if read is not None:
                self.fields = dict(zip(listed, read(np.asarray(rows)), strict=True))

    def __call__(self, row: int) -> str:
        if row in self.text:
            return cut(self.text[row], self.most)
        values = self.fields.get(row, {})
        names = sorted(values, key=lambda name: self.first.get(name, len(self.first)))
        first = [(name, values[name]) for name in names[:4]]
        return cut(
            " · ".join(f"{cut(name, LONGEST_NAME)}: {cut(v, 40)}" for name, v in first), self.most
        )


def _vector(problem: Problem | None, of_target: bool) -> Any:
    """A reader of the rows' own values, as they were given: by column, or the first of an array."""
    given = None if problem is None else problem.given
    values = None if given is None else given.target if of_target else given.source
    if values is None or problem is None or not isinstance(problem.costs, FeatureCosts):
        return None

    def read(rows: NDArray[Any]) -> list[dict[str, Any]]:
        some = take_rows(values, np.asarray(rows))
        if is_table(some):
            return list(arrow_table(some, "source").to_pylist())
        first = as_matrix(some, "source")[:, :_FIRST_VALUES]
        dense = first.toarray() if sp.issparse(first) else first
        return [{f"x{place}": value for place, value in enumerate(row)} for row in dense.tolist()]

    return read


def _saved(selection: Selection) -> Any:
    """A reader of the prototypes' own values, where they were saved with the selection."""
    rows = selection.prototypes
    return None if rows is None else lambda _: rows.to_pylist()


def name_of(examples: Examples, row: int) -> str:
    return "" if examples.ids is None else cut(examples.ids[row], LONGEST_NAME)


def share_of(budget: tuple[int, int], count: int) -> int:
    total, longest = budget
    return max(24, min(longest, total // max(1, count)))
