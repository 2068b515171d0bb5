"""Checks of the arguments of a `Problem`; each error names the remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, as_rows, dense, float_type
from uniproto.errors import DataWarning, InvalidInputError, finite_number, warn_of_data
from uniproto.geometry.blocks import row_blocks, spread_rows
from uniproto.geometry.costs import MATRIX_METRICS, Costs, make_costs, metric_name

_NEAR_DUPLICATE = 0.01  # of the median distance: min_distance='auto'
_SAMPLED_ROWS = 16  # compared with each
_SAMPLED_OTHERS = 4096  # for the median distance
_SCALES_APART = 100  # a column with this many times the spread of the others decides alone
_SAMPLED_SCALES = 10_000  # rows
_MOST_COLUMNS = 200
AUTO = "auto"  # the metric is chosen by the rows
_FEW_COLUMNS = 20  # more columns are a vector
_OF_LENGTH_ONE = 1e-3  # tolerance of lengths 1


def checked_costs(
    source: Any,
    target: Any,
    metric: str,
    bandwidth: Any = None,
    *,
    warn: bool = True,
    names: Sequence[str] = (),
) -> Costs:
    """Costs of checked rows; `warn` if a column outweighs the others, by their `names`.

    The metric `auto` is chosen by the rows.
    """
    metric = metric if metric == AUTO else metric_name(metric)
    if metric in MATRIX_METRICS and target is not None:
        raise InvalidInputError(
            f"must be left out with metric={metric!r}: the matrix's columns are the target.",
            parameter="target",
        )
    checked = as_matrix(source, "source")
    if metric in MATRIX_METRICS:
        if sp.issparse(checked):
            raise InvalidInputError(
                f"must be a dense matrix when metric={metric!r}. Pass matrix.toarray().",
                parameter="source",
            )
        return make_costs(checked, None, metric, bandwidth)
    aim = checked if target is None else as_matrix(target, "target")
    if metric == AUTO:
        metric = metric_for(aim)
    if warn:
        warn_of_scales(aim, metric, names)
    if checked.shape[1] != aim.shape[1]:
        raise InvalidInputError(
            f"must have as many columns as the source, {checked.shape[1]} (got "
            f"{aim.shape[1]}). Use the same features for both.",
            parameter="target",
        )
    if sp.issparse(checked) != sp.issparse(aim):  # one representation for both
        checked, aim = _as_sparse(checked), _as_sparse(aim)
    return make_costs(checked, checked if _are_equal(checked, aim) else aim, metric, bandwidth)


def metric_for(rows: Any) -> str:
    """The metric for rows without a requested one.

    Embeddings, pictures and counts of words point in directions. In a few columns, such as
    coordinates, lengths count too, unless all rows have length 1.

    >>> metric_for(np.array([[52.5, 13.4], [48.1, 11.6]])), metric_for(np.eye(3))
    ('euclidean', 'cosine')
    """
    width = rows.shape[1]
    if width > _FEW_COLUMNS:
        return "cosine"
    some = rows[:: max(1, rows.shape[0] // _SAMPLED_SCALES)]
    some = dense(some, np.float64)
    with np.errstate(over="ignore"):
        lengths = np.sqrt((some * some).sum(axis=1))
    unit = width > 1 and bool((np.abs(lengths - 1) <= _OF_LENGTH_ONE).all())
    return "cosine" if unit else "euclidean"


def why_metric(costs: Any, *, prepared: bool) -> str:
    """The reason for the metric, if none was requested."""
    if prepared:
        return "the table's columns were made comparable"
    width = costs.source.shape[1]
    if width <= _FEW_COLUMNS and costs.metric == "cosine":
        return "all rows have length 1"
    return f"the rows have {width:,} column" + ("s" if width > 1 else "")


class ScaleWarning(DataWarning):
    """A warning about columns of very different scales, or one column compared by its sign."""


def warn_of_scales(rows: Any, metric: str, names: Sequence[str] = ()) -> None:
    """Warn if a few columns decide every distance because their numbers are much larger."""
    if metric not in ("cosine", "euclidean", "sqeuclidean") or sp.issparse(rows):
        return
    if metric == "cosine" and rows.shape[1] == 1:
        warn_of_data(
            "rows with one number have no direction except their sign: metric='cosine' compares "
            "nothing else. Compare them by 'euclidean'.",
            ScaleWarning,
        )
        return
    some = rows[:: max(1, rows.shape[0] // _SAMPLED_SCALES)]
    with np.errstate(all="ignore"):
        spreads = np.asarray(some, np.float64).std(axis=0)
    varying = np.flatnonzero(spreads > 0)
    if not 2 <= len(varying) <= _MOST_COLUMNS:  # wide rows are vectors, whose columns are alike
        return
    low = varying[np.argsort(spreads[varying])[(len(varying) - 1) // 4]]
    high = int(np.argmax(spreads))
    if spreads[high] > _SCALES_APART * spreads[low]:
        most, least = (repr(names[at]) if names else str(at) for at in (high, low))
        warn_of_data(
            f"column {most} varies {spreads[high] / spreads[low]:,.0f} times as much as column "
            f"{least}: under metric={metric!r} it decides alone which rows are alike. Scale the "
            "columns first (sklearn.preprocessing.RobustScaler; for a PrototypeSelector, before "
            "it in a Pipeline), or call uniproto.select with a table and without features=False: "
            "it makes a table's columns comparable.",
            ScaleWarning,
        )


def _are_equal(source: Any, target: Any) -> bool:
    """Whether the target has exactly the rows of the source, and so is the source."""
    if source is target:
        return True
    if source.shape != target.shape or source.dtype != target.dtype:
        return False
    if sp.issparse(source) or sp.issparse(target):
        return bool((source != target).nnz == 0)
    parts = row_blocks(*source.shape)  # possibly on disk
    return all(np.array_equal(source[part], target[part]) for part in parts)


def _as_sparse(matrix: Any) -> Any:
    """A sparse copy, in a dtype that sparse matrices support; rows on disk may have another."""
    return sp.csr_matrix(matrix, dtype=float_type(matrix.dtype))


def checked_weights(values: Any, n: int) -> NDArray[np.float64] | None:
    if values is None:
        return None
    try:
        weights = np.asarray(values, dtype=np.float64)
        fit = weights.shape == (n,) and np.isfinite(weights).all() and weights.min() >= 0
    except Exception:  # foreign objects may raise anything when converted
        fit = False
    if not fit or weights.max() == 0:
        raise InvalidInputError(
            f"must be {n} numbers of at least 0, one per target row, not all 0.",
            parameter="target_weights",
        )
    with np.errstate(under="ignore"):
        shares = weights / weights.max()  # tiny or huge weights neither underflow nor overflow
        shares = shares / math.fsum(shares)
    return np.where(weights > 0, np.maximum(shares, np.finfo(np.float64).tiny), 0.0)


def twin_distance(
    min_distance: float | str | None, costs: Costs, without: NDArray[np.intp]
) -> float | None:
    """The distance up to which two rows count as the same example. Some rows have no vector."""
    if min_distance is None:
        return None
    if not (isinstance(min_distance, str) and min_distance == AUTO):
        return require_distance(min_distance, "min_distance", "'auto' or ")
    every = np.delete(np.arange(costs.shape[0]), without)
    rows, others = (
        every[spread_rows(len(every), most)] for most in (_SAMPLED_ROWS, _SAMPLED_OTHERS)
    )
    typical = np.median([np.median(costs.twin_distances(int(row), others)) for row in rows])
    return _NEAR_DUPLICATE * float(typical)


def require_distance(distance: Any, name: str, instead: str = "") -> float:
    """Check a distance; `instead` is what else the caller would have taken."""
    if isinstance(distance, bool) or not finite_number(distance) >= 0:
        raise InvalidInputError(
            f"must be {instead}a distance of at least 0 (got {distance!r}).", parameter=name
        )
    return float(distance)


def rows_to_choose(
    include: Any, exclude: Any, m: int, without: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The given rows, and those that may be added. Some rows have no vector."""
    given = as_rows(include, "include", m)
    if (skipped := np.intersect1d(given, without)).size:
        raise InvalidInputError(
            f"names row {skipped[0]}, which was skipped. Drop it.", parameter="include"
        )
    excluded = as_rows(exclude, "exclude", m)
    both = np.intersect1d(given, excluded)
    if both.size:
        raise InvalidInputError(
            f"must not name rows of 'include', such as {both[0]}.", parameter="exclude"
        )
    free = np.ones(m, bool)
    free[given] = free[excluded] = free[without] = False
    return given, np.flatnonzero(free)


def require_rows(k: int, free: int, given: int = 0) -> None:
    """Refuse a k below the number of given rows, or above that of these and the free ones."""
    if given > k:
        raise InvalidInputError(
            f"must not hold more than k={k} rows (got {given}). Raise k.", parameter="include"
        )
    if free + given < k:
        raise InvalidInputError(
            f"must not exceed the {free + given} rows that may be chosen (got {k}).", parameter="k"
        )
