"""The content of the page as plain values, without markup or charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.tables import rows_as_table
from uniproto.features.compared_rows import Given
from uniproto.features.preparation import Preparation
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.report.columns import (
    UNUSUAL,
    absence,
    absent_levels,
    charts_of,
    column_shares,
    columns_of,
)
from uniproto.report.coverage import as_codes, composition_of, coverage_of, weights_note
from uniproto.report.examples import Examples
from uniproto.report.pictures import Album
from uniproto.report.targets import (
    arc_costs,
    cited_targets,
    costs_of_targets,
    drawn_targets,
    is_one_set,
    map_of,
    owners_of,
    worst_targets,
)
from uniproto.report.verdict import (
    conditions_of,
    curve_of,
    facts_of,
    random_costs,
    rivals_of,
    verdict_of,
)
from uniproto.report.words import LONGEST_NAME, NO_DATA, cut, full_length

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

# Limits on the page's text in bytes: in total, and for each kind of text.
_CARD_TEXT = (1_300_000, 6_000)
_EXAMPLE_TEXT = (900_000, 280)
_HOVER_TEXT = (900_000, 160)
_WORST_TEXT = 600
_MOST_APART = 3  # columns in which a target differs most from its prototype
_FIELDS = (40, 96)  # columns of a card, bytes of a value
_FIRST_VALUES = 12  # of an array
_MOST_PAINTS = 20  # columns that the map can be coloured by


@dataclass(frozen=True)
class Item:
    """A target on the page. `x` and `y` are None without a map."""

    row: int
    name: str
    text: str
    cost: float | None
    label: int | None
    group: int | None
    picture: int | None
    x: float | None
    y: float | None


@dataclass(frozen=True)
class Excluded:
    """Rows that were excluded by one rule, and of some the row that matched, in what words."""

    rule: str
    file: str
    count: int
    examples: list[tuple[str, str, str]]  # row, matched row, matched words


@dataclass(frozen=True)
class Represented:
    """A target of a prototype: its item, its share of the prototype's mass, and its text."""

    item: int
    share: float
    words: str


@dataclass(frozen=True)
class Card:
    """A prototype."""

    rank: int
    row: int
    name: str
    gain: float
    fill: float | None
    targets: int
    label: int | None
    group: int | None
    given: bool
    picture: int | None
    missing: str  # why an expected picture is missing
    text: str | None
    length: int  # of the full text in characters, if it is truncated
    fields: list[tuple[str, str]]  # the unusual ones first
    unusual: list[str]  # their names
    away: float | None  # the mean cost of its targets
    represented: list[Represented]
    lights: list[int]  # items on the map it represents
    x: float | None
    y: float | None


@dataclass(frozen=True)
class Worst:
    """A badly covered target: its item, words, cost and the prototypes (ranks) it went to."""

    item: int
    words: str
    cost: float
    prototypes: list[int]  # the one that carries most of it first
    apart: list[tuple[str, str, str]]  # columns that differ most: name, its own value, prototype's


class Content:
    """The page of a selection. Of the `items` the first `drawn` are on the map.

    `noun` is what a chosen row is called, and `kind` what its label is: a class or a source.

    `certifier` names the call that proves a lower bound, for a selection without one. Default:
    `Selection.certify`, which has to be called before saving.
    """

    def __init__(
        self,
        selection: Selection,
        source: Examples,
        target: Examples,
        *,
        problem: Problem | None,
        title: str | None = None,
        commands: Sequence[tuple[str, str]] = (),
        random: int | None = None,
        comparison: Mapping[str, Any] | None = None,
        certifier: str | None = None,
        excluded: Sequence[Excluded] = (),
        noun: str = "prototype",
        kind: str = "class",
    ) -> None:
        self.selection, self.source, self.target, self.problem = selection, source, target, problem
        self.title, self.commands = title or f"{noun.capitalize()}s", commands
        self.excluded, self.noun = excluded, noun
        in_python = "'selection.certify()'" + (" before saving" if problem is None else "")
        self.certifier = certifier or in_python
        same_set = is_one_set(problem, selection.details.shape)
        self.shape, self.k, self.cost = selection.details.shape, selection.k, selection.cost
        self.given = Given() if problem is None else problem.given
        rows = selection.indices
        self.plan = plan = _tidied(selection.plan)
        self.weights = weights = np.asarray(plan.sum(axis=0)).ravel()
        self.weighed = int((weights > 0).sum())
        self.arcs = None if problem is None else arc_costs(problem, rows, plan)
        self.costs = None if self.arcs is None else costs_of_targets(plan, self.arcs, weights)
        worst = worst_targets(self.costs, weights)
        drawn = drawn_targets(plan, weights, worst)
        self.drawn, self._owners = len(drawn), owners_of(plan)
        self._cited = [
            cited_targets(plan, self.arcs, place, rows if same_set else None)
            for place in range(self.k)
        ]
        on_cards = np.unique(np.concatenate([targets for targets, _ in self._cited]))
        shown = np.concatenate([drawn, np.setdiff1d(on_cards, drawn)])
        self._item_of = {int(row): place for place, row in enumerate(shown)}
        self.projection, self.map_note = map_of(self, drawn)
        self._album = Album(source, target, same_set)
        self._album.prototypes(rows)
        self._album.targets(np.union1d(worst, on_cards))
        self._album.hovers(drawn)
        self.pictures, self.gaps = self._album.uris, self._album.gaps()
        self._labels = as_codes(source.labels, target.labels, rows, weights)
        self._groups = as_codes(source.groups, target.groups, rows, weights)
        self.composition = composition_of(selection, self._labels)
        self.kind = "source" if self.composition else kind
        nouns = self.kind, f"{noun}s"
        self.coverage = coverage_of(selection, self._labels, self._groups, weights, *nouns)
        self.kinds = {coverage.kind: coverage.names for coverage in self.coverage}
        if self._labels is not None and self.composition:
            self.kinds = {self.kind: self._labels.names, **self.kinds}
        # The cost of each pick's fill. Other methods' gains belong to other objectives.
        has_fills = selection.details.method in ("uniproto", "greedy")
        self.fills = selection.details.beta - selection.details.gains if has_fills else None
        preparation = self.given.preparation
        self._columns = columns_of(source.table, target.table, rows, weights, preparation)
        prepared = () if preparation is None else preparation.rows
        became = {name: f"{kind}: {how}" for name, kind, how in prepared}
        self.aside = [(name, how) for name, kind, how in prepared if kind == "set aside"]
        self.absent, shares = [], {}
        if problem is not None and self.arcs is not None:
            self.absent = absent_levels(problem, rows)
            shares = column_shares(problem, rows, plan, self.arcs)
        self.absent_words = absence(self.absent) if self.absent else ""
        self.columns = charts_of(self._columns, became, self.given.columns, shares)
        self.columns_note = weights_note(weights)
        self.paints = self._paints(drawn)
        self.items = self._items(shown)
        self.cards = self._cards()
        self.worst = self._worst(worst)
        self.worst_note = NO_DATA if self.costs is None else ""
        certificate = selection.certificate
        self.lower_bound = None if certificate is None else certificate.lower_bound
        self.bound_note = ""
        if certificate is None and selection.details.proof is None:
            self.bound_note = f"No lower bound is known: {self.certifier} proves one."
        self.conditions = conditions_of(problem)
        self.draws, self.rivals_note = random_costs(selection, problem, random, comparison)
        self.rivals = rivals_of(selection, self.draws, comparison)
        self.verdict = verdict_of(self)
        self.curve = curve_of(self)
        self.facts = facts_of(selection)

    @property
    def table(self) -> list[str]:
        """The columns of the cards, in the order of the table; empty for texts and pictures."""
        shown = dict.fromkeys(name for card in self.cards for name, _ in card.fields)
        names = [] if self.source.table is None else self.source.table.column_names
        order = [cut(name, LONGEST_NAME) for name in names]
        return [name for name in order if name in shown] + [n for n in shown if n not in order]

    def _paints(self, drawn: NDArray[np.intp]) -> dict[str, dict[str, Any]]:
        """Colourings of the map besides classes and groups: prototypes and columns."""
        own = list(range(self.k))
        found: dict[str, dict[str, Any]] = {
            self.noun: {
                "items": self._owners[drawn].tolist(),
                "prototypes": own,
                "names": [f"{self.noun} {place + 1}" for place in own],
                "ordered": False,
            }
        }
        places = np.searchsorted(np.flatnonzero(self.weights > 0), drawn)
        by_name = {cut(name, LONGEST_NAME): values for name, values in self._columns.items()}
        for chart in self.columns[:_MOST_PAINTS]:
            items, prototypes = by_name[chart.name].bars_of(places)
            found[f"column {chart.name}"] = {
                "items": items,
                "prototypes": prototypes,
                "names": [bar.name for bar in chart.bars],
                "ordered": chart.ordered,
            }
        return found

    def _items(self, shown: NDArray[np.intp]) -> list[Item]:
        """The targets that the page shows, those of the map first."""
        words = self._words(shown, _share_of(_HOVER_TEXT, len(shown)))
        on_map = None if self.projection is None else self.projection.targets
        return [
            Item(
                row=row,
                name=_name_of(self.target, row),
                text=words[row],
                cost=None if self.costs is None else float(self.costs[row]),
                label=None if self._labels is None else self._labels.of_target(row),
                group=None if self._groups is None else self._groups.of_target(row),
                picture=self._album.of_target(row),
                x=_coordinate(on_map, place, 0),
                y=_coordinate(on_map, place, 1),
            )
            for place, row in enumerate(shown.tolist())
        ]

    def _cards(self) -> list[Card]:
        selection, source, plan, labels = self.selection, self.source, self.plan, self._labels
        rows = selection.indices.astype(np.intp)
        most = _share_of(_CARD_TEXT, self.k)
        texts = None if source.text is None else source.text(rows)
        most_fields = _FIELDS[0] if self.k <= 300 else _FIELDS[0] // 2
        fields = None
        if texts is None and source.pictures is None:
            fields = self._values(rows)
            if (
                fields is None and selection.details.prototypes is not None
            ):  # saved with the selection
                fields = selection.details.prototypes.to_pylist()
        on_cards = np.concatenate([targets for targets, _ in self._cited])
        words = self._words(np.unique(on_cards), _share_of(_EXAMPLE_TEXT, len(on_cards)))
        given = 0 if self.problem is None else len(self.problem.initial)
        on_map = None if self.projection is None else self.projection.prototypes
        cards = []
        for place, row in enumerate(rows.tolist()):
            carried = slice(plan.indptr[place], plan.indptr[place + 1])
            # With more rows than targets, most rows represent parts of targets.
            is_part = self.k > len(self._owners)
            owned = plan.indices[carried] if is_part else np.flatnonzero(self._owners == place)
            represented = [self._item_of.get(int(t), self.drawn) for t in owned]
            text = None if texts is None else cut(texts[place], most)
            length = 0 if texts is None else full_length(texts[place])
            values = {} if fields is None else fields[place]
            surprise = {name: self._surprise(name, place) for name in values}
            ranked = sorted(values, key=lambda name: -surprise[name])
            away = None
            if self.arcs is not None:
                away = float(np.average(self.arcs[carried], weights=plan.data[carried]))
            cards.append(
                Card(
                    rank=place + 1,
                    row=row,
                    name=_name_of(source, row),
                    gain=float(selection.details.gains[place]),
                    fill=None if self.fills is None else float(self.fills[place]),
                    targets=len(represented),
                    label=None if labels is None else int(labels.source[row]),
                    group=None if self._groups is None else int(self._groups.source[row]),
                    given=place < given,
                    picture=self._album.of_source(row),
                    missing=self._album.reason(row),
                    text=text,
                    length=0 if text is None or length <= len(text) else length,
                    fields=[
                        (cut(name, LONGEST_NAME), cut(values[name], _FIELDS[1]))
                        for name in ranked[:most_fields]
                    ],
                    unusual=[
                        cut(name, LONGEST_NAME) for name in ranked if surprise[name] >= UNUSUAL
                    ],
                    away=away,
                    represented=[
                        Represented(self._item_of[int(t)], float(share), words[int(t)])
                        for t, share in zip(*self._cited[place], strict=True)
                    ],
                    lights=[item for item in represented if item < self.drawn],
                    x=_coordinate(on_map, place, 0),
                    y=_coordinate(on_map, place, 1),
                )
            )
        return cards

    def _surprise(self, name: str, place: int) -> float:
        """How unusual a value is; columns that are not compared come last."""
        if not self._columns:
            return 0.0
        compared = not self.given.columns or name in self.given.columns
        column = self._columns.get(name)
        return column.surprise(place) if compared and column is not None else -1.0

    def _worst(self, worst: NDArray[np.intp]) -> list[Worst]:
        """The targets of highest cost, their prototypes, and how they differ."""
        words = self._words(worst, _WORST_TEXT)
        by_target = sp.csc_array(self.plan)
        found = []
        for row in worst.tolist():
            assert self.costs is not None
            held = slice(by_target.indptr[row], by_target.indptr[row + 1])
            places = by_target.indices[held][np.argsort(-by_target.data[held], kind="stable")]
            apart = self._apart(row, int(self.selection.indices[places[0]]))
            own, ranks = "" if apart else words[row], (places + 1).tolist()
            found.append(Worst(self._item_of[row], own, float(self.costs[row]), ranks, apart))
        return found

    def _apart(self, row: int, prototype: int) -> list[tuple[str, str, str]]:
        """The columns of a prepared table in which a target differs most from a prototype."""
        prepared, costs = self.given.preparation, self.problem and self.problem.costs
        if not isinstance(prepared, Preparation) or not isinstance(costs, FeatureCosts):
            return []
        own, others = (
            self._values(np.array([row]), of_target=True),
            self._values(np.array([prototype])),
        )
        if own is None or others is None:
            return []
        apart = np.abs(costs.target[row] - costs.source[prototype])
        begins = np.cumsum([0, *(column.width for column in prepared.columns[:-1])])
        by_column = np.add.reduceat(apart, begins)
        most = [prepared.columns[place].names for place in np.argsort(-by_column)[:_MOST_APART]]
        names = [name for each in most for name in each]  # of a place there are two
        pairs = [(name, own[0].get(name), others[0].get(name)) for name in names]
        return [
            (cut(name, LONGEST_NAME), cut(one, 40), cut(other, 40))
            for name, one, other in pairs
            if one != other
        ]

    def _words(self, rows: NDArray[np.intp], most: int) -> dict[int, str]:
        """A short text for each target: its own, or a few of its values."""
        if self.target.text is not None:
            texts = [cut(text, most) for text in self.target.text(rows)]
            return dict(zip(rows.tolist(), texts, strict=True))
        values = None
        if self.target.pictures is None and len(rows):
            values = self._values(rows, of_target=True)
        first = {name: place for place, name in enumerate(self.given.columns)}  # what is compared
        lines = []
        for fields in [{}] * len(rows) if values is None else values:
            names = sorted(fields, key=lambda name: first.get(name, len(first)))[:4]
            parts = [f"{cut(name, LONGEST_NAME)}: {cut(fields[name], 40)}" for name in names]
            lines.append(cut(" · ".join(parts), most))
        return dict(zip(rows.tolist(), lines, strict=True))

    def _values(
        self, rows: NDArray[np.intp], *, of_target: bool = False
    ) -> list[dict[str, Any]] | None:
        """The rows' values by column, or the first values of an array; None if unknown."""
        read = (self.target if of_target else self.source).fields
        if read is not None:
            return read(rows)
        given = self.given.target if of_target else self.given.source
        if given is None or not isinstance(self.problem and self.problem.costs, FeatureCosts):
            return None
        return list(rows_as_table(given, rows, _FIRST_VALUES).to_pylist())


def _tidied(plan: sp.csr_array) -> sp.csr_array:
    """A copy without stored zeros and with sorted indices."""
    tidied = sp.csr_array(plan, copy=True)
    tidied.eliminate_zeros()
    tidied.sort_indices()
    return tidied


def _coordinate(points: NDArray[np.float64] | None, place: int, side: int) -> float | None:
    return None if points is None or place >= len(points) else float(points[place, side])


def _name_of(examples: Examples, row: int) -> str:
    return "" if examples.ids is None else cut(examples.ids[row], LONGEST_NAME)


def _share_of(budget: tuple[int, int], count: int) -> int:
    total, longest = budget
    return max(24, min(longest, total // max(1, count)))
