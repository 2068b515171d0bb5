"""What the texts of options mean: budgets, limits, rows, weights by a word; and the texts again."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from uniproto.errors import InvalidInputError
from uniproto.problem.groups import EVERY
from uniproto.problem.values import Balanced, Limits
from uniproto.problem.weights import WEIGHTS, Density, density_from

Texts = Sequence[str] | None


def budgets_of(text: str) -> str | dict[Hashable, int]:
    """How k is shared among groups, as an option says it."""
    return dict(_counts(text, "budgets")) if "=" in text else text


def budgets_text(budgets: Any) -> str:
    """The text of an option for that.

    >>> budgets_text({"web": 5, "book": 1})
    'web=5,book=1'
    """
    return budgets if isinstance(budgets, str) else ",".join(f"{k}={n}" for k, n in budgets.items())


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


def values_by_column(texts: Texts, parameter: str) -> dict[str, Any]:
    """The columns and their values, of --missing, --cyclic and --weights.

    >>> values_by_column(["age=2,income=0.5", "age=3"], "weights")
    {'age': [2.0, 3.0], 'income': 0.5}
    """
    found: dict[str, Any] = {}
    for part in (part for text in texts or () for part in text.split(",")):
        column, equals, value = (each.strip() for each in part.rpartition("="))
        if not (column and equals and value):
            raise InvalidInputError(
                f"must give each column a value, such as age=2, not {part!r}.", parameter=parameter
            )
        one = number_or_text(value)
        found[column] = one if column not in found else [*_each(found[column]), one]
    return found


def values_text(values: Any) -> list[str] | None:
    """The texts of an option for that; None where there is none, as columns are not named.

    >>> values_text({"age": [2.0, 3.5]})
    ['age=2.0', 'age=3.5']
    """
    if not isinstance(values, Mapping):
        return None
    return [f"{column}={each}" for column, of in values.items() for each in _each(of)]


def number_or_text(text: str) -> float | str:
    """A number where a text is one."""
    try:
        return float(text)
    except ValueError:
        return text


def _each(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list | tuple) else [values]


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


def named_weights(text: str | None, labels: str | None) -> str | Density | Balanced | None:
    """The weights of --target-weights: a column by its name, or those that a word names."""
    if text is None or text.partition(":")[0] not in WEIGHTS:
        return text
    if text.startswith("density"):
        return density_from(text, "target_weights")
    if text != "balanced":
        raise InvalidInputError(
            f"takes no options for balanced, such as {text!r}.", parameter="target_weights"
        )
    if labels is None:
        raise InvalidInputError(
            "balanced needs --labels. Name the column of classes.", parameter="target_weights"
        )
    return Balanced(labels)


def weights_text(weights: Any) -> str | None:
    """The text of an option for weights."""
    if isinstance(weights, Balanced):
        return "balanced"
    return None if weights is None else str(weights)


def limits_of(at_most: Texts, at_least: Texts, budget: Texts) -> Limits | None:
    """The limits of --at-most, --at-least and --budget.

    >>> limits_of(["source:web=5", "source:*=9"], None, None)
    Limits(labels='source', at_most={'web': 5, '*': 9}, at_least=None)
    """
    column: str | None = None
    found: dict[str, dict[str, int]] = {"at_most": {}, "at_least": {}}
    for name, texts in (("at_most", at_most), ("at_least", at_least), ("budget", budget)):
        for text in texts or ():
            named, colon, counts = text.partition(":")
            if not colon or not named.strip():
                raise InvalidInputError(
                    "must say which column holds the sources, such as source:gsm=500, not "
                    f"{text!r}.",
                    parameter=name,
                )
            if column not in (None, named.strip()):
                raise InvalidInputError(
                    "must name one column of sources, the same everywhere, not "
                    f"{column} and {named.strip()}.",
                    parameter=name,
                )
            column = named.strip()
            for limit in ("at_most", "at_least") if name == "budget" else (name,):
                found[limit] |= dict(_counts(counts, name))
    if column is None:
        return None
    parsed = {name: _limit(counts) for name, counts in found.items()}
    return Limits(column, **parsed)


def _limit(counts: dict[str, int]) -> Any:
    if not counts:
        return None
    return counts[EVERY] if list(counts) == [EVERY] else counts


def counts_text(column: Any, counts: Any) -> list[str]:
    """The texts of an option for limits.

    >>> counts_text("source", {"web": 5, "*": 9}), counts_text("source", 3)
    (['source:web=5,*=9'], ['source:*=3'])
    """
    if counts is None:
        return []
    by_label: Mapping[Any, int] = counts if isinstance(counts, Mapping) else {EVERY: counts}
    return [f"{column}:{budgets_text(by_label)}"]
