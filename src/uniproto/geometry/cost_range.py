"""How large costs may be."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniproto.errors import invalid


def require_finite_sums(ceiling: float, metric: str, dtype: np.dtype[Any], remedy: str) -> None:
    """Refuse costs up to `ceiling` where sums of them might overflow.

    >>> require_finite_sums(2.0, "cosine", np.dtype(np.float32), "Rescale the features.")
    """
    # Costs are multiplied by masses of up to 2^46 and added up, in double precision.
    largest = min(float(np.finfo(dtype).max) / 4, float(np.finfo(np.float64).max) / 2**64)
    if not ceiling <= largest:
        raise invalid(
            "source",
            f"must have costs below {largest:.3g} in {dtype} when metric={metric!r}, for sums of "
            "them to be finite",
            "larger ones",
            remedy,
        )
