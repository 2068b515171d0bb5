"""Several models in one table, a row each, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping

from uniproto.errors import invalid
from uniproto.judging.evaluation import Evaluation


def side_by_side(evaluations: Mapping[str, Evaluation]) -> str:
    """Accuracy in per cent, ± one standard error: a row per model, a column per data set.

    >>> def judged(verdict):
    ...     items = [{"dataset": "svamp", "id": "svamp-0", "verdict": verdict, "how": "program"}]
    ...     return Evaluation("model", items, {})
    >>> print(side_by_side({"before": judged("wrong"), "after": judged("right")}))
    %             SVAMP
    before    0.0 ± 0.0
    after   100.0 ± 0.0
    """
    if not evaluations:
        raise invalid("evaluations", "must hold a model or more", "none", "Evaluate one.")
    orders = {name: each.order for name, each in evaluations.items()}
    order = next(iter(orders.values()))
    for name, each in orders.items():
        if each != order:
            raise invalid(
                "evaluations",
                f"must have the same data sets ({', '.join(order)})",
                f"{', '.join(each)} for {name!r}",
                "Compare models on the same suite.",
            )
    from uniproto.comparing.results import aligned

    columns = {"%": list(evaluations)}
    for column in order:
        columns[Evaluation.title_of(column)] = [
            _cell(each.scores[column]["accuracy"], each.scores[column]["error"])
            for each in evaluations.values()
        ]
    found = [note for each in evaluations.values() for note in each.notes.items() if note[1]]
    notes = [f"{Evaluation.title_of(name)}: {note}" for name, note in dict.fromkeys(found)]
    return "\n".join([aligned(columns), *notes])


def _cell(value: float, error: float | None) -> str:
    return f"{100 * value:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")
