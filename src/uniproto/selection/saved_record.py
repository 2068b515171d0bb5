"""What must hold of the files of a saved selection before anything is computed from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

_OURS = ("uniproto", "greedy")
_SHARES = 1e-9  # how far rounding may put sums off, as a share of what they should be
_NUMBER = (int, float)
_FIELDS: dict[str, Any] = {
    "method": str,
    "options": dict,
    "metric": str,
    "k": int,
    "shape": list,
    "seed": int,
    "cost": _NUMBER,
    "cost_is_exact": bool,
    "beta": _NUMBER,
    "group_costs": list,
    "notes": dict,
    "timings": dict,
    "files": dict,
}


def require_fields(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest whose entries are not of the types that `save` writes."""
    for name, kind in _FIELDS.items():
        if not isinstance(manifest.get(name), kind):
            raise ValueError(f"its record says {name!r} is {str(manifest.get(name))[:100]!r}")


def plan_from(arrays: Mapping[str, Any]) -> sp.csr_array:
    """The plan from the arrays of its file, whose types and lengths must fit together."""
    data, indices, indptr = arrays["data"], arrays["indices"], arrays["indptr"]
    if data.dtype != np.float64 or not {indices.dtype.kind, indptr.dtype.kind} <= set("iu"):
        raise ValueError("its plan is not made of shares and whole numbers")
    plan = sp.csr_array((data, indices, indptr), shape=tuple(arrays["shape"].tolist()))
    plan.check_format()
    if len(data) != plan.indptr[-1]:
        raise ValueError("its plan has shares of no prototype")
    return plan


def require_sums(selection: Selection) -> None:
    """Refuse rows that are not different ones of the source, and shares that do not add up."""
    rows, plan = selection.indices, selection.plan
    if rows.min() < 0 or rows.max() >= selection.shape[0] or len(np.unique(rows)) < len(rows):
        raise ValueError("its rows are not different rows of the source")
    if not np.isfinite(selection.gains).all():
        raise ValueError("its gains are not finite")
    with np.errstate(all="ignore"):
        if not (_are_shares(selection.weights) and math.isclose(selection.weights.sum(), 1)):
            raise ValueError("its prototype weights do not sum to 1")
        if selection.method in _OURS and np.ptp(selection.weights) > _SHARES / selection.k:
            raise ValueError("its prototypes do not all have the same weight")
        off = np.abs(plan.sum(axis=1) * selection.k - 1)
        if not (_are_shares(plan.data) and (off <= _SHARES).all()):
            raise ValueError("its plan does not give every prototype the same mass")
    if not all(0 <= c < math.inf for c in (selection.cost, *selection.group_costs.values())):
        raise ValueError("its costs are not finite numbers of at least 0")
    certificate = selection.certificate
    if certificate is not None and certificate.lower_bound > selection.cost * (1 + _SHARES):
        raise ValueError("its lower bound is above its cost")


def _are_shares(values: Any) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())
