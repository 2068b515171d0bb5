"""Write and read results: all files of a result or none of them, and never a pickle."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.certificate.certificate import Certificate
from uniproto.data.arrays import is_table
from uniproto.data.files import require_regular_file
from uniproto.errors import InputFileError, UniprotoError, finite_number
from uniproto.features.compared_rows import Given
from uniproto.features.preparation import Preparation
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.report import PAGE
from uniproto.runs.atomic import require_writable
from uniproto.runs.publish import (
    files_of,
    publishing,
    read_published,
    require_publishable,
    write_record,
)
from uniproto.runs.records import plain
from uniproto.selection.call import question_of
from uniproto.selection.details import Details
from uniproto.selection.prototypes import chosen_rows, prototype_table, write_csv
from uniproto.selection.update import Updated, from_record, record_of
from uniproto.transport.prototypes import Transport

if TYPE_CHECKING:
    from uniproto.problem.near import NearRows
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection


MANIFEST = "manifest.json"
SELECTION = "selection.parquet"
PROTOTYPES = "prototypes.parquet"
PROTOTYPES_CSV = "prototypes.csv"  # the same for spreadsheets
PLAN = "plan.npz"
CERTIFICATE = "certificate.npz"
EXCLUDED = "excluded.csv"  # row of the source, and the row of a file that it is near to
_FORMAT = 1
_MOST_READINGS = 50
_OF_CERTIFICATE = ("lower_bound", "absolute_gap", "relative", "converged", "steps", "seconds")
_OF_QUESTION = ("arguments", "command", "excluded")
# Notes that nothing in a folder can be compared with, and those that are a file of it.
_NOT_RECORDED = ("why", "least", "dropped")
_DETAILS = ("method", "options", "metric", "bandwidth", "seed", "beta", "notes", "timings")


def save_selection(
    selection: Selection,
    folder: Path,
    *,
    ids: Ids | None = None,
    prototypes: pa.Table | None = None,
    record: Mapping[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a selection to a folder.

    `ids` are the names of rows and `prototypes` the chosen rows of a table; by default those that
    the selection knows. The chosen ids go into every file; in selection.parquet an id column called
    `rank`, `index`, `gain` or `mass` gets the ending `_id`. `record` is added to the manifest, and
    `files` are further files of the result by name. Where the selection has a certificate, its
    numbers are in the manifest (an infinite gap, which JSON cannot say, as null) and its prices in
    certificate.npz.
    """
    columns, arrays, named = named_rows(selection, ids or ids_of(selection._problem))
    manifest = {
        "format": _FORMAT,
        **{name: getattr(selection.details, name) for name in _DETAILS},
        "notes": _recorded_notes(selection.details.notes),
        "k": selection.k,
        "shape": list(selection.details.shape),
        "cost": selection.cost,
        "cost_is_exact": selection.cost_is_exact,
        "group_costs": [[plain(label), cost] for label, cost in selection.group_costs.items()],
        **compared(selection.details.given),
        **_of_update(selection.details.updated),
        **question_of(selection, folder),
        **(record or {}),
        **named,
    }
    if prototypes is None:
        prototypes = _rows_of_table(selection)
    near = () if selection._problem is None else selection._problem.near
    with publishing(folder, MANIFEST, pages=[PAGE]) as stage:
        pq.write_table(pa.table(columns), stage / SELECTION)
        if prototypes is not None:
            pq.write_table(prototypes, stage / PROTOTYPES)
            with (stage / PROTOTYPES_CSV).open("wb") as file:
                write_csv(prototype_table(selection, prototypes), file)
        np.savez_compressed(stage / PLAN, **arrays)
        for name, content in {**_excluded(near), **(files or {})}.items():
            (stage / name).write_text(content, encoding="utf-8", newline="")
        if selection.certificate is not None:
            manifest = _certified(manifest, selection.certificate, stage)
        write_record(stage, MANIFEST, manifest)
    return folder


def _excluded(every: Iterable[tuple[str, NearRows]]) -> dict[str, str]:
    """The rows that are excluded for what they are near to or repeat, for people to look at."""
    if not every:
        return {}
    lines = StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(("row", "rule", "file", "matched_row", "matched_words", "distance"))
    for path, near in every:
        apart = [""] * len(near) if near.rules else near.distances
        rules, words = near.rules or ["near"] * len(near), near.words or [""] * len(near)
        files = [path] * len(near)
        table.writerows(zip(near.rows, rules, files, near.nearest, words, apart, strict=True))
    return {EXCLUDED: lines.getvalue()}


class Ids(NamedTuple):
    """The column that names rows, and the names of all rows of the source and of the target."""

    column: str
    source: NDArray[Any]
    target: NDArray[Any] | None


def ids_of(problem: Problem | None) -> Ids | None:
    """The names of the rows of a problem; those of a target only where it has them."""
    name = None if problem is None else problem.given.id
    if problem is None or name is None:
        return None
    source, *others = problem.given.inputs
    ids = source.column(name, "id")
    if not others:
        return Ids(name, ids, None if problem.costs.metric in MATRIX_METRICS else ids)
    return Ids(name, ids, others[0].column(name, "id") if name in others[0].names else None)


def _of_update(made: Updated | None) -> dict[str, Any]:
    return {} if made is None else {"update": record_of(made)}


def _recorded_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: note for name, note in notes.items() if name not in _NOT_RECORDED}


def named_rows(
    selection: Selection, ids: Ids | None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The columns of selection.parquet, the arrays of plan.npz, and the manifest's ids."""
    plan = selection.plan
    columns: dict[str, Any] = {
        "rank": np.arange(1, selection.k + 1),
        "index": selection.indices,
        "gain": selection.details.gains,
        "mass": selection.weights,
    }
    arrays = {
        "format": np.bytes_("csr"),
        "_is_array": np.True_,
        "shape": np.array(plan.shape),
        "data": plan.data,
        "indices": plan.indices,
        "indptr": plan.indptr,
    }
    named = {}
    if ids is not None:
        name, chosen = ids.column, ids.source[selection.indices]
        columns = {f"{name}_id" if name in columns else name: chosen, **columns}
        arrays["prototype_ids"] = _storable(chosen)
        named["id"] = {"column": name, "prototypes": [plain(value) for value in chosen]}
        if ids.target is not None:
            arrays["target_ids"] = _storable(ids.target)
    return columns, arrays, named


def compared(given: Given) -> dict[str, Any]:
    """What a manifest says about the columns of a table."""
    found: dict[str, Any] = {"features": list(given.columns)} if given.columns else {}
    if given.preparation is not None:
        found["preparation"] = given.preparation.record()
    return found


def _rows_of_table(selection: Selection) -> pa.Table | None:
    """The chosen rows with all their columns, where they are those of a table."""
    source = selection.details.given.source
    if hasattr(source, "column_names"):  # Arrow, and tables that stay on disk
        return source.take(selection.indices)
    if selection.details.prototypes is None and not is_table(source):
        return None
    return chosen_rows(selection, np.arange(selection.k))


def require_result_folder(folder: Path, also: Iterable[str] = ()) -> None:
    """Refuse, before the work, a folder that cannot be written or where names are taken."""
    require_writable(folder)
    names = [SELECTION, PROTOTYPES, PROTOTYPES_CSV, PLAN, CERTIFICATE, *also]
    require_publishable(folder, MANIFEST, names)


def save_certificate(folder: Path, certificate: Certificate) -> None:
    """Add a certificate to a saved selection, or replace it; other files stay as they are."""
    with publishing(folder, MANIFEST) as stage:
        manifest = load_manifest(folder)
        certified = _certified(manifest, certificate, stage)
        write_record(stage, MANIFEST, certified, also=files_of(folder, MANIFEST))


def _certified(manifest: dict[str, Any], certificate: Certificate, stage: Path) -> dict[str, Any]:
    """The manifest with a certificate, whose prices are written to a file of their own."""
    np.savez_compressed(stage / CERTIFICATE, prices=certificate.prices)
    record = {name: getattr(certificate, name) for name in _OF_CERTIFICATE}
    record["gap"] = certificate.gap if np.isfinite(certificate.gap) else None
    for name in ("limit_needed", "proof"):
        if (value := getattr(certificate, name)) is not None:
            record[name] = value
    timings = {**manifest["timings"], "certificate": certificate.seconds}
    return {**manifest, "certificate": record, "timings": timings}


def read_fields(folder: Path) -> dict[str, Any]:
    """The arguments of a `Selection` from its files, which belong together; numbers can be any."""
    manifest = load_manifest(folder)
    for _ in range(_MOST_READINGS):
        try:
            return _fields_of(folder, manifest)
        except Exception as error:  # what a parser makes of a damaged file can be anything
            now = load_manifest(folder)
            if now == manifest:
                raise damaged(folder, error) from error
            manifest = now  # another run has replaced the result while it was read
    raise damaged(folder, ValueError("it is being replaced again and again"))


def _fields_of(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    def content(name: str) -> BytesIO:
        require_regular_file(folder / name)
        return BytesIO(read_published(folder, MANIFEST, name, manifest["files"][name]))

    require_fields(manifest)
    k, shape = manifest["k"], tuple(manifest["shape"])
    table = pq.read_table(content(SELECTION))
    with np.load(content(PLAN), allow_pickle=False) as arrays:
        plan = plan_from(arrays)
    certificate = None
    if "certificate" in manifest:
        with np.load(content(CERTIFICATE), allow_pickle=False) as arrays:
            certificate = _certificate_of(manifest, arrays["prices"])
    prototypes = None
    if PROTOTYPES in manifest["files"]:
        prototypes = pq.read_table(content(PROTOTYPES))
    rows = k if prototypes is None else len(prototypes)
    if plan.shape != (k, shape[1]) or not len(table) == rows == k or k == 0:
        raise ValueError("its files are of different selections")
    details = {name: manifest[name] for name in _DETAILS}
    details["notes"] = _recorded_notes(manifest["notes"])
    indices = table.column("index").to_numpy().astype(np.int64)
    if "update" in manifest:
        details["updated"] = from_record(manifest["update"], indices, plan)
    return {
        "indices": indices,
        "weights": table.column("mass").to_numpy(),
        "details": Details(
            gains=table.column("gain").to_numpy(),
            shape=shape,
            given=_given(manifest),
            prototypes=prototypes,
            **details,
        ),
        "transport": Transport(manifest["cost"], plan, manifest["cost_is_exact"]),
        "group_costs": dict(manifest["group_costs"]),
        "certificate": certificate,
    }


def _given(manifest: dict[str, Any]) -> Given:
    """How new rows are compared with these prototypes, as far as that was saved."""
    columns, record = manifest.get("features"), manifest.get("preparation")
    if columns is None or (record is not None and "transformer" in record):
        return Given()  # an array's, or those of the user's own transformer, which is not saved
    preparation = None if record is None else Preparation.from_record(record)
    return Given(columns=tuple(columns), preparation=preparation)


def _certificate_of(manifest: dict[str, Any], prices: NDArray[np.float64]) -> Certificate:
    record = manifest["certificate"]
    if prices.shape != (manifest["shape"][1],) or prices.dtype != np.float64:
        raise ValueError("its certificate is of another selection")
    if not np.isfinite(prices).all():
        raise ValueError("its certificate is not of finite numbers")
    fields = {name: record[name] for name in _OF_CERTIFICATE if name != "absolute_gap"}
    fields |= {name: record.get(name) for name in ("limit_needed", "proof")}
    return Certificate(cost=manifest["cost"], prices=prices, **fields)


def load_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a saved result."""
    require_regular_file(folder / MANIFEST)
    try:
        manifest = json.loads(str(read_published(folder, MANIFEST, MANIFEST), "utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputFileError(
            f"{folder} holds no saved selection. Pass the folder given to 'uniproto select -o'."
        ) from error
    except UniprotoError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(folder, error) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise damaged(folder, ValueError("its manifest has another format"))
    if not all(isinstance(manifest.get(name, {}), dict) for name in _OF_QUESTION):
        raise damaged(folder, ValueError("its manifest does not say what was asked"))
    return manifest


def _storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as an array that needs no pickle."""
    return ids.astype(str) if ids.dtype == object else ids


def damaged(folder: Path, error: BaseException) -> InputFileError:
    """The error for a folder whose files do not belong together or cannot be read."""
    return InputFileError(
        f"{folder}: the folder must hold a complete saved selection. It is damaged ({error}). Run "
        "the selection again."
    )


_OURS = ("uniproto", "greedy")
_SHARES = 1e-9  # how far rounding may put sums off, as a share of what they should be
_NUMBER = (int, float)
_FIELDS: dict[str, Any] = {
    "method": str,
    "options": dict,
    "metric": str,
    "bandwidth": (*_NUMBER, type(None)),
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


_OF_RECORD: dict[str, Any] = {
    **dict.fromkeys(("lower_bound", "absolute_gap", "seconds"), _NUMBER),
    **dict.fromkeys(("gap", "limit_needed"), (*_NUMBER, type(None))),
    **dict.fromkeys(("relative", "converged"), bool),
    "steps": int,
    "proof": (str, type(None)),
}


def require_fields(manifest: Mapping[str, Any]) -> None:
    """Refuse a manifest whose entries are not of the types that `save` writes, nor finite."""
    _require_types(manifest, _FIELDS)
    _require_types(manifest["timings"], dict.fromkeys(manifest["timings"], _NUMBER))
    _require_types(dict(enumerate(manifest["shape"])), dict.fromkeys((0, 1), int))
    costs = {
        f"cost of group {place}": cost for place, (_, cost) in enumerate(manifest["group_costs"])
    }
    _require_types(costs, dict.fromkeys(costs, _NUMBER))
    if "certificate" in manifest:
        _require_types(dict(manifest["certificate"]), _OF_RECORD)


def _require_types(record: Mapping[Any, Any], kinds: Mapping[Any, Any]) -> None:
    for name, kind in kinds.items():
        value = record.get(name)
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not fits or (isinstance(value, _NUMBER) and not math.isfinite(finite_number(value))):
            raise ValueError(f"its record says {name!r} is {str(value)[:100]!r}")


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
    if (
        rows.min() < 0
        or rows.max() >= selection.details.shape[0]
        or len(np.unique(rows)) < len(rows)
    ):
        raise ValueError("its rows are not different rows of the source")
    with np.errstate(all="ignore"):
        gains = np.array([*selection.details.gains, selection.details.beta])
        if not np.isfinite(2 * selection.k * gains).all():
            raise ValueError("its gains are not finite, nor would their sum be")
        if not (_are_shares(selection.weights) and math.isclose(selection.weights.sum(), 1)):
            raise ValueError("its prototype weights do not sum to 1")
        if selection.details.method in _OURS and np.ptp(selection.weights) > _SHARES / selection.k:
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
