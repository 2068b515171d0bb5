"""Checks of the files of a saved selection.

`require_fields` and `require_columns` check types, so that everything can be computed and compared.
`require_sums` checks values: what holds for every selection must hold for a loaded one.
`gain_errors` compares gains with costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from uniproto.data.sizes import arrays_in, room_for_inputs

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_ROUNDINGS = 16  # of single numbers, which add up
_GAIN_SUMS = 1e-8  # how far rounding may put sums of gains off, as a share of the largest cost
_SHARES = 1e-9  # how far rounding may put sums of shares off, as a share of what they should be


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    """NaN and infinity, which JSON files of Python may hold, are numbers here."""
    return isinstance(value, float) or (_is_whole(value) and abs(value) < 2**63)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 0 <= value < 2**63


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_count(side) for side in value)


def _all(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(is_right, value.values()))


def _are_group_costs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], str | int | float | None)
        and _is_number(pair[1])
        for pair in value
    )


def _are_notes(value: Any) -> bool:
    """Anything, but a search comes with its reason. (A group may have that name, too.)"""
    if not isinstance(value, dict):
        return False
    return not isinstance(value.get("search"), str) or isinstance(value.get("why"), str)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "format": _is_count,  # not true, which Python takes for 1
    "method": _is(str),
    "options": _is(dict),
    "metric": _is(str),
    "bandwidth": lambda value: value is None or _is_number(value),
    "k": _is_count,
    "shape": _is_shape,
    "seed": _is_whole,
    "cost": _is_number,
    "cost_is_exact": _is(bool),
    "beta": _is_number,
    "group_costs": _are_group_costs,
    "notes": _are_notes,
    "timings": _all(_is_number),
}
_CERTIFICATE_FIELDS: dict[str, Callable[[Any], bool]] = {
    "lower_bound": _is_number,
    "gap": lambda value: value is None or _is_number(value),
    "absolute_gap": _is_number,
    "relative": lambda value: isinstance(value, bool) or _is_number(value),
    "converged": _is(bool),
    "steps": _is_count,
    "seconds": _is_number,
}
_COLUMNS: dict[str, Callable[[pa.DataType], bool]] = {
    "rank": pa.types.is_integer,
    "index": pa.types.is_integer,
    "gain": pa.types.is_floating,
    "mass": pa.types.is_floating,
}


def require_fields(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest whose entries are not of the types that `save` writes."""
    _require(manifest, _FIELDS)
    if "target_features_sha256" in manifest:  # earlier versions did not write it
        _require(manifest, {"target_features_sha256": _is(str)})
    if "files" in manifest:
        _require(manifest, {"files": _all(_is(str))})
    if "certificate" in manifest:
        _require(manifest, {"certificate": _is(dict)})
        _require(manifest["certificate"], _CERTIFICATE_FIELDS)
        if "limit_needed" in manifest["certificate"]:
            _require(manifest["certificate"], {"limit_needed": _is_number})
        if "proof" in manifest["certificate"]:
            _require(manifest["certificate"], {"proof": _is(str)})


def require_columns(table: pa.Table) -> None:
    """Refuse a table whose columns are not of the types that `save` writes."""
    for name, is_right in _COLUMNS.items():
        column = table.column(name)
        if not is_right(column.type) or column.null_count:
            raise ValueError(f"its column {name!r} holds {column.type} or gaps")
    if not np.array_equal(table.column("rank"), np.arange(1, len(table) + 1)):
        raise ValueError("its ranks do not count the rows from 1")


def require_lengths(archive: IO[bytes], most: Mapping[str, int]) -> None:
    """Refuse arrays longer than a record allows, before they are unpacked."""
    for name, (shape, size) in arrays_in(archive, most).items():
        if len(shape) != 1 or shape[0] > most[name]:
            raise ValueError(f"its array {name!r} of shape {shape} is of another selection")
        if size > room_for_inputs():
            raise ValueError(f"its array {name!r} takes more memory than there is")
    archive.seek(0)


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


def _require(record: Mapping[str, Any], fields: Mapping[str, Callable[[Any], bool]]) -> None:
    for name, is_right in fields.items():
        if name not in record:
            raise ValueError(f"its record has no {name!r}")
        if not is_right(record[name]):
            raise ValueError(f"its record says {name!r} is {str(record[name])[:100]!r}")


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
        if selection.method == "uniproto" and np.ptp(selection.weights) > _SHARES / selection.k:
            raise ValueError("its prototypes do not all have the same weight")
        off = np.abs(plan.sum(axis=1) * selection.k - 1)
        if not (_are_shares(plan.data) and (off <= _SHARES).all()):
            raise ValueError("its plan does not give every prototype the same mass")
    costs = [selection.cost, selection.beta, *selection.group_costs.values()]
    if not all(0 <= cost < math.inf for cost in costs):
        raise ValueError("its costs are not finite numbers of at least 0")
    certificate = selection.certificate
    if certificate is not None and certificate.lower_bound > selection.cost + _SHARES * sum(costs):
        raise ValueError("its lower bound is above its cost")


def _are_shares(values: Any) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def gain_errors(selection: Selection, problem: Problem, slack: float = 0.0) -> list[str]:
    """What is wrong with the size of the gains. `slack` is how far costs may be off.

    A pick of `uniproto` costs β − its gain, between 0 and β. Together the picks cost what some plan
    of these rows costs: the best one with exact gains and after polishing, else one that is no
    better. (An entropic plan may leave less than a unit unclaimed, so it proves no such sum.)

    >>> import uniproto
    >>> selection = uniproto.select([[0.0], [1.0], [5.0], [6.0]], 2, metric="euclidean")
    >>> gain_errors(selection, selection._problem)
    []
    >>> selection.gains += 0.25
    >>> gain_errors(selection, selection._problem)
    ['the picks cost less than their best plan']
    """
    costs, options, gains = problem.costs, selection.options, selection.gains
    if not np.isfinite(gains).all():
        return ["they are not finite"]
    if selection.method != "uniproto":
        return []
    paid = costs.ceiling - gains
    single = costs.rounding + float(np.finfo(costs.dtype).eps) * costs.ceiling
    tolerance = _ROUNDINGS * single + _GAIN_SUMS * costs.ceiling + slack
    if not ((paid >= -tolerance) & (paid <= costs.ceiling + tolerance)).all():
        return ["a pick cost what no row costs"]
    if not selection.cost_is_exact or (options["plan"] == "entropic" and not options["polish"]):
        return []
    parts = [(paid, selection.cost)]
    if problem.groups:
        parts = [
            (paid[np.isin(selection.indices, group.source_rows)], best)
            for group, best in zip(problem.groups, selection.group_costs.values(), strict=True)
        ]
    excess = [float(part.mean()) - best for part, best in parts]
    if min(excess) < -tolerance:
        return ["the picks cost less than their best plan"]
    searched = selection.notes.get("search") == "multilevel"
    is_best = bool(options["polish"]) or options["gains"] == "exact" or searched
    if is_best and max(excess) > tolerance:
        return ["the picks cost more than their best plan"]
    return []
