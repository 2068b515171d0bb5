"""Everything the page says, as plain values: no markup and no drawing here."""

from __future__ import annotations

from dataclasses import dataclass, field

from uniproto.report.projection import Projection


@dataclass(frozen=True)
class Tile:
    """One number of the verdict, and what it means."""

    name: str
    value: str
    words: str


@dataclass(frozen=True)
class Verdict:
    headline: str
    sentence: str
    tiles: list[Tile]


@dataclass(frozen=True)
class Item:
    """A target that the page shows somewhere. `x` and `y` are None where there is no map."""

    row: int
    name: str
    text: str
    cost: float | None
    label: int | None
    group: int | None
    picture: int | None
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class Stood:
    """A target that a prototype stands for: its item, its share of the prototype, its words."""

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
    mass: float
    targets: int
    label: int | None
    group: int | None
    given: bool
    picture: int | None
    missing: str  # why there is no picture, where one was expected
    text: str | None
    length: int  # of the whole text, in characters, where the card shows only its beginning
    fields: list[tuple[str, str]]
    stands_for: list[Stood]
    lights: list[int]  # items on the map it stands for
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class Share:
    """A class's share of the target against its share among prototypes."""

    code: int
    name: str
    targets: int
    target_share: float
    prototypes: int
    prototype_share: float
    mark: str  # "under", "over", "missing" or ""
    cost: float | None = None

    @property
    def words(self) -> str:
        return {"missing": "no prototype", "": "in step"}.get(self.mark, f"{self.mark}-represented")


@dataclass(frozen=True)
class Coverage:
    """The classes or groups, the largest first."""

    kind: str  # "class" or "group"
    names: list[str]  # by code
    shares: list[Share]
    note: str


@dataclass(frozen=True)
class Worst:
    """A badly covered target: its item, words, cost and the prototypes (ranks) it went to."""

    item: int
    words: str
    cost: float
    prototypes: list[int]


@dataclass(frozen=True)
class Curve:
    """What the picks cost, added up, as shares of the whole: the last is a total cost."""

    title: str
    values: list[float]
    words: str


@dataclass(frozen=True)
class Rival:
    """A method's cost in the final comparison."""

    name: str
    cost: float
    spread: float | None
    runs: int


@dataclass(frozen=True)
class Content:
    """The page."""

    title: str
    verdict: Verdict
    shape: tuple[int, int]
    k: int
    cost: float
    lower_bound: float | None
    items: list[Item]
    drawn: int  # the first of the items are on the map
    projection: Projection | None
    map_note: str
    cards: list[Card]
    coverage: list[Coverage]
    worst: list[Worst]
    worst_note: str
    curve: Curve | None
    rivals: list[Rival]
    rivals_note: str
    pictures: list[str]
    gaps: list[str]
    methods: list[tuple[str, str]]
    facts: list[tuple[str, str]]
    commands: list[tuple[str, str]] = field(default_factory=list)
