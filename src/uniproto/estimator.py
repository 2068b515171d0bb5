"""The scikit-learn estimator: `fit` chooses prototypes, `predict` asks the nearest of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from uniproto.data.arrays import as_labels, as_matrix, distinct_labels
from uniproto.errors import InvalidInputError, WrongTypeError, require_int
from uniproto.geometry.costs import MATRIX_METRICS, metric_name
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods import Method
from uniproto.problem.values import RBF, Compute, Laplacian, metric_of
from uniproto.select import select
from uniproto.selection.prototypes import costs_by_block


class PrototypeSelector(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Choose prototypes with `uniproto.select`, then describe rows by their costs to them.

    Args:
        n_prototypes: how many rows to choose, at most as many as `X` has.
        metric: `euclidean`, `sqeuclidean`, `l1`, `cosine`, `dot`, `rbf` or `RBF(bandwidth)`,
            `laplacian` or `Laplacian(bandwidth)`. The default is not that of `select`: a
            scikit-learn estimator must accept rows of zeros, and cosine cannot.
        method: the name of a method, or a method object such as `UniProto(seconds=10)`.
        min_distance: a distance, or `"auto"`: no two chosen rows are that close to each other.
        random_state: the seed of methods that draw random numbers; None: a new one in every fit.
        compute: `Compute(memory=…, device=…)`, as for `select`.

    Attributes:
        indices_: the chosen rows of `X`, in the order picked.
        prototypes_: those rows themselves; sparse where `X` is.
        cost_: exact optimal-transport cost to the target, computed on first access.
        selection_: the whole `Selection`, with plan and gains.
        labels_: the prototypes' labels, and `classes_` the different ones in `y`, where `fit` was
            given `y`.

    >>> from uniproto import PrototypeSelector
    >>> points = [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [8.0, 0.0], [8.0, 1.0], [8.0, 2.0]]
    >>> selector = PrototypeSelector(n_prototypes=2).fit(points)
    >>> selector.indices_
    array([1, 4])
    >>> selector.transform([[0.0, 5.0], [8.0, 3.0]]).round(2)
    array([[4.  , 8.94], [8.25, 2.  ]])
    >>> selector.predict([[0.0, 5.0], [8.0, 3.0]])
    array([0, 1])
    >>> selector.fit(points, list("aaabbb")).predict([[0.0, 5.0], [8.0, 3.0]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(
        self,
        n_prototypes: int = 10,
        *,
        metric: str | RBF | Laplacian = "euclidean",
        method: str | Method = "uniproto",
        min_distance: float | str | None = None,
        random_state: int | None = 0,
        compute: Compute | None = None,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.metric = metric
        self.method = method
        self.min_distance = min_distance
        self.random_state = random_state
        self.compute = compute

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        target: Any = None,
        target_weights: Any = None,
    ) -> PrototypeSelector:
        """Choose rows of `X` to represent `target`, rows with the same features. Default: `X`.

        `y` are labels of the rows of `X`: they do not change which rows are chosen, but `predict`
        then gives the label of the nearest prototype. `target_weights` are those of `select`; to
        balance the classes, pass `target_weights=Balanced(y)`.
        """
        metric = metric_name(metric_of(self.metric))
        if metric in MATRIX_METRICS:
            raise InvalidInputError(
                f"'metric' must compare features, not be {self.metric!r}. Use uniproto.select "
                "instead."
            )
        rows = self._checked_rows(X, "X", metric, reset=True)
        selection = select(
            rows,
            _checked_count(self.n_prototypes, rows.shape[0]),
            None if target is None else self._checked_rows(target, "target", metric),
            metric=self.metric,
            target_weights=target_weights,
            method=self.method,
            min_distance=self.min_distance,
            seed=_checked_seed(self.random_state),
            compute=self.compute,
            progress=False,
        )
        assert selection._problem is not None
        assert isinstance(selection._problem.costs, FeatureCosts)
        self._shift = selection._problem.costs.shift  # the maximum in `dot` = max − inner product
        self.selection_ = selection
        self.indices_ = selection.indices
        self.prototypes_ = rows[selection.indices]
        self._n_features_out = selection.k
        for name in ("labels_", "classes_"):  # of a fit before this one
            self.__dict__.pop(name, None)
        if y is not None:
            labels = as_labels(y, "y", rows.shape[0])
            self.classes_ = distinct_labels(labels, "y")[0]
            self.labels_ = labels[selection.indices]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Cost of every row to every prototype; `dot` keeps fit's maximum, so it may be below 0."""
        return np.concatenate(list(self._costs_by_block(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of the nearest prototype of every row.

        Where `fit` was given no labels: the prototype itself, as a position in `prototypes_`.
        """
        found = self._costs_by_block(X, saturated=False)
        nearest = np.concatenate([costs.argmin(axis=1) for costs in found])
        return self.labels_[nearest] if hasattr(self, "labels_") else nearest

    def score(self, X: Any, y: Any = None) -> float:
        """The share of rows whose label is that of their nearest prototype; higher is better.

        Without labels, in `fit` or here: the mean cost to the nearest prototype, negative.
        """
        if y is None or not hasattr(self, "labels_"):
            return -float(
                np.concatenate([costs.min(axis=1) for costs in self._costs_by_block(X)]).mean()
            )
        found = self.predict(X)
        return float(np.mean(found == as_labels(y, "y", len(found))))

    @property
    def cost_(self) -> float:
        check_is_fitted(self, "selection_")
        return self.selection_.cost

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _costs_by_block(self, X: Any, *, saturated: bool = True) -> Iterator[NDArray[Any]]:
        check_is_fitted(self, "selection_")
        metric = self.selection_.metric  # of the fit, whatever set_params has changed since
        rows = self._checked_rows(X, "X", metric)
        dtype = np.result_type(rows.dtype, self.prototypes_.dtype)
        # A pickle may be memory-mapped; the prototypes are few and belong in memory.
        prototypes = as_matrix(self.prototypes_, "prototypes_")
        width = self.selection_.bandwidth
        for found in costs_by_block(
            rows, prototypes, metric, self._shift, width, saturated=saturated
        ):
            if not np.abs(found).max() <= np.finfo(dtype).max:
                raise InvalidInputError(
                    f"'X' has costs to the prototypes beyond {dtype}. Rescale the features."
                )
            yield found.astype(dtype)

    def _checked_rows(self, values: Any, parameter: str, metric: str, reset: bool = False) -> Any:
        kinds = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
        try:  # as scikit-learn requires, except that our error for NaN names the row
            rows = validate_data(self, values, reset=reset, ensure_all_finite=False, **kinds)
        except Exception as error:  # what foreign objects raise when converted can be anything
            kind = WrongTypeError if isinstance(error, TypeError) else InvalidInputError
            raise kind(f"{parameter!r} must be rows of numbers, as in fit ({error}).") from error
        rows = as_matrix(rows, parameter)
        if metric == "cosine" and not np.all((rows != 0).sum(axis=1)):
            raise InvalidInputError(
                f"{parameter!r} must have no all-zero row when metric='cosine'. Drop such rows."
            )
        return rows


def _checked_count(n_prototypes: Any, n_samples: int) -> int:
    if isinstance(n_prototypes, (int, np.integer)) and 1 <= n_prototypes <= n_samples:
        return int(n_prototypes)
    raise InvalidInputError(
        f"'n_prototypes' must be a whole number from 1 to the rows of X (n_samples={n_samples}), "
        f"not {n_prototypes!r}."
    )


def _checked_seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return require_int("random_state", random_state, least=0)
