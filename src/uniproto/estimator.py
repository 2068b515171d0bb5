"""The scikit-learn face: fit chooses prototypes, transform and predict compare rows to them."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from uniproto.errors import invalid, unknown_name
from uniproto.geometry.costs import EVERY, FEATURE_METRICS, FeatureCosts, row_blocks
from uniproto.methods import Method
from uniproto.select import select
from uniproto.selection import Selection


class PrototypeSelector(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Choose prototypes with `uniproto.select`, then describe rows by their distances to them.

    Args:
        n_prototypes: how many rows to choose, at most as many as `X` has.
        metric: `euclidean`, `sqeuclidean`, `l1`, `cosine` or `dot`. The default is not that of
            `select`, because a scikit-learn estimator must accept rows of zeros and cosine cannot.
        method: a method's name, or a method object such as `UniProto(plan="resolve")`.
        distinct: True, or a distance: never choose two rows that close to each other.
        random_state: the seed of methods that draw random numbers; None draws a new one per fit.

    Attributes:
        indices_: rows of `X` that were chosen, in the order picked.
        prototypes_: those rows themselves; sparse where `X` is.
        cost_: exact optimal-transport cost to the target, computed on first access.
        selection_: the whole `Selection`, with its plan and gains.
        n_features_in_, feature_names_in_: as in every scikit-learn estimator.

    >>> from uniproto import PrototypeSelector
    >>> points = [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [8.0, 0.0], [8.0, 1.0], [8.0, 2.0]]
    >>> selector = PrototypeSelector(n_prototypes=2).fit(points)
    >>> selector.prototypes_
    array([[0., 1.], [8., 1.]])
    >>> selector.transform([[0.0, 4.0]])[:, 0]
    array([3.])
    >>> selector.predict([[1.0, 1.0], [7.0, 1.0]])
    array([0, 1])
    """

    indices_: NDArray[np.int64]
    prototypes_: Any
    selection_: Selection

    def __init__(
        self,
        n_prototypes: int = 10,
        *,
        metric: str = "euclidean",
        method: str | Method = "uniproto",
        distinct: bool | float = False,
        random_state: int | None = 0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.metric = metric
        self.method = method
        self.distinct = distinct
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, target: Any = None) -> PrototypeSelector:
        """Choose rows of `X` to stand for `target`, rows of the same features. Default: `X`."""
        if self.metric not in FEATURE_METRICS:
            raise unknown_name("metric", self.metric, FEATURE_METRICS)
        rows = self._checked_rows(X, "X", self.metric, reset=True)
        aim = None if target is None else self._checked_rows(target, "target", self.metric)
        selection = select(
            rows,
            _checked_count(self.n_prototypes, rows.shape[0]),
            aim,
            metric=self.metric,
            method=self.method,
            distinct=self.distinct,
            seed=_checked_seed(self.random_state),
            progress=False,
        )
        assert selection._problem is not None
        assert isinstance(selection._problem.costs, FeatureCosts)
        self._shift = selection._problem.costs.shift  # the maximum in `dot` = max − inner product
        self.selection_ = selection
        self.indices_ = selection.indices
        self.prototypes_ = rows[selection.indices]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Cost of every row to every prototype, shape (rows, n_prototypes).

        With metric `dot` the maximum is the one seen in fit, so other rows may fall below 0.
        """
        return np.concatenate(list(self._costs_by_block(X)))

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The nearest prototype of every row, as a position in `prototypes_`."""
        return np.concatenate([costs.argmin(axis=1) for costs in self._costs_by_block(X)])

    @property
    def cost_(self) -> float:
        """Exact optimal-transport cost between the prototypes and the target."""
        check_is_fitted(self, "selection_")
        return self.selection_.cost

    @property
    def _n_features_out(self) -> int:
        return len(self.indices_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _costs_by_block(self, X: Any) -> Iterator[NDArray[Any]]:
        check_is_fitted(self, "selection_")
        metric = self.selection_.metric
        rows = self._checked_rows(X, "X", metric)
        kind = np.result_type(rows.dtype, self.prototypes_.dtype)
        prototypes = self.prototypes_.astype(np.float64)
        for part in row_blocks(rows.shape[0], prototypes.shape[0]):
            block = rows[part].astype(np.float64)  # x² + y² − 2xy needs the digits
            costs = FeatureCosts(block, prototypes, metric, self._shift, ceiling=0.0)
            yield costs.block(EVERY).astype(kind)

    def _checked_rows(self, values: Any, parameter: str, metric: str, reset: bool = False) -> Any:
        kinds = (np.float64, np.float32)
        try:
            rows = validate_data(self, values, reset=reset, accept_sparse="csr", dtype=kinds)
        except ValueError as error:
            raise invalid(
                parameter,
                "must hold finite numbers, one row per example, in the same features everywhere",
                f"what scikit-learn refuses ({error})",
                "Drop or impute bad rows, and pass the columns of fit in the same order.",
            ) from error
        if metric == "cosine" and not np.all((rows != 0).sum(axis=1)):
            raise invalid(
                parameter,
                "must have no all-zero row when metric='cosine', which has no angle",
                "a zero row",
                "Drop those rows, or use metric='euclidean'.",
            )
        return rows


def _checked_count(n_prototypes: Any, n_samples: int) -> int:
    if not isinstance(n_prototypes, Integral) or not 1 <= n_prototypes <= n_samples:
        raise invalid(
            "n_prototypes",
            "must be a whole number from 1 to the number of rows of X",
            f"{n_prototypes!r} with n_samples={n_samples}",
            "Lower n_prototypes or fit on more rows.",
        )
    return int(n_prototypes)


def _checked_seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if not isinstance(random_state, Integral) or random_state < 0:
        raise invalid(
            "random_state",
            "must be None or a whole number of at least 0",
            repr(random_state),
            "Pass an integer for the same picks in every fit.",
        )
    return int(random_state)
