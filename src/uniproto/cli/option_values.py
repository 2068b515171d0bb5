"""What the texts of options mean: budgets, rows, a distance, weights by a word."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from uniproto.errors import invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_budgets(text: str | None, groups: NDArray[Any] | None) -> str | dict[Hashable, int]:
    """How k is shared among groups, as an option says it."""
    if text is None:
        return "proportional"
    if groups is None:
        raise invalid("--budgets", "needs --groups", repr(text), "Name the column of groups.")
    if "=" not in text:
        return text
    labels = {str(label): label for label in groups.tolist()}
    budgets: dict[Hashable, int] = {}
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        try:
            budgets[labels.get(label.strip(), label.strip())] = int(count)
        except ValueError:
            raise invalid(
                "--budgets",
                "must give each group a whole number",
                repr(part),
                "Write it as label=count,label=count.",
            ) from None
    return budgets


def row_numbers(text: str | None, parameter: str) -> list[int] | None:
    """Rows as options name them.

    >>> row_numbers("3,17", "--exclude")
    [3, 17]
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise invalid(
            parameter, "must be row numbers", repr(text), "Write them as 3,17,40."
        ) from None


def checked_distance(text: str) -> float:
    """The distance of --exclude-near.

    >>> checked_distance("0.05")
    0.05
    """
    try:
        return float(text)
    except ValueError:
        raise invalid(
            "--exclude-near",
            "must be a file and a distance",
            repr(text),
            "Write it as --exclude-near FILE 0.05.",
        ) from None


def min_distance(distinct: bool | float | None) -> float | str | None:
    """The distance of --distinct, which may be given without one.

    >>> min_distance(True), min_distance(False), min_distance(0.5)
    ('auto', None, 0.5)
    """
    if isinstance(distinct, bool):
        return "auto" if distinct else None
    return distinct


def with_bandwidth(metric: str, bandwidth: str | float | None) -> Any:
    """The metric with the bandwidth of --bandwidth.

    >>> with_bandwidth("rbf", "0.5 median"), with_bandwidth("l1", None)
    (RBF(bandwidth='0.5 median'), 'l1')
    """
    from uniproto.problem.values import RBF, Laplacian

    if bandwidth is None:
        return metric
    kinds: dict[str, type[Any]] = {kind.metric: kind for kind in (RBF, Laplacian)}
    if metric not in kinds:
        raise invalid(
            "--bandwidth", f"needs --metric {' or '.join(kinds)}", repr(bandwidth), "Drop it."
        )
    return kinds[metric](bandwidth)


def names_weights(text: str | None) -> bool:
    """Whether --weights names weights by a word: balanced, density or density:options.

    >>> names_weights("density:q=30"), names_weights("importance")
    (True, False)
    """
    from uniproto.problem.weights import WEIGHTS

    return text is not None and text.partition(":")[0] in WEIGHTS
