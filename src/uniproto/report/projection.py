"""Where rows lie on the map: two coordinates for targets and prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts

_SAMPLED_ROWS = 10_000  # the directions are learned from
_SAMPLED_VALUES = 40_000_000  # and fewer rows where they are wide
_FEWEST_ROWS = 200
_LANDMARKS = 256  # prototypes whose costs describe a target that has no features


@dataclass(frozen=True)
class Projection:
    """Coordinates of targets and prototypes, the axes' names, and how they came about."""

    targets: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    axes: tuple[str, str]
    words: str


def project(
    costs: Costs,
    plan: sp.csr_array,
    prototypes: NDArray[np.int64],
    targets: NDArray[np.intp],
) -> Projection:
    """The two directions along which the target varies most.

    Features are seen as the metric sees them: of unit length for `cosine`. Without features a
    target is described by what it costs to reach it from the prototypes.
    """
    if isinstance(costs, FeatureCosts):
        return _of_features(costs, prototypes, targets)
    return _of_costs(costs, plan, prototypes, targets)


def _of_features(
    costs: FeatureCosts, prototypes: NDArray[np.int64], targets: NDArray[np.intp]
) -> Projection:
    n, width = costs.target.shape
    drawn, chosen = costs.target[targets], costs.source[prototypes]
    seen = " of unit length, as cosine compares directions only" if costs.metric == "cosine" else ""
    if width <= 2 and not sp.issparse(drawn):
        return Projection(
            _two(np.asarray(drawn, np.float64)),
            _two(np.asarray(chosen, np.float64)),
            ("first feature", "second feature"),
            f"Axes: the features themselves{seen}.",
        )
    most = max(_FEWEST_ROWS, min(_SAMPLED_ROWS, _SAMPLED_VALUES // width))
    sample = np.arange(n)
    if n > most:
        sample = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    fitted, shares = _fit(costs.target[sample])
    of = "" if len(sample) == n else f", learned from {len(sample):,} of {n:,} targets"
    return Projection(
        fitted(drawn),
        fitted(chosen),
        _axes("principal direction", shares),
        f"Axes: principal components of the features{seen}{of}. The two show {shares.sum():.0%} "
        "of the variance; points that seem close may be far apart in the rest.",
    )


def _of_costs(
    costs: Costs,
    plan: sp.csr_array,
    prototypes: NDArray[np.int64],
    targets: NDArray[np.intp],
) -> Projection:
    m, n = costs.shape
    places = np.unique(np.linspace(0, len(prototypes) - 1, _LANDMARKS).astype(np.intp))
    landmarks = prototypes[places]
    described = costs.block(landmarks, targets).T.astype(np.float64)
    fitted, shares = _fit(described)
    if m == n:  # a square matrix: the prototypes are targets themselves
        chosen = fitted(costs.block(landmarks, prototypes).T.astype(np.float64))
        where = "a prototype lies where it lies as a target"
    else:
        part = sp.csr_array(sp.csc_array(plan)[:, targets])
        total = np.asarray(part.sum(axis=1)).ravel()
        positions = fitted(described)
        chosen = (part @ positions) / np.where(total > 0, total, 1)[:, None]
        where = "a prototype lies in the middle of the targets it stands for"
    return Projection(
        fitted(described),
        chosen,
        _axes("direction of costs", shares),
        "The metric has no features, so a target is described by its costs from "
        f"{len(landmarks):,} prototypes; axes: principal components of these ({shares.sum():.0%} "
        f"of the variance); {where}.",
    )


def _fit(rows: Any) -> tuple[Any, NDArray[np.float64]]:
    """A function to two principal components, and their shares of the variance."""
    from sklearn.decomposition import PCA, TruncatedSVD

    count = min(2, *rows.shape)
    sparse = sp.issparse(rows) and rows.shape[1] > count
    if sparse:
        method = TruncatedSVD(count, random_state=0)
    else:
        rows = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        wide = min(rows.shape) > 500
        method = PCA(count, svd_solver="randomized" if wide else "auto", random_state=0)
    with np.errstate(all="ignore"):  # targets that are all alike vary in no direction
        method.fit(rows)
        shares = np.nan_to_num(np.asarray(method.explained_variance_ratio_, np.float64))
    # Of a direction and its opposite, the one whose largest loading is positive.
    loading = method.components_[np.arange(count), np.abs(method.components_).argmax(axis=1)]
    signs = np.where(loading < 0, -1.0, 1.0)

    def transform(some: Any) -> NDArray[np.float64]:
        some = some.toarray() if sp.issparse(some) and not sparse else some
        if not len(signs) or some.shape[0] == 0:
            return np.zeros((some.shape[0], 2))
        return _two(np.asarray(method.transform(some), np.float64) * signs)

    return transform, shares


def _two(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.zeros((len(values), 2))
    found[:, : values.shape[1]] = values[:, :2]
    return np.nan_to_num(found)


def _axes(name: str, shares: NDArray[np.float64]) -> tuple[str, str]:
    first, second = [*shares.tolist(), 0.0, 0.0][:2]
    return f"first {name} ({first:.0%} of variance)", f"second {name} ({second:.0%} of variance)"
