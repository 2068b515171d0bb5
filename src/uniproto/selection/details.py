"""What a selection was made with and how: for those who want more than the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Method, Picks
from uniproto.problem.problem import Problem
from uniproto.problem.values import measure

if TYPE_CHECKING:
    import pyarrow as pa

    from uniproto.features.compared_rows import Given
    from uniproto.selection.update import Change, Updated


@dataclass(eq=False)
class Details:
    """How a selection was made.

    `gains` is what each pick added to the method's own objective, `beta` (β) the ceiling of the
    costs, `shape` how many source and target rows there were, `options` those of the `method`,
    `notes` what it says about its work, `timings` the seconds of each stage, `proof` why no other
    rows cost less (where that is known), `given` the rows as they were passed (those of a loaded
    result are not known) and `preparation` what became of each column of a table (None where rows
    are compared as they are). `prototypes` are the chosen rows of a table, of a loaded result.
    `updated` says how `Selection.update` came to it from an earlier one, and `asked` holds the
    arguments of the call that are not the problem's.
    """

    gains: NDArray[np.float64]
    beta: float
    shape: tuple[int, int]
    metric: str
    bandwidth: float | None
    method: str
    options: Mapping[str, Any]
    seed: int
    notes: dict[str, Any]
    timings: dict[str, float]
    given: Given
    prototypes: pa.Table | None = None
    updated: Updated | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[Change, ...]:
        """What `Selection.update` has changed, of a selection that it made."""
        return () if self.updated is None else self.updated.changes

    @property
    def preparation(self) -> Any:
        return self.given.preparation

    @property
    def measure(self) -> Any:
        """The metric with its bandwidth, as `Problem` takes it."""
        return measure(self.metric, self.bandwidth)

    @property
    def proof(self) -> str | None:
        return self.note("proof")

    @property
    def proven(self) -> tuple[str, float] | None:
        """The proof, where there is one, and a cost that no choice is below: rounded down."""
        least = self.notes.get("least")
        return (self.proof, least) if self.proof and isinstance(least, float) else None

    def note(self, name: str) -> str | None:
        """A text among the `notes` of the whole selection, or None. Those of a group are no text.

        >>> import uniproto
        >>> found = uniproto.select([[0.0], [1.0], [5.0], [6.0]], k=2, metric="euclidean")
        >>> found.details.note("metric_from") is None
        True
        """
        found = self.notes.get(name)
        return found if isinstance(found, str) else None


def details_of(
    problem: Problem, method: Method, picks: Picks, timings: dict[str, float], **more: Any
) -> Details:
    """The details of what a method has picked; `more` are further fields."""
    known = {
        "metric_from": problem.metric_origin,
        "target_weights": problem.weights_origin,
        "bandwidth_from": problem.bandwidth_origin,
        **({} if picks.proof is None else {"proof": picks.proof.why, "least": picks.proof.least}),
    }
    return Details(
        gains=picks.gains,
        beta=problem.costs.ceiling,
        shape=problem.costs.shape,
        metric=problem.costs.metric,
        bandwidth=problem.costs.bandwidth,
        method=method.name,
        options=recorded_options(method),
        seed=problem.seed,
        given=problem.given,
        timings=timings,
        notes={**picks.notes, **{name: of for name, of in known.items() if of is not None}},
        asked={"method": method},
        **more,
    )


def recorded_options(method: Method) -> dict[str, Any]:
    """The method's options as plain values, for the record."""
    if not is_dataclass(method):
        return {}
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return {name: repr(value) if is_dataclass(value) else value for name, value in values.items()}
