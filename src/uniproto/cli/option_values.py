"""What the texts of options mean: budgets, rows, a distance, weights by a word."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from uniproto.errors import InvalidInputError
from uniproto.problem.checks import AUTO
from uniproto.problem.values import RBF, Balanced, Compute, Laplacian, Limits
from uniproto.problem.weights import WEIGHTS, Density, density_from

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.cli.spec import SelectSpec
    from uniproto.data.tables import InputData

_EVERY = "*"


def read_budgets(text: str | None, groups: NDArray[Any]) -> str | dict[Hashable, int]:
    """How k is shared among groups, as an option says it."""
    if text is None or "=" not in text:
        return text or "proportional"
    labels = {str(label): label for label in groups.tolist()}
    return {labels.get(label, label): count for label, count in _counts(text, "budgets")}


def _counts(text: str, parameter: str) -> Iterator[tuple[str, int]]:
    """The labels and numbers of label=3,label=4."""
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        try:
            yield label.strip(), int(count)
        except ValueError:
            raise InvalidInputError(
                f"must give each label a whole number, such as label=3,label=4, not {part!r}.",
                parameter=parameter,
            ) from None


def row_numbers(text: str | None, parameter: str) -> list[int]:
    """Rows as options name them.

    >>> row_numbers("3,17", "exclude")
    [3, 17]
    """
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise InvalidInputError(
            f"must be row numbers such as 3,17,40, not {text!r}.", parameter=parameter
        ) from None


def checked_distance(text: str) -> float:
    """The distance of --exclude-near."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"must be a file and a distance, such as FILE 0.05, not {text!r}.",
            parameter="exclude_near",
        ) from None


def problem_options(spec: SelectSpec) -> dict[str, Any]:
    """The options of a `Problem` that follow from what was asked alone, whatever the files hold."""
    metric: Any = "cosine" if spec.embeds and spec.metric == AUTO else spec.metric
    kernels = {kind.metric: kind for kind in (RBF, Laplacian)}
    if metric in kernels:
        metric = kernels[metric](spec.bandwidth)
    return {
        "metric": metric,
        "min_distance": spec.min_distance,
        "compute": Compute(spec.memory, spec.device, spec.neighbours),
        "seed": spec.seed,
    }


def names_weights(text: str | None) -> bool:
    """Whether --target-weights names weights by a word: balanced, density or density:options.

    >>> names_weights("density:q=30"), names_weights("importance")
    (True, False)
    """
    return text is not None and text.partition(":")[0] in WEIGHTS


def named_weights(spec: SelectSpec) -> str | Density | Balanced | None:
    """The weights of --target-weights: a column by its name, or those that a word names."""
    text = spec.target_weights
    if text is None or not names_weights(text):
        return text
    if text.startswith("density"):
        return density_from(text, "target_weights")
    if text != "balanced":
        raise InvalidInputError(
            f"takes no options for balanced, such as {text!r}.", parameter="target_weights"
        )
    if spec.labels is None:
        raise InvalidInputError(
            "balanced needs --labels. Name the column of classes.", parameter="target_weights"
        )
    return Balanced(spec.labels)


def limits_of(spec: SelectSpec, pool: InputData) -> Limits | None:
    """The limits of a `Problem`: --at-most, --at-least and --budget."""
    limited = limited_column(spec)
    if limited is None:
        return None
    labels = pool.column(limited[0], limited[1])
    by_text = {str(label): label for label in labels.tolist()}
    found: dict[str, dict[Hashable, int]] = {"at_most": {}, "at_least": {}}
    # What is said of every source goes first, so that what is said of one wins.
    parts = [
        (name, *part)
        for name, text in _limits(spec)
        for part in _counts(text.partition(":")[2], name)
    ]
    for name, label, count in sorted(parts, key=lambda part: part[1] != _EVERY):
        for limit in ("at_most", "at_least") if name == "budget" else (name,):
            these = by_text.values() if label == _EVERY else [by_text.get(label, label)]
            found[limit].update(dict.fromkeys(these, count))
    return Limits(labels, **{name: counts or None for name, counts in found.items()})


def _limits(spec: SelectSpec) -> list[tuple[str, str]]:
    given = (("at_most", spec.at_most), ("at_least", spec.at_least), ("budget", spec.budget))
    return [(name, text) for name, texts in given for text in texts or ()]


def limited_column(spec: SelectSpec) -> tuple[str, str] | None:
    """The column of sources that the limits name, which must be one, and an option that does."""
    columns: dict[str, str] = {}
    for name, text in _limits(spec):
        column, colon, _ = text.partition(":")
        if not colon or not column.strip():
            raise InvalidInputError(
                f"must say which column holds the sources, such as source:gsm=500, not {text!r}.",
                parameter=name,
            )
        columns.setdefault(column.strip(), name)
    if len(columns) > 1:
        raise InvalidInputError(
            f"must name one column of sources, the same everywhere, not {' and '.join(columns)}.",
            parameter=list(columns.values())[-1],
        )
    return next(iter(columns.items()), None)
