"""Classes and groups: their shares of the target, and of the prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.report.columns import are_uneven
from uniproto.report.words import LONGEST_NAME, cut

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


@dataclass(frozen=True)
class Share:
    """A class's share of the target against its share among prototypes.

    `own` is the share of its mass that prototypes of the class itself represent.
    """

    code: int
    name: str
    targets: int
    target_share: float
    prototypes: int
    prototype_share: float
    mark: str  # "under", "over", "missing" or ""
    own: float
    cost: float | None = None

    @property
    def words(self) -> str:
        return {"missing": "none chosen", "": "in step"}.get(self.mark, f"{self.mark}-represented")


@dataclass(frozen=True)
class ClassCoverage:
    """Coverage of classes or groups, the largest first."""

    kind: str  # "class", "source" or "group"
    names: list[str]  # by code
    shares: list[Share]
    note: str

    @property
    def kinds(self) -> str:
        """Several of them."""
        return "classes" if self.kind == "class" else f"{self.kind}s"

    @property
    def charted(self) -> list[Share]:
        """The classes shown in a chart: the marked ones first, then the largest."""
        ranked = sorted(self.shares, key=lambda share: (share.mark == "", -share.target_share))
        charted = {share.code for share in ranked[:_MOST_BARS]}
        return [share for share in self.shares if share.code in charted]


_MOST_CLASSES = 200
_MOST_BARS = 40
UNDER, OVER = 0.8, 1.25  # relative to a proportional share; classes beyond are marked


@dataclass(frozen=True)
class Codes:
    """Labels as integer codes of the source and target rows, with their names."""

    names: list[str]
    source: NDArray[np.intp]
    target: NDArray[np.intp] | None
    by_label: dict[Any, int]
    others: int  # labels counted together as "others"

    def of_target(self, row: int) -> int | None:
        return None if self.target is None else int(self.target[row])


def as_codes(
    source: NDArray[Any] | None,
    target: NDArray[Any] | None,
    rows: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> Codes | None:
    """Labels as codes, the largest class of the target first; the smallest become "others"."""
    if source is None:
        return None
    seen: dict[Any, int] = {}
    coded = [
        np.array([seen.setdefault(value, len(seen)) for value in values.tolist()], np.intp)
        for values in (source, target)
        if values is not None
    ]
    mass: NDArray[Any] = np.zeros(len(seen))
    if target is not None:
        mass = np.bincount(coded[1], weights, minlength=len(seen))
    chosen = np.bincount(coded[0][rows], minlength=len(seen))
    names = list(seen)
    order = sorted(range(len(seen)), key=lambda code: (-mass[code], -chosen[code], code))
    if _in_natural_order(names):  # sorted names are easier to find
        order = sorted(range(len(seen)), key=lambda code: names[code])
    named, rest = order, []
    if len(order) > _MOST_CLASSES:
        ranked = sorted(order, key=lambda code: (chosen[code] == 0, -mass[code]))
        named, rest = ranked[:_MOST_CLASSES], ranked[_MOST_CLASSES:]
    to = np.full(len(seen), len(named), np.intp)
    to[named] = np.arange(len(named))
    shown = _distinct([cut(names[code], LONGEST_NAME).strip() or "(empty)" for code in named])
    if rest:
        shown.append(f"others ({len(rest):,})")
    by_label = {name: int(to[code]) for name, code in seen.items()}
    coded_target = None if target is None else to[coded[1]]
    return Codes(shown, to[coded[0]], coded_target, by_label, len(rest))


def _distinct(names: list[str]) -> list[str]:
    """Names made unique by numbers, as shortened ones may be equal."""
    times: dict[str, int] = {}
    found = []
    for name in names:
        times[name] = times.get(name, 0) + 1
        found.append(name if times[name] == 1 else f"{name} ({times[name]})")
    return found if len(set(found)) == len(found) else [f"{i}: {n}" for i, n in enumerate(names)]


def _in_natural_order(names: list[Any]) -> bool:
    numbers = all(isinstance(name, int | float) for name in names)
    return len(names) <= _MOST_CLASSES and (
        numbers or (len(names) <= 30 and all(isinstance(name, str) for name in names))
    )


def weights_note(weights: NDArray[np.float64]) -> str:
    """A note if target rows differ in weight."""
    return "Shares of the target are shares of its weights. " if are_uneven(weights) else ""


def coverage_of(
    selection: Selection,
    labels: Codes | None,
    groups: Codes | None,
    weights: NDArray[np.float64],
    kind_of_labels: str = "class",
    chosen_rows: str = "prototypes",
) -> list[ClassCoverage]:
    found = []
    for kind, codes in ((kind_of_labels, labels), ("group", groups)):
        if codes is None or codes.target is None:
            continue
        costs = {}
        if kind == "group":
            costs = {
                codes.by_label.get(label): cost for label, cost in selection.group_costs.items()
            }
        count = len(codes.names)
        mass = np.bincount(codes.target, weights, minlength=count)
        targets = np.bincount(codes.target[weights > 0], minlength=count)
        chosen = np.bincount(codes.source[selection.indices], minlength=count)
        own = _represented_by_its_own(selection, codes)
        shares = [
            Share(
                code,
                name,
                int(targets[code]),
                float(mass[code]),
                int(chosen[code]),
                float(chosen[code] / selection.k),
                _mark(float(mass[code]), int(chosen[code]), selection.k),
                float(own[code] / mass[code]) if mass[code] else 0.0,
                costs.get(code),
            )
            for code, name in enumerate(codes.names)
            if targets[code] or chosen[code]
        ]
        note = weights_note(weights)
        chosen_of = sum(share.prototypes > 0 for share in shares)
        if (extra := len(shares) - selection.k) > 0:
            without = len(shares) - chosen_of
            note += (
                f"{selection.k:,} {chosen_rows} can be of at most {selection.k:,} of "
                f"{len(shares):,}: {extra:,} of the {without:,} without one "
                f"({extra / without:.0%}) are unavoidable. "
            )
        if codes.others:
            note += f"{codes.others:,} smaller ones are counted together as others. "
        found.append(ClassCoverage(kind, codes.names, shares, note))
    if len(found) == 2 and labels is not None and groups is not None:
        same = labels.names == groups.names and np.array_equal(labels.source, groups.source)
        if same:  # groups and classes are the same: show them once, with costs
            return found[1:]
    return found


def _represented_by_its_own(selection: Selection, codes: Codes) -> NDArray[np.float64]:
    """The target mass of each class that prototypes of that class represent."""
    assert codes.target is not None
    plan = selection.plan.tocoo()
    classes = codes.source[selection.indices][plan.row]
    same = classes == codes.target[plan.col]
    found = np.bincount(classes[same], plan.data[same], minlength=len(codes.names))
    return found.astype(np.float64)


def composition_of(selection: Selection, labels: Codes | None) -> list[dict[str, Any]]:
    """The number of rows from each source, the largest first; none if the target has labels."""
    if labels is None or labels.target is not None:
        return []
    count = len(labels.names)
    rows = np.bincount(labels.source, minlength=count)
    chosen = np.bincount(labels.source[selection.indices], minlength=count)
    order = sorted(range(count), key=lambda code: (-chosen[code], -rows[code], code))
    return [
        {
            "code": code,
            "name": labels.names[code],
            "rows": int(rows[code]),
            "row_share": float(rows[code] / rows.sum()),
            "chosen": int(chosen[code]),
            "chosen_share": float(chosen[code] / selection.k),
        }
        for code in order
    ]


def _mark(share: float, chosen: int, k: int) -> str:
    """Mark a class whose prototypes differ from its share clearly, and by one at least."""
    expected = share * k
    if chosen == 0:
        return "missing" if share > 0 else ""
    if chosen < UNDER * expected and chosen <= expected - 1:
        return "under"
    if chosen > OVER * expected and chosen >= expected + 1:
        return "over"
    return ""
