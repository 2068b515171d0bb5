"""What a training step hands over, as plain arrays: features, losses, sources, inner products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, float_type
from uniproto.errors import invalid


@dataclass(frozen=True)
class Gram:
    """Inner products of gradients that are never formed, in place of the gradients themselves.

    `pool[i, j]` is ⟨g_i, g_j⟩ between two examples of the pool, `validation[i, v]` is ⟨g_i, g_v⟩
    between an example and a validation anchor. Layer inputs and output gradients give both in one
    backward pass. Every method but those that need L1 distances takes a `Gram` as its features.

    >>> import numpy as np
    >>> from uniproto.training import BatchSelector
    >>> gradients = np.array([[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> BatchSelector("gradnorm", "batch", 1)(Gram(gradients @ gradients.T))
    array([0])
    """

    pool: Any
    validation: Any = None

    def __len__(self) -> int:
        return len(self.pool)


def as_features(values: Any, matrix_metric: bool) -> NDArray[Any] | Gram:
    """A checked feature matrix (n × n where it holds costs), or checked inner products."""
    if isinstance(values, Gram):
        pool = _square(as_numbers(values.pool, "features.pool", 2), "features.pool")
        if values.validation is None:
            return Gram(pool)
        validation = as_numbers(values.validation, "features.validation", 2)
        if len(validation) != len(pool):
            raise invalid(
                "features.validation",
                f"must have one row per example of the pool, {len(pool)} in all",
                f"shape {validation.shape}",
                "Put examples in rows and validation anchors in columns.",
            )
        return Gram(pool, validation)
    features = as_numbers(values, "features", 2)
    return _square(features, "features") if matrix_metric else features


def as_losses(values: Any, n: int) -> NDArray[Any]:
    losses = as_numbers(values, "losses", 1)
    if len(losses) != n:
        raise invalid(
            "losses",
            f"must hold one loss per example of the pool, {n} in all",
            f"shape {losses.shape}",
            "Pass per-example losses, not their mean.",
        )
    return losses


def as_anchors(values: Any, width: int) -> NDArray[Any]:
    """Validation features with as many columns as the pool's."""
    anchors = as_numbers(values, "validation_features", 2)
    if anchors.shape[1] != width:
        raise invalid(
            "validation_features",
            f"must have as many columns as the features, {width}",
            f"{anchors.shape[1]} columns",
            "Compute both from the same parameters.",
        )
    return anchors


def as_sources(values: Any, n: int) -> NDArray[Any]:
    return as_labels(_off_device(values), "sources", n)


def group_by_source(
    sources: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """The names of the sources these rows come from, sorted, and each one's rows, ascending."""
    try:
        names, source_of_row, counts = np.unique(
            sources[rows], return_inverse=True, return_counts=True
        )
    except TypeError as error:
        raise invalid(
            "sources",
            "must hold labels of one kind, which can be sorted",
            f"mixed labels ({error})",
            "Convert them all to strings.",
        ) from error
    by_source = rows[np.argsort(source_of_row, kind="stable")]
    return names, np.split(by_source, np.cumsum(counts)[:-1])


def as_numbers(values: Any, parameter: str, dimensions: int) -> NDArray[Any]:
    """A float32 or float64 array of one or two dimensions; NaN and infinity may be in it.

    Takes NumPy and JAX arrays and torch tensors, on any device and in any precision.
    """
    try:
        array = np.asarray(_off_device(values))
    except (TypeError, ValueError) as error:
        raise invalid(
            parameter,
            "must be a rectangular array of numbers",
            f"a {type(values).__name__} that does not convert ({error})",
            "Pass a NumPy array.",
        ) from error
    if array.dtype.name == "bfloat16":  # of JAX; NumPy alone has no such type
        array = array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise invalid(
            parameter,
            "must hold numbers",
            f"values of type {array.dtype}",
            "Pass a dense array of real numbers.",
        )
    if array.ndim != dimensions or 0 in array.shape:
        shape = "one row per example" if dimensions == 2 else "one number per example"
        raise invalid(
            parameter,
            f"must have {dimensions} dimension(s), none of them empty: {shape}",
            f"shape {array.shape}",
            "Reshape it, for example with values.reshape(len(values), -1).",
        )
    return np.ascontiguousarray(array, dtype=float_type(array.dtype))


def _off_device(values: Any) -> Any:
    """A torch tensor in main memory and in a type NumPy knows, without importing torch."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return values.float() if "bfloat16" in str(values.dtype) else values


def _square(matrix: NDArray[Any], parameter: str) -> NDArray[Any]:
    if matrix.shape[0] != matrix.shape[1]:
        raise invalid(
            parameter,
            "must be square, one row and one column per example of the pool",
            f"shape {matrix.shape}",
            "Compare the pool with itself.",
        )
    return matrix


# --- which examples can be used -----------------------------------------------------------------


def finite_rows(features: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows hold neither NaN nor infinity."""
    totals = features.sum(axis=1)  # quicker than looking at every value
    fine = np.isfinite(totals)
    return fine if fine.all() else np.isfinite(features).all(axis=1)


def finite_examples(matrix: NDArray[Any]) -> NDArray[np.bool_]:
    """Which examples to keep of an n × n matrix, so that no NaN or infinity is left in it.

    One bad example spoils a row and a column, and every other row by one entry: the one with most
    bad entries goes first.
    """
    fine = np.ones(len(matrix), np.bool_)
    if np.isfinite(matrix.sum()):
        return fine
    bad = ~np.isfinite(matrix)
    while True:
        counts = np.where(fine, bad[:, fine].sum(axis=1) + bad[fine].sum(axis=0), 0)
        if not counts.any():
            return fine
        fine[np.argmax(counts)] = False
