"""The bandwidth σ of a saturating metric or kernel: a number, or a share of the median distance."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, finite_number

AUTO = "auto"
AUTO_SHARE = 0.25  # of the median distance; docs/bandwidth.md has the study
_SAMPLED_ROWS = 1000  # of source and of target
_SAME = 1e-6  # of the largest distance: closer pairs count as copies, which carry no scale
_SHARE = re.compile(r"\s*([0-9.eE+-]+)\s*median\s*")


@dataclass(frozen=True)
class MedianShare:
    """σ as a share of the median distance between source rows and target rows."""

    share: float

    def of(self, distances: NDArray[np.float64]) -> float:
        """σ from the distances, without those between copies; 1 if none remain."""
        apart = distances[distances > _SAME * distances.max(initial=0.0)]
        return self.share * float(np.median(apart)) if apart.size else 1.0

    def __str__(self) -> str:
        return f"{self.share!r} median"


def as_bandwidth(value: Any) -> float | MedianShare:
    """A checked bandwidth: a number, or a share of the median.

    >>> as_bandwidth(2), as_bandwidth("0.5 median"), as_bandwidth(None) == as_bandwidth("auto")
    (2.0, MedianShare(share=0.5), True)
    """
    if value is None or (isinstance(value, str) and value.strip() == AUTO):
        return MedianShare(AUTO_SHARE)
    number: Any = value
    share = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, str):
        try:
            number = float(share.group(1) if share else value)
        except ValueError:
            number = None
    if isinstance(number, bool | np.bool_) or not 0 < finite_number(number) < np.inf:
        raise InvalidInputError(
            f"must be a positive number, a share such as '0.25 median', or 'auto' (got {value!r}).",
            parameter="bandwidth",
        )
    return MedianShare(float(number)) if share else float(number)


def sampled_pairs(m: int, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The source and target rows whose distances give the median; the same in every call."""
    random = np.random.default_rng(0)
    rows, columns = (
        np.sort(random.choice(size, min(size, _SAMPLED_ROWS), replace=False)) for size in (m, n)
    )
    return rows, columns


def origin_of(bandwidth: float | MedianShare, m: int, n: int) -> str | None:
    """How a bandwidth was found, for the record.

    >>> origin_of(MedianShare(0.25), 5000, 300)
    '0.25 median, of 1,000 source rows and 300 target rows'
    """
    if not isinstance(bandwidth, MedianShare):
        return None
    rows, columns = (f"{min(size, _SAMPLED_ROWS):,}" for size in (m, n))
    return f"{bandwidth}, of {rows} source rows and {columns} target rows"
