"""The scikit-learn estimators: `fit` chooses prototypes, `predict` asks the nearest of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from uniproto.data.arrays import as_labels, as_matrix, distinct_labels, is_table, take_rows
from uniproto.data.columns import arrow_table, is_numeric
from uniproto.errors import InvalidInputError, WrongTypeError, require_int
from uniproto.geometry.costs import MATRIX_METRICS, metric_name
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods import Method
from uniproto.problem.values import RBF, Compute, Laplacian, metric_of
from uniproto.select import select
from uniproto.selection.prototypes import costs_by_block


class _Prototypes(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The common part of both estimators: choosing prototypes, and the costs of rows to them."""

    def __init__(
        self,
        n_prototypes: int = 10,
        *,
        metric: str | RBF | Laplacian = "euclidean",
        method: str | Method = "uniproto",
        features: Any = None,
        min_distance: float | str | None = None,
        random_state: int | None = 0,
        compute: Compute | None = None,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.metric = metric
        self.method = method
        self.features = features
        self.min_distance = min_distance
        self.random_state = random_state
        self.compute = compute

    def _choose(self, X: Any, sample_weight: Any, target: Any, target_weights: Any) -> int:
        """Choose rows of `X`; returns how many it has."""
        metric = metric_name(metric_of(self.metric))
        if metric in MATRIX_METRICS:
            raise InvalidInputError(
                f"must compare features, not be {self.metric!r}. Use uniproto.select instead.",
                parameter="metric",
            )
        self._prepares = self.features is not None or _is_mixed(X)
        rows = self._checked_rows(X, "X", metric, reset=True)
        aim = None if target is None else self._checked_rows(target, "target", metric)
        without: Any = ()
        if sample_weight is not None:
            if target is not None or target_weights is not None:
                raise InvalidInputError(
                    "is about the rows of X. Pass target_weights alone.", parameter="sample_weight"
                )
            target_weights = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
            without = target_weights == 0
        named = not self._prepares and _is_frame(X) and (target is None or _is_frame(target))
        selection = select(
            X if named else rows,  # whose columns warnings can name
            _checked_count(self.n_prototypes, rows.shape[0] - np.count_nonzero(without)),
            target if named else aim,
            metric=self.metric,
            target_weights=target_weights,
            method=self.method,
            exclude=without,
            features=self.features if self._prepares else False if named else None,
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
        self.prototypes_ = take_rows(rows, selection.indices)
        self._n_features_out = selection.k
        return int(rows.shape[0])

    def transform(self, X: Any) -> NDArray[Any]:
        """Cost of every row to every prototype; `dot` keeps fit's maximum, so it may be below 0."""
        return np.concatenate(list(self._costs_by_block(X)))

    @property
    def cost_(self) -> float:
        check_is_fitted(self, "selection_")
        return self.selection_.cost

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _nearest(self, X: Any) -> NDArray[np.intp]:
        """The position of the nearest prototype of every row."""
        found = self._costs_by_block(X, saturated=False)
        return np.concatenate([costs.argmin(axis=1) for costs in found])

    def _costs_by_block(self, X: Any, *, saturated: bool = True) -> Iterator[NDArray[Any]]:
        check_is_fitted(self, "selection_")
        metric = self.selection_.details.metric  # of fit, even if set_params has changed it
        rows, prototypes = self._checked_rows(X, "X", metric), self.prototypes_
        if self._prepares:
            given = self.selection_.details.given
            rows, prototypes = given.features(rows, "X"), given.features(prototypes)
        # A pickle may be memory-mapped; copy the prototypes, which are few, into memory.
        prototypes = as_matrix(prototypes, "prototypes_")
        dtype = np.result_type(rows.dtype, prototypes.dtype)
        width = self.selection_.details.bandwidth
        for found in costs_by_block(
            rows, prototypes, metric, self._shift, width, saturated=saturated
        ):
            if not np.abs(found).max() <= np.finfo(dtype).max:
                raise InvalidInputError(
                    f"has costs to the prototypes beyond {dtype}. Rescale the features.",
                    parameter="X",
                )
            yield found.astype(dtype)

    def _checked_rows(self, values: Any, parameter: str, metric: str, reset: bool = False) -> Any:
        if self._prepares:
            if not _is_frame(values):
                raise InvalidInputError(
                    f"must be a table, as {'fit needs' if reset else 'in fit'}: its "
                    "columns are made comparable.",
                    parameter=parameter,
                )
            validate_data(self, values, reset=reset, skip_check_array=True)
            return values
        kinds = {"accept_sparse": "csr", "dtype": (np.float64, np.float32)}
        try:  # as scikit-learn requires, except that our error for NaN names the row
            rows = validate_data(self, values, reset=reset, ensure_all_finite=False, **kinds)
        except Exception as error:  # foreign objects may raise anything when converted
            kind = WrongTypeError if isinstance(error, TypeError) else InvalidInputError
            raise kind(f"{parameter!r} must be rows of numbers, as in fit ({error}).") from error
        rows = as_matrix(rows, parameter)
        if metric == "cosine" and not np.all((rows != 0).sum(axis=1)):
            raise InvalidInputError(
                "must have no all-zero row when metric='cosine'. Drop such rows.",
                parameter=parameter,
            )
        return rows


class PrototypeSelector(_Prototypes):
    """Choose prototypes with `uniproto.select`, then describe rows by their costs to them.

    Args:
        n_prototypes: how many rows to choose, at most as many as `X` has.
        metric: `euclidean`, `sqeuclidean`, `l1`, `cosine`, `dot`, `rbf` or `RBF(bandwidth)`,
            `laplacian` or `Laplacian(bandwidth)`. The default is not that of `select`: a
            scikit-learn estimator must accept rows of zeros, and cosine cannot.
        method: the name of a method, or a method object such as `UniProto(seconds=10)`.
        features: how the columns of a data frame are made comparable, as for `select`, such as
            `Columns(ignore=["id"])`. Default: numbers are taken as they are, and a frame that also
            has other columns is prepared as `select` does.
        min_distance: a distance, or `"auto"`: no two chosen rows are that close to each other.
        random_state: the seed of methods that draw random numbers; None: a new one in every fit.
        compute: `Compute(memory=…, device=…)`, as for `select`.

    Attributes:
        indices_: the chosen rows of `X`, in the order picked.
        prototypes_: those rows themselves; sparse where `X` is, and a data frame where it was
            prepared.
        cost_: exact optimal-transport cost to the target, computed on first access.
        selection_: the whole `Selection`, with plan and gains.

    >>> from uniproto import PrototypeSelector
    >>> points = [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [8.0, 0.0], [8.0, 1.0], [8.0, 2.0]]
    >>> selector = PrototypeSelector(n_prototypes=2).fit(points)
    >>> selector.indices_
    array([1, 4])
    >>> selector.transform([[0.0, 5.0], [8.0, 3.0]]).round(2)
    array([[4.  , 8.94], [8.25, 2.  ]])
    >>> selector.predict([[0.0, 5.0], [8.0, 3.0]])
    array([0, 1])
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: Any = None,
        target_weights: Any = None,
    ) -> PrototypeSelector:
        """Choose rows of `X` to represent `target`, rows with the same features. Default: `X`.

        `sample_weight` is how much each row of `X` counts; rows of weight 0 are not chosen.
        `target_weights` are those of `select`; to balance classes, pass
        `target_weights=Balanced(y)`. `y` itself is ignored: `PrototypeClassifier` predicts labels.
        """
        self._choose(X, sample_weight, target, target_weights)
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The nearest prototype of every row, as a position in `prototypes_`."""
        return self._nearest(X)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean cost of rows to their nearest prototypes, negative: higher is better."""
        nearest = [costs.min(axis=1) for costs in self._costs_by_block(X)]
        return -float(np.concatenate(nearest).mean())


class PrototypeClassifier(ClassifierMixin, _Prototypes):
    """Predict the label of the nearest of a few prototypes: 1-NN on rows that `select` chooses.

    The labels do not change which rows are chosen. Args and attributes are those of
    `PrototypeSelector`, and two more attributes:

    Attributes:
        labels_: the prototypes' labels.
        classes_: the different labels of `y`.

    >>> from uniproto import PrototypeClassifier
    >>> points = [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0], [8.0, 0.0], [8.0, 1.0], [8.0, 2.0]]
    >>> classifier = PrototypeClassifier(n_prototypes=2).fit(points, list("aaabbb"))
    >>> classifier.predict([[0.0, 5.0], [8.0, 3.0]])
    array(['a', 'b'], dtype='<U1')
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        target: Any = None,
        target_weights: Any = None,
    ) -> PrototypeClassifier:
        """Choose rows of `X` as `PrototypeSelector` does; `y` are their labels."""
        count = self._choose(X, sample_weight, target, target_weights)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        labels = as_labels(column_or_1d(y, warn=True), "y", count)
        self.classes_ = distinct_labels(labels, "y")[0]
        self.labels_ = labels[self.indices_]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The label of the nearest prototype of every row."""
        nearest = self._nearest(X)
        return self.labels_[nearest]


def _is_frame(values: Any) -> bool:
    return is_table(values) and hasattr(values, "columns")


def _is_mixed(values: Any) -> bool:
    """Whether these are the rows of a table with other than numeric columns."""
    return _is_frame(values) and not all(
        is_numeric(field.type) for field in arrow_table(values, "X").schema
    )


def _checked_count(n_prototypes: Any, n_samples: int) -> int:
    if isinstance(n_prototypes, (int, np.integer)) and 1 <= n_prototypes <= n_samples:
        return int(n_prototypes)
    raise InvalidInputError(
        f"must be a whole number from 1 to the rows of X (n_samples={n_samples}, "
        f"without rows or whole classes of weight 0), not {n_prototypes!r}.",
        parameter="n_prototypes",
    )


def _checked_seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    return require_int("random_state", random_state, least=0)
