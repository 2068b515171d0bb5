"""Turn arrays, tables, tensors and sparse matrices into checked numbers."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.files import possible_path
from uniproto.data.whole_numbers import require_whole_numbers
from uniproto.errors import InvalidInputError, as_index
from uniproto.runtime.threads import parallel_map, pieces_of

_ROWS_CHECKED_TOGETHER = 4096


def as_matrix(values: Any, parameter: str) -> Any:
    """A 2-D float32 or float64 array, or a CSR matrix, free of NaN and infinity.

    Accepts NumPy arrays and anything like them, pandas, polars and Arrow tables, torch tensors and
    SciPy sparse matrices.
    Single precision is kept; narrow integers become single, wide ones double.

    >>> as_matrix([[1, 2], [3, 4]], "source").dtype
    dtype('float64')
    """
    if _are_texts(values):
        raise InvalidInputError(
            "must hold numbers, not texts. To compare texts, pass features=Text() (--text).",
            parameter=parameter,
        )
    matrix = _csr(values, parameter) if sp.issparse(values) else _dense(values, parameter)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInputError(
            f"must be two-dimensional, with at least one row and one column "
            f"(got shape {matrix.shape}). Reshape it, or check how it was loaded or filtered.",
            parameter=parameter,
        )
    _require_finite(matrix, parameter)
    return matrix


def existing_path(value: str | os.PathLike[str], parameter: str) -> Path:
    """The path of a file, a folder or a pattern; raises if nothing exists there."""
    path = possible_path(value)
    if isinstance(value, str) and not (path.exists() or glob.glob(value)):
        raise InvalidInputError(
            f"must be rows or the path of a file, and there is no file {value!r}. Check the path; "
            "to compare texts, pass a list of them with features=Text().",
            parameter=parameter,
        )
    return path


def take_rows(values: Any, rows: NDArray[np.integer[Any]]) -> Any:
    """Some rows by their numbers, in the same kind of container.

    >>> take_rows([[1.0], [2.0], [3.0]], np.array([2, 0]))
    [[3.0], [1.0]]
    """
    if hasattr(values, "iloc"):  # pandas, where [] uses the index
        return values.iloc[rows]
    if hasattr(values, "column_names"):  # Arrow
        return values.take(rows)
    if sp.issparse(values):
        return values.tocsr()[rows]
    if isinstance(values, list | tuple):
        return [values[int(row)] for row in rows]
    return values[rows.tolist()] if is_table(values) else values[rows]


def dense(rows: Any, dtype: Any = None) -> NDArray[Any]:
    """Rows as an array, also those of a sparse matrix."""
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype)


def as_labels(values: Any, parameter: str, length: int) -> NDArray[Any]:
    """One label per row, as a NumPy array."""
    labels = _plain_array(values, parameter, "must hold one label per row")
    if labels.shape != (length,):
        raise InvalidInputError(
            f"must hold one label per row, {length} in all (got shape {labels.shape}).",
            parameter=parameter,
        )
    if labels.dtype.kind in "OfmM" and any(map(_is_missing, labels)):
        raise InvalidInputError(
            "must have a label in every row. Fill the gaps.", parameter=parameter
        )
    return labels


def distinct_labels(labels: NDArray[Any], parameter: str) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The distinct labels in order, and each row's position among them.

    >>> distinct_labels(np.array(["b", "a", "b"]), "groups")
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1]))
    """
    try:
        return np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise InvalidInputError(
            f"must hold labels of one kind ({error}). Convert them to strings.", parameter=parameter
        ) from error


def in_row_order(values: Any, rows: Any, parameter: str) -> Any:
    """A pandas Series in the order of a data frame's rows, by its index; other values unchanged.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20, 30]}, index=["a", "b"])
    >>> in_row_order(pd.Series([1, 2], index=["b", "a"]), frame, "groups").tolist()
    [2, 1]
    """
    if not (hasattr(values, "iloc") and hasattr(rows, "iloc")) or values.index.equals(rows.index):
        return values
    own, index = values.index, rows.index
    if own.is_unique and index.is_unique and len(own) == len(index) and index.isin(own).all():
        return values.loc[index]
    raise InvalidInputError(
        "must have the index of the rows it is about. Give it that index, or "
        "pass an array of values in the order of the rows.",
        parameter=parameter,
    )


def row_numbers(values: Any, rows: Any, parameter: str) -> Any:
    """Rows of a data frame selected by a mask or an Index; other values unchanged.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20, 30]}, index=["a", "b"])
    >>> row_numbers(frame.index[1:], frame, "include")
    array([1])
    """
    if not hasattr(rows, "iloc"):
        return values
    if not hasattr(values, "get_indexer"):
        is_mask = str(getattr(values, "dtype", "")) in ("bool", "boolean")
        return in_row_order(values, rows, parameter) if is_mask else values
    if not rows.index.is_unique:
        raise InvalidInputError(
            "can hold labels only where no two rows share one. Pass row numbers.",
            parameter=parameter,
        )
    found = rows.index.get_indexer(values)
    if (found < 0).any():
        unknown = values.tolist()[int(np.argmin(found))]
        raise InvalidInputError(
            f"must hold labels of the index of the rows, and {unknown!r} is "
            "none. Pass a list of row numbers to name positions.",
            parameter=parameter,
        )
    return found


def as_rows(values: Any, parameter: str, m: int) -> NDArray[np.intp]:
    """Row numbers (or a boolean mask over the rows), unique and in range."""
    if values is None:
        return np.empty(0, np.intp)
    if isinstance(values, set | frozenset):
        values = list(values)
    rows = _plain_array(values, parameter, "must be a list of row numbers")
    if rows.dtype == bool and rows.shape == (m,):
        return np.flatnonzero(rows)
    if rows.size == 0:
        return np.empty(0, np.intp)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InvalidInputError(
            f"must be row numbers or a boolean mask of length {m} (got an "
            f"array of {rows.dtype} with shape {rows.shape}).",
            parameter=parameter,
        )
    if rows.min() < 0 or rows.max() >= m:
        raise InvalidInputError(f"must hold row numbers from 0 to {m - 1}.", parameter=parameter)
    if len(np.unique(rows)) < len(rows):
        raise InvalidInputError("must not repeat a row. Remove the repeats.", parameter=parameter)
    return rows.astype(np.intp)


def float_type(dtype: np.dtype[Any]) -> type:
    """Single precision is kept; narrow integers become single, wide ones double."""
    single = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.float32 if single else np.float64


def _csr(values: Any, parameter: str) -> Any:
    """A CSR matrix whose indices lie inside it, each place stored once.

    SciPy checks neither: it would read beyond its arrays, and square parts of values.
    """
    if hasattr(values, "check_format"):
        try:
            values.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInputError(
                f"is a damaged sparse matrix ({error}). Make it again.", parameter=parameter
            ) from error
    matrix = values.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    require_whole_numbers(matrix.data, parameter)
    return matrix.astype(_float_type(matrix.dtype, parameter), copy=False)


def _dense(values: Any, parameter: str) -> NDArray[Any]:
    if hasattr(values, "detach"):  # a torch tensor, without importing torch
        values = _detached(values, parameter)
    elif is_table(values):
        from uniproto.data.columns import arrow_table, numeric_matrix

        values = numeric_matrix(arrow_table(values, parameter), parameter)
    elif np.ma.is_masked(values):
        raise InvalidInputError(
            "must have no missing values. Drop those rows.", parameter=parameter
        )
    if isinstance(values, np.memmap):  # stays on disk; converted block by block
        _float_type(values.dtype, parameter)
        require_whole_numbers(values, parameter)
        return values
    array = _plain_array(values, parameter, "must be a rectangular array of numbers")
    if array.ndim:
        require_whole_numbers(array, parameter, values)
    return array.astype(_float_type(array.dtype, parameter), copy=False)


def _detached(tensor: Any, parameter: str) -> Any:
    """A tensor's values on the CPU, in a dtype that NumPy supports."""
    try:
        values = tensor.detach().cpu()
        return values.float() if "bfloat16" in str(values.dtype) else values
    except Exception as error:  # a tensor without values, or another object with such a method
        raise _unreadable(tensor, parameter, "must be a rectangular array", error) from error


def _are_texts(values: Any) -> bool:
    """Whether this is a list or a column of texts."""
    is_column = type(values).__name__ == "Series" or isinstance(values, np.ndarray)
    if not isinstance(values, list | tuple) and not (is_column and len(values.shape) == 1):
        return False
    return len(values) > 0 and isinstance(next(iter(values)), str)


def is_table(values: Any) -> bool:
    """Whether this is a pandas, polars or Arrow table."""
    return hasattr(values, "__arrow_c_stream__")


def _plain_array(values: Any, parameter: str, constraint: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except Exception as error:  # foreign objects may raise any error when converted
        raise _unreadable(values, parameter, constraint, error) from error


def _unreadable(
    values: Any, parameter: str, constraint: str, error: Exception
) -> InvalidInputError:
    return InvalidInputError(
        f"{constraint}. This {type(values).__name__} does not convert "
        f"({error}). Pass a NumPy array, and give every row the same length.",
        parameter=parameter,
    )


def _is_missing(label: Any) -> bool:
    """None, NaN, NaT, or pandas' NA, whose comparisons are neither true nor false."""
    same = label == label
    return label is None or not isinstance(same, bool | np.bool_) or not same


def _float_type(dtype: np.dtype[Any], parameter: str) -> type:
    if dtype.kind not in "fiub":
        raise InvalidInputError(
            f"must hold numbers, not {dtype}. Convert or drop what is not "
            "numeric, or pass a table, such as pandas.DataFrame(…).",
            parameter=parameter,
        )
    return float_type(dtype)


def _require_finite(matrix: Any, parameter: str) -> None:
    if sp.issparse(matrix):
        if not np.isfinite(matrix.data).all():
            raise _not_finite(parameter, "a stored value")
        return

    def bad_row(part: slice) -> int | None:
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(matrix[part].sum()):  # faster than checking every value
                return None
        finite = np.isfinite(matrix[part])
        return None if finite.all() else part.start + int(np.argmin(finite.all(axis=1)))

    for row in parallel_map(bad_row, pieces_of(len(matrix), _ROWS_CHECKED_TOGETHER)):
        if row is not None:
            raise _not_finite(parameter, f"row {row}")


def _not_finite(parameter: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"must be free of NaN and infinity (there is one in {where}). Drop or impute those rows.",
        parameter=parameter,
    )


def sampled_rows(count: int, size: Any, seed: int, parameter: str) -> NDArray[np.int64]:
    """`size` different rows of `count`, ascending, all equally likely: the same for a seed.

    >>> sampled_rows(100, 5, seed=0, parameter="target_sample")
    array([26, 30, 50, 61, 81])
    """
    try:
        rows = as_index(size)
    except TypeError:
        rows = 0
    if not 1 <= rows < count:
        raise InvalidInputError(
            f"must be a whole number from 1 to {count - 1}, fewer than the "
            f"target has rows (got {size!r}).",
            parameter=parameter,
        )
    return np.sort(np.random.default_rng(seed).choice(count, rows, replace=False)).astype(np.int64)
