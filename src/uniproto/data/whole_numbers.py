"""Whole numbers that double precision cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError

_ROWS_AT_ONCE = 4096
_LARGEST = 2**53  # up to which every whole number is a double


def require_whole_numbers(values: NDArray[Any], parameter: str, given: Any = None) -> None:
    """Refuse whole numbers that double precision would round.

    `given` is a list from which `values` were made: next to floats, integers become floats.

    >>> require_whole_numbers(np.array([2**62, -(2**63)]), "source")
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if isinstance(given, list | tuple) and kind == "f":
        if (np.abs(values) >= _LARGEST).any():
            _require(_all_kept(np.asarray(given, object)), parameter)
    elif (size > 8 and kind == "f") or (size == 8 and kind in "iu"):
        for start in range(0, len(values), _ROWS_AT_ONCE):
            _require(_are_kept(np.asarray(values[start : start + _ROWS_AT_ONCE])), parameter)


def _require(kept: bool, parameter: str) -> None:
    if not kept:
        raise InvalidInputError(
            "must hold whole numbers up to 2**53 (9.0e15): larger ones "
            "lose their last digits, and with them their differences. Subtract a constant "
            "from each column first, or convert them to floats.",
            parameter=parameter,
        )


def _are_kept(part: NDArray[Any]) -> bool:
    if part.dtype.kind == "f":  # longer than a double
        return not ((np.abs(part) >= _LARGEST) & (part != part.astype(np.float64))).any()
    if not part.size or -_LARGEST <= int(part.min()) <= int(part.max()) <= _LARGEST:
        return True
    size = part.astype(np.uint64) if part.dtype.kind == "u" else np.abs(part).astype(np.uint64)
    lowest = size & (~size + np.uint64(1))  # the last bit that is set
    return not (size // np.maximum(lowest, np.uint64(1)) > np.uint64(_LARGEST)).any()


def _all_kept(values: NDArray[Any]) -> bool:
    return all(
        int(float(value)) == value for value in values.flat if isinstance(value, int | np.integer)
    )
