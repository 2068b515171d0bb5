"""What the texts of options mean: budgets, rows, a distance, weights by a word."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from uniproto.cli.parser import flag_of
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
    return {labels.get(label, label): count for label, count in _counts(text, "--budgets")}


def _counts(text: str, parameter: str) -> Iterator[tuple[str, int]]:
    """The labels and numbers of label=3,label=4."""
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        try:
            yield label.strip(), int(count)
        except ValueError:
            raise InvalidInputError(
                f"{parameter} must give each label a whole number, such as label=3,label=4, not "
                f"{part!r}."
            ) from None


def row_numbers(text: str | None, parameter: str) -> list[int]:
    """Rows as options name them.

    >>> row_numbers("3,17", "--exclude")
    [3, 17]
    """
    try:
        return [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise InvalidInputError(
            f"{parameter} must be row numbers such as 3,17,40, not {text!r}."
        ) from None


def checked_distance(text: str) -> float:
    """The distance of --exclude-near."""
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"--exclude-near must be a file and a distance, such as FILE 0.05, not {text!r}."
        ) from None


def problem_options(spec: SelectSpec) -> dict[str, Any]:
    """The options of a `Problem` that follow from what was asked alone, whatever the files hold."""
    metric: Any = spec.metric or ("cosine" if spec.embeds else AUTO)
    if spec.bandwidth is not None:
        metric = {kind.metric: kind for kind in (RBF, Laplacian)}[metric](spec.bandwidth)
    return {
        "metric": metric,
        "min_distance": min_distance(spec.distinct),
        "compute": Compute(spec.memory, spec.device, spec.lists),
        "seed": spec.seed,
    }


def min_distance(distinct: bool | float | None) -> float | str | None:
    """The distance of --distinct, which may be given without one.

    >>> min_distance(True), min_distance(False), min_distance(0.5)
    ('auto', None, 0.5)
    """
    if isinstance(distinct, bool):
        return "auto" if distinct else None
    return distinct


def names_weights(text: str | None) -> bool:
    """Whether --weights names weights by a word: balanced, density or density:options.

    >>> names_weights("density:q=30"), names_weights("importance")
    (True, False)
    """
    return text is not None and text.partition(":")[0] in WEIGHTS


def named_weights(spec: SelectSpec) -> str | Density | Balanced | None:
    """The weights of --weights: a column by its name, or those that a word names."""
    text = spec.weights
    if text is None or not names_weights(text):
        return text
    if text.startswith("density"):
        return density_from(text, "--weights")
    if text != "balanced":
        raise InvalidInputError(f"--weights takes no options for balanced, such as {text!r}.")
    if spec.labels is None:
        raise InvalidInputError("--weights balanced needs --labels. Name the column of classes.")
    return Balanced(spec.labels)


def limits_of(spec: SelectSpec, pool: InputData) -> Limits | None:
    """The limits of a `Problem`: --at-most, --at-least and --budget."""
    limited = limited_column(spec)
    if limited is None:
        return None
    labels = pool.column(limited[0], flag_of(limited[1]))
    by_text = {str(label): label for label in labels.tolist()}
    found: dict[str, dict[Hashable, int]] = {"at_most": {}, "at_least": {}}
    # What is said of every source goes first, so that what is said of one wins.
    parts = [
        (name, *part)
        for name, text in _limits(spec)
        for part in _counts(text.partition(":")[2], flag_of(name))
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
                f"{flag_of(name)} must say which column holds the sources, such as source:gsm=500, "
                f"not {text!r}."
            )
        columns.setdefault(column.strip(), name)
    if len(columns) > 1:
        raise InvalidInputError(
            f"{flag_of(list(columns.values())[-1])} must name one column of sources, the same "
            f"everywhere, not {' and '.join(columns)}."
        )
    return next(iter(columns.items()), None)
