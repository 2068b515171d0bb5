"""Ready-made target weights: balanced over classes, or higher where targets lie apart.

Prototypes of equal weight follow the target's mass: a class with 2 % of the rows gets about
2 % of the prototypes. Weights move that mass. With labels, `Balanced` gives every class the same
total; without, `Density` gives more to targets in thin regions, where small classes tend to
be. Both change the question (which target the prototypes represent), not how it is solved.
"""

from __future__ import annotations

import difflib
import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels
from uniproto.errors import (
    InvalidInputError,
    require_int,
    require_name,
    require_positive,
    unknown_name,
)
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import Costs
from uniproto.geometry.cpu_lists import rows_at_once
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.lists import make_builder
from uniproto.geometry.matrix_costs import MatrixCosts
from uniproto.geometry.metrics import OF_FEATURES
from uniproto.problem.checks import checked_weights
from uniproto.problem.values import Balanced, Compute, NamedColumns
from uniproto.runtime.threads import parallel_for, pieces_of

WEIGHTS = {
    "balanced": "Balanced(labels)",
    "density": "Density()",
}  # by their names in --target-weights

_FLOOR = 0.01  # of the median distance, for a target with q copies
_RERANKED = 4  # neighbours on either side of the q-th whose order single precision may have wrong
_PAIR_ENTRIES = 2**21  # features of pairs in memory at a time, in double precision
_SHARE_FOR_LISTS = 8  # of the allowed memory


@dataclass(frozen=True)
class Density:
    """Target weights from density alone: ν_j ∝ (distance from y_j to its q-th nearest target)^α.

    Distances are those of the selection's metric among the targets (Euclidean ones for `dot` and
    `rbf`, L1 for `laplacian`, which are no distances), computed tile by tile. The weights follow
    from the targets alone, whatever the device. A matrix metric needs the square, symmetric matrix
    of the targets' costs among themselves.

    A target with q or more copies of itself has distance 0. It counts as 1 % of the median of the
    positive distances, so it keeps a little weight; where all targets are the same, all weights
    are equal. There must be more than q targets.

    The defaults were chosen by measurement on seven data sets: docs/density-weights.md has the
    table, and says where such weights do not help.

    Args:
        q: which neighbour to measure the distance to; larger values look at wider regions.
        alpha: how strongly the distance counts; 0 would be equal weights.

    >>> import uniproto
    >>> points = [[0.0], [0.1], [0.2], [0.3], [5.0], [6.0]]
    >>> thin = uniproto.Density(q=1, alpha=1)
    >>> sel = uniproto.select(points, 2, metric="euclidean", target_weights=thin)
    >>> sel.indices
    array([5, 4])
    """

    q: int = 5
    alpha: float = 2.0

    def __post_init__(self) -> None:
        require_int("q", self.q)
        require_positive("alpha", self.alpha)

    def __str__(self) -> str:
        """The notation of the command line.

        >>> str(Density(q=30, alpha=4))
        'density:q=30,alpha=4'
        """
        return f"density:q={operator.index(self.q)},alpha={float(self.alpha)!r}".removesuffix(".0")

    def of(self, costs: Costs, *, device: str = "auto", memory: int = 2**30) -> NDArray[np.float64]:
        """One weight per target of these costs; the largest is 1."""
        distances = self._distances(_among_targets(costs), device, memory)
        positive = distances[distances > 0]
        if not positive.size:
            return np.ones(len(distances))
        distances = np.maximum(distances, _FLOOR * np.median(positive))
        return (distances / distances.max()) ** float(self.alpha)

    def _distances(self, among: Costs, device: str, memory: int) -> NDArray[np.float64]:
        """The distance from every target to its q-th nearest other one."""
        n, q = among.shape[0], operator.index(self.q)
        if n <= q:
            raise InvalidInputError(
                f"must be a density with q below the number of targets, {n} (got "
                f"q={q}). Pass Density(q={max(1, n // 10)}), or leave the weights out.",
                parameter="target_weights",
            )
        length = q + 1 + _RERANKED
        # Exact lists even if the selection's are approximate, so that the weights are reproducible.
        index = make_builder(device, "exact", among).index(among)
        found = np.empty(n)
        for piece in pieces_of(n, rows_at_once(length, memory // _SHARE_FOR_LISTS)):
            rows = np.arange(piece.start, piece.stop)
            listed, columns = index.nearest(rows, length)
            # The row itself goes to the end and is cut off; where copies of it have pushed it out
            # of its list, the farthest entry is.
            others = np.argsort(columns == rows[:, None], axis=1, kind="stable")[:, :-1]
            others = others[:, max(0, q - 1 - _RERANKED) :]
            place = q - 1 - max(0, q - 1 - _RERANKED)
            near = np.take_along_axis(listed, others, axis=1).astype(np.float64)
            if isinstance(among, FeatureCosts):
                near = _exact_distances(among, rows, np.take_along_axis(columns, others, axis=1))
            found[piece] = np.maximum(np.sort(near, axis=1)[:, place], 0.0)
        return found


def named_weights(target_weights: Any, named: NamedColumns) -> Any:
    """The same weights, with the values of a column where they are its name."""
    if isinstance(target_weights, Balanced):
        labels = target_weights.labels
        parameter = "labels" if isinstance(labels, str) else "target_weights"
        return Balanced(named.of_target(labels, parameter))
    word = target_weights if isinstance(target_weights, str) else ""
    if word and not named.target_has(word):
        if word in WEIGHTS:
            raise InvalidInputError(
                f"must be weights or a column's name. Pass uniproto.{WEIGHTS[word]}.",
                parameter="target_weights",
            )
        if difflib.get_close_matches(word, WEIGHTS, cutoff=0.7):
            raise unknown_name("target_weights", word, [*named.of_the_target, *WEIGHTS])
    return named.of_target(target_weights, "target_weights")


def weights_from(
    target_weights: Any,
    costs: Costs,
    compute: Compute,
    memory: int,
    without: NDArray[np.intp],
) -> tuple[Any, str | None]:
    """The weights of the targets, and the recorded name of those that are computed here.

    Targets `without` a vector weigh nothing.
    """
    n, origin, weights = costs.shape[1], None, target_weights
    known = np.delete(np.arange(n), without)
    if isinstance(target_weights, Density):
        seen = costs.restrict(np.arange(1), known) if without.size else costs
        weights, origin = np.zeros(n), str(target_weights)
        weights[known] = target_weights.of(seen, device=compute.device, memory=memory)
    elif isinstance(target_weights, Balanced):
        labels = as_labels(target_weights.labels, "target_weights", n)
        rows = Counter(labels[known].tolist())
        weights = np.array([1 / rows[label] if label in rows else 0.0 for label in labels.tolist()])
        origin = f"balanced over {len(rows)} classes"
    if without.size:
        weights = np.ones(n) if weights is None else np.array(checked_weights(weights, n))
        weights[without] = 0.0
    return weights, origin


def density_from(text: str, parameter: str) -> Density:
    """Read `density` or `density:q=30,alpha=4`.

    >>> density_from("density:q=5", "target_weights").q
    5
    """
    given: dict[str, Any] = {}
    _, _, options = text.partition(":")
    for part in options.split(",") if options else []:
        name, _, value = (piece.strip() for piece in part.partition("="))
        kinds = {"q": int, "alpha": float}
        require_name(parameter, name, kinds)
        try:
            given[name] = kinds[name](value)
        except ValueError:
            raise InvalidInputError(
                f"must look like density:q=30,alpha=4 (got {part!r}).", parameter=parameter
            ) from None
    try:
        return Density(**given)
    except InvalidInputError as error:
        raise InvalidInputError(f"has an invalid option: {error}", parameter=parameter) from error


def _among_targets(costs: Costs) -> Costs:
    """The targets' costs among themselves."""
    if isinstance(costs, MatrixCosts):
        if costs.shape[0] != costs.shape[1] or not _is_symmetric(costs):
            raise InvalidInputError(
                "from a density needs the targets' costs among themselves: with "
                f"metric={costs.metric!r} a square, symmetric matrix. Pass features instead.",
                parameter="target_weights",
            )
        return costs
    assert isinstance(costs, FeatureCosts)
    metric, targets = OF_FEATURES[costs.metric].apart or costs.metric, costs.target
    return FeatureCosts(targets, targets, metric, 0.0, costs.reach, prepared=True)


def _is_symmetric(costs: Costs) -> bool:
    slack = 1e-5 * costs.ceiling
    return all(
        np.allclose(costs.block(part), costs.block(EVERY, part).T, rtol=1e-5, atol=slack)
        for part in row_blocks(*costs.shape)
    )


def _exact_distances(
    costs: FeatureCosts, rows: NDArray[np.intp], others: NDArray[np.int32]
) -> NDArray[np.float64]:
    """The distances of each row to its own others, in double precision; exactly 0 for copies."""
    distances = np.empty(others.shape)
    step = max(1, _PAIR_ENTRIES // (others.shape[1] * costs.target.shape[1]))

    def fill(part: slice) -> None:
        mine = costs.target[np.repeat(rows[part], others.shape[1])].astype(np.float64)
        apart = mine - costs.target[others[part].ravel().astype(np.intp)].astype(np.float64)
        found = costs.curve.of(costs.distance.of_differences(apart, costs.dtype))
        distances[part] = found.reshape(-1, others.shape[1])

    parallel_for(fill, pieces_of(len(rows), step))
    return distances
