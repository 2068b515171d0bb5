"""Options of a `Problem` that say several things at once, each as one value."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from uniproto.data.arrays import in_row_order
from uniproto.errors import InvalidInputError, invalid

if TYPE_CHECKING:
    from uniproto.data.tables import Input

Counts = int | Mapping[Hashable, int]  # for every label, or by label


@dataclass(frozen=True)
class RBF:
    """The cost 1 − exp(−d²/2σ²) of the Euclidean distance d: `metric=RBF(bandwidth)`.

    Args:
        bandwidth: σ: a number in the units of the features; a share of the median distance between
            source and target rows, such as `"0.25 median"`; or `"auto"`.

    >>> import uniproto
    >>> uniproto.Problem([[0.0], [1.0], [5.0]], metric=uniproto.RBF(2.0))
    Problem(3 source rows, the target is the source, rbf, bandwidth 2)
    """

    bandwidth: float | str = "auto"
    metric: ClassVar[str] = "rbf"


@dataclass(frozen=True)
class Laplacian:
    """The cost 1 − exp(−d/σ) of the L1 distance d: `metric=Laplacian(bandwidth)`.

    Args:
        bandwidth: σ, as for `RBF`.

    >>> Laplacian("0.5 median")
    Laplacian(bandwidth='0.5 median')
    """

    bandwidth: float | str = "auto"
    metric: ClassVar[str] = "laplacian"


@dataclass(frozen=True, eq=False)
class Balanced:
    """Target weights that give every class the same total: `target_weights=Balanced(labels)`.

    Args:
        labels: one class per target row, or the name of the target's column of classes.

    >>> import uniproto
    >>> points = [[0.0], [0.1], [0.2], [9.0]]
    >>> problem = uniproto.Problem(points, metric="l1", target_weights=Balanced(list("aaab")))
    >>> problem.target_weights.round(3)
    array([0.167, 0.167, 0.167, 0.5  ])
    """

    labels: Any


@dataclass(frozen=True, eq=False)
class Groups:
    """A separate selection inside each group: `groups=Groups(labels, budgets="balanced")`.

    Args:
        labels: one group per source row, or the name of a column.
        target: one group per target row, or the name of the target's column. Default: `labels`,
            where the target is the source or has a column of that name.
        budgets: how k is shared among the groups: `"proportional"` to their target weight or
            `"balanced"`, where each gets the whole rows of its share and the smallest groups first
            what is left; or a mapping from group to count.

    >>> import uniproto
    >>> groups = Groups(["a", "a", "b", "b"], budgets={"a": 1, "b": 2})
    >>> uniproto.select([[0.0], [1.0], [5.0], [6.0]], 3, metric="l1", groups=groups).indices
    array([0, 2, 3])
    """

    labels: Any
    target: Any = None
    budgets: str | Mapping[Hashable, int] = "proportional"


@dataclass(frozen=True, eq=False)
class Limits:
    """How many rows with each label may or must be chosen: `limits=Limits(labels, at_most=…)`.

    Args:
        labels: one label per source row, or the name of a column, such as where a row comes from.
        at_most: the most rows of any label, or a mapping from label to count, in which `"*"`
            stands for every other label.
        at_least: the fewest, likewise.

    >>> import uniproto
    >>> points = [[0.0], [1.0], [2.0], [3.0], [9.0]]
    >>> limits = Limits(["web"] * 4 + ["book"], at_most={"web": 1})
    >>> sorted(uniproto.select(points, 2, metric="l1", limits=limits).indices.tolist())
    [1, 4]
    """

    labels: Any
    at_most: Counts | None = None
    at_least: Counts | None = None


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are features, and how they are scaled: `features=Columns(…)`.

    Args:
        use: names of the columns to take. Default: all that tell rows apart.
        ignore: names of columns to leave out.
        categories: names of columns whose numbers are codes, such as product 1, 2, 3.
        scale: how numbers are scaled: `"robust"` (by their quartiles; what lies beyond three
            spreads counts by its logarithm), `"standard"`, `"minmax"` or `"none"`.
        missing: values that stand for a gap, such as -999: one or several for all columns, or a
            mapping from columns to them.
        cyclic: a mapping from columns that come round to their period, such as `{"hour": 24}`:
            hour 23 is next to hour 0. Columns of latitude and longitude are recognised, and are
            positions on the globe.
        weights: a mapping from columns to how much they count, such as `{"age": 2}`. Others: 1.
        prepare: whether columns are made comparable: numbers scaled, gaps filled and flagged,
            categories turned into features, ids set aside. Default: unless they are one vector
            already, such as columns e0 … e383. False takes numbers as they are.
        id: the column that names rows. It is no feature; the files of `Selection.save` have it.
        labels: the target's column of classes. It is no feature; reports show it.
        encoding: of a .csv file, such as `latin-1`.

    >>> Columns(ignore=["id"]).ignore
    ['id']
    """

    use: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    categories: Sequence[str] = ()
    scale: str = "robust"
    missing: Any = ()
    cyclic: Mapping[str, float] | None = None
    weights: Mapping[str, float] | None = None
    prepare: Any = None
    id: str | None = None
    labels: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for name in ("use", "ignore", "categories"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence | None):
                raise InvalidInputError(
                    f"must hold lists of names, such as {name}=[{given!r}].", parameter="features"
                )


@dataclass(frozen=True)
class TargetSample:
    """A random sample of a target: `target=TargetSample(1_000, "wanted.npy")`.

    Its rows are drawn with the problem's seed; columns are made comparable over all rows.

    Args:
        rows: how many.
        of: the path of the target. Default: the source.

    >>> TargetSample(1_000)
    TargetSample(rows=1000, of=None)
    """

    rows: int
    of: Any = None


@dataclass(frozen=True)
class Compute:
    """Where and with how much memory to compute: `compute=Compute(memory="4GB")`.

    It changes how long the answer takes. A GPU rounds differently, so that the search may end at
    other rows of about the same cost; `neighbours="faiss"` is approximate.

    Args:
        memory: how much working memory to use beyond the inputs: bytes, or a text such as "4GB".
            Default: a quarter of free memory. A file that would take more than that stays on
            disk, or is refused where its format does not allow it.
        device: where to search: `"cpu"`, `"cuda"`, or `"auto"`, which takes a GPU where torch sees
            one.
        neighbours: `"exact"`, or `"faiss"` for approximate nearest rows, whose measured recall is
            in `Selection.details.notes`.

    >>> Compute(memory="4GB", device="cpu")
    Compute(memory='4GB', device='cpu', neighbours='exact')
    """

    memory: int | float | str | None = None
    device: str = "auto"
    neighbours: str = "exact"


def metric_of(metric: Any) -> Any:
    """The name of a metric.

    >>> metric_of(RBF(2.0)), metric_of("l1")
    ('rbf', 'l1')
    """
    return metric.metric if isinstance(metric, RBF | Laplacian) else metric


def measure(metric: str, bandwidth: float | str | None) -> str | RBF | Laplacian:
    """A metric as `Problem` takes it, by its name and its bandwidth, if it has one.

    >>> measure("rbf", 2.0), measure("l1", None)
    (RBF(bandwidth=2.0), 'l1')
    """
    kinds: dict[str, type[RBF] | type[Laplacian]] = {"rbf": RBF, "laplacian": Laplacian}
    return metric if bandwidth is None or metric not in kinds else kinds[metric](bandwidth)


def as_columns(features: Any) -> Columns:
    """What `features` says about a table's columns; `prepare` is a transformer, if it is one.

    >>> as_columns(False).prepare
    False
    """
    if features is None:
        return Columns()
    return features if isinstance(features, Columns) else Columns(prepare=features)


def ignoring(features: Any, name: str) -> Any:
    """The same `features`, in which one more is no feature; a transformer knows its own."""
    asked = as_columns(features)
    if asked.prepare is None or isinstance(asked.prepare, bool):
        return replace(asked, ignore=[*asked.ignore, name])
    return features


def as_kind(parameter: str, value: Any, kind: type[Any], remedy: str) -> Any:
    """A value that must be of one of our types, or None where nothing is given."""
    if value is None or isinstance(value, kind):
        return value
    raise invalid(parameter, f"must be a {kind.__name__}(…)", repr(value), remedy)


class NamedColumns:
    """The values of columns that options name; `aside` says which option names each.

    >>> import pyarrow as pa
    >>> from uniproto.data.tables import Input
    >>> columns = NamedColumns(Input(pa.table({"age": [20, 30], "kind": ["a", "b"]})))
    >>> columns.of_source("kind", "groups"), columns.aside
    (array(['a', 'b'], dtype=object), {'kind': 'named by groups'})
    """

    def __init__(self, source: Input, target: Input | None = None) -> None:
        self._source, self._target = source, source if target is None else target
        self.has_target = target is not None
        self.of_the_target = self._target.names
        self.aside: dict[str, str] = {}

    def of_source(self, values: Any, parameter: str) -> Any:
        """The source's column of that name; a Series in the order of its rows."""
        return self._column(self._source, values, parameter)

    def of_target(self, values: Any, parameter: str) -> Any:
        """The same for the target."""
        return self._column(self._target, values, parameter)

    def both(self, values: Any, parameter: str) -> tuple[Any, Any]:
        """Labels of the source's rows and of the target's: a name, one sequence, or a pair.

        The second is None where only one sequence is given.
        """
        if isinstance(values, str):
            return self.of_source(values, parameter), self.of_target(values, parameter)
        if isinstance(values, tuple) and len(values) == 2 and self._is_pair(*values):
            return self.of_source(values[0], parameter), self.of_target(values[1], parameter)
        return self.of_source(values, parameter), None

    def _is_pair(self, first: Any, second: Any) -> bool:
        """Whether these are labels of many rows, not those of two."""
        if isinstance(first, str) and isinstance(second, str):
            return bool(self._source.names)
        return all(hasattr(each, "__len__") for each in (first, second))

    def target_has(self, name: Any) -> bool:
        """Whether the target is a table with a column of that name."""
        return isinstance(name, str) and name in self.of_the_target

    def _column(self, given: Input, name: Any, parameter: str) -> Any:
        from uniproto.data.columns import column_name

        found = name
        if not isinstance(name, str):
            found = in_row_order(name, given.content, parameter)
            name = column_name(given.content, found)
        else:
            found = given.column(name, parameter)
        if name is not None:
            self.aside.setdefault(name, f"named by {parameter}")
        return found
