"""Writing and reading results: all of a result or none of it, never pickled."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError, OutputError
from uniproto.report import PAGE
from uniproto.selection.saved_record import plan_from, require_record, require_sums
from uniproto.transport.prototypes import Transport
from uniproto.version import __version__

if TYPE_CHECKING:
    from uniproto.certificate.certificate import Certificate
    from uniproto.selection.selection import Selection

MANIFEST = "manifest.json"
SELECTION = "selection.parquet"
PROTOTYPES = "prototypes.parquet"
PLAN = "plan.npz"
CERTIFICATE = "certificate.npz"
_FORMAT = 1


def save_selection(
    selection: Selection,
    folder: Path,
    *,
    source_ids: tuple[str, NDArray[Any]] | None = None,
    target_ids: tuple[str, NDArray[Any]] | None = None,
    prototypes: pa.Table | None = None,
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write a selection to a folder.

    `source_ids` and `target_ids` are (column name, one id per row): the chosen ids go into every
    file; in selection.parquet an id column called `rank`, `index`, `gain` or `mass` gets the
    ending `_id`. `prototypes` are the chosen rows of a table input; `record` is added to the
    manifest. Where the selection has a certificate, its numbers are in the manifest (an infinite
    gap, which JSON cannot say, as null) and its prices in certificate.npz.
    """
    plan, cost = selection.plan, selection.cost
    columns: dict[str, Any] = {
        "rank": np.arange(1, selection.k + 1),
        "index": selection.indices,
        "gain": selection.gains,
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
    manifest = {
        "format": _FORMAT,
        "uniproto": __version__,
        "method": selection.method,
        "options": selection.options,
        "metric": selection.metric,
        "k": selection.k,
        "shape": list(selection.shape),
        "seed": selection.seed,
        "cost": cost,
        "cost_is_exact": selection.cost_is_exact,
        "beta": selection.beta,
        "group_costs": [[plain(label), cost] for label, cost in selection.group_costs.items()],
        "notes": selection.notes,
        "timings": selection.timings,
        **(record or {}),
    }
    if source_ids is not None:
        name, ids = source_ids
        chosen = ids[selection.indices]
        columns = {f"{name}_id" if name in columns else name: chosen, **columns}
        arrays["prototype_ids"] = _storable(chosen)
        manifest["id"] = {"column": name, "prototypes": [plain(value) for value in chosen]}
    if target_ids is not None:
        arrays["target_ids"] = _storable(target_ids[1])
    with staged_folder(folder) as stage:
        pq.write_table(pa.table(columns), stage / SELECTION)
        if prototypes is not None:
            pq.write_table(prototypes, stage / PROTOTYPES)
        np.savez_compressed(stage / PLAN, **arrays)
        manifest["files"] = {file.name: file_digest(file) for file in sorted(stage.iterdir())}
        if selection.certificate is not None:
            manifest = _certified(manifest, selection.certificate, stage)
        _write_manifest(manifest, stage / MANIFEST)
    return folder


def save_certificate(folder: Path, certificate: Certificate) -> None:
    """Give a saved selection a certificate, or another one; its other files stay as they are.

    A manifest vouches for the files beside it, so a certificate it has is struck from it before
    new prices take the place of the old. A run that is killed leaves a selection with its old
    certificate, with the new one, or with none.
    """
    manifest = load_manifest(folder)
    try:
        stage = _make_stage(folder)
        try:
            _write_manifest(_certified(manifest, certificate, stage), stage / MANIFEST)
            steps = [stage / CERTIFICATE, stage / MANIFEST]
            if "certificate" in manifest:
                _write_manifest(_uncertified(manifest), stage / "uncertified.json")
                steps.insert(0, stage / "uncertified.json")
            for file in steps:
                _write_through(file)
            for file in steps:
                file.replace(folder / (CERTIFICATE if file.name == CERTIFICATE else MANIFEST))
        finally:
            shutil.rmtree(stage, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _certified(manifest: dict[str, Any], certificate: Certificate, stage: Path) -> dict[str, Any]:
    """The manifest with a certificate, whose prices are written beside it."""
    np.savez_compressed(stage / CERTIFICATE, prices=certificate.prices)
    return {
        **manifest,
        "certificate": {
            "lower_bound": certificate.lower_bound,
            "gap": certificate.gap if np.isfinite(certificate.gap) else None,
            "absolute_gap": certificate.absolute_gap,
            "relative": certificate.relative,
            "converged": certificate.converged,
            "steps": certificate.steps,
            "seconds": certificate.seconds,
        },
        "timings": {**manifest["timings"], "certificate": certificate.seconds},
        "files": {**manifest.get("files", {}), CERTIFICATE: file_digest(stage / CERTIFICATE)},
    }


def _uncertified(manifest: dict[str, Any]) -> dict[str, Any]:
    bare = {name: value for name, value in manifest.items() if name != "certificate"}
    files = bare.get("files", {})
    return {**bare, "files": {name: files[name] for name in files if name != CERTIFICATE}}


def _write_manifest(manifest: dict[str, Any], path: Path) -> None:
    text = json.dumps(manifest, indent=2, ensure_ascii=False, default=plain) + "\n"
    # Paths may hold bytes that are not UTF-8; their escapes are JSON's own.
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def load_selection(folder: Path) -> Selection:
    """Read a selection back, and check that it is one."""
    selection = read_selection(folder)
    try:
        require_sums(selection)
    except ValueError as error:
        raise damaged(folder, error) from error
    return selection


def read_selection(folder: Path) -> Selection:
    """Read what claims to be a selection; its files belong together, its numbers can be any."""
    from uniproto.selection.selection import Selection

    manifest = load_manifest(folder)
    try:
        table = pq.read_table(folder / SELECTION)
        require_record(manifest, table)
        with (folder / PLAN).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            plan = plan_from(arrays)
        selection = Selection(
            indices=table.column("index").to_numpy().astype(np.int64),
            gains=table.column("gain").to_numpy(),
            weights=table.column("mass").to_numpy(),
            beta=manifest["beta"],
            shape=tuple(manifest["shape"]),
            metric=manifest["metric"],
            method=manifest["method"],
            options=manifest["options"],
            seed=manifest["seed"],
            timings=manifest["timings"],
            notes=manifest["notes"],
            transport=Transport(manifest["cost"], plan, manifest["cost_is_exact"]),
            group_costs=dict(manifest["group_costs"]),
            certificate=_load_certificate(folder, manifest),
        )
        k = manifest["k"]
        if plan.shape != (k, selection.shape[1]) or selection.k != k or k == 0:
            raise ValueError("its files are of different selections")
    except Exception as error:  # what a parser makes of a damaged file can be anything
        raise damaged(folder, error) from error
    return selection


def _load_certificate(folder: Path, manifest: dict[str, Any]) -> Certificate | None:
    if "certificate" not in manifest:
        return None
    from uniproto.certificate.certificate import Certificate

    record = manifest["certificate"]
    with (folder / CERTIFICATE).open("rb") as file:
        prices = np.load(file, allow_pickle=False)["prices"]
    if prices.shape != (manifest["shape"][1],) or prices.dtype != np.float64:
        raise ValueError("its certificate is of another selection")
    if not (np.isfinite(prices).all() and np.isfinite(record["lower_bound"])):
        raise ValueError("its certificate is not of finite numbers")
    return Certificate(
        lower_bound=record["lower_bound"],
        cost=manifest["cost"],
        prices=prices,
        converged=record["converged"],
        steps=record["steps"],
        seconds=record["seconds"],
        relative=record["relative"],
    )


def load_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a saved result."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputFileError(
            f"{folder}: the folder must hold a saved selection. Got no {MANIFEST} there instead. "
            "Pass the folder given to 'uniproto select -o'."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(folder, error) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise damaged(folder, ValueError("its manifest has another format"))
    return manifest


def require_writable(folder: Path) -> None:
    """Find out that nothing can be written before the work, not after it."""
    try:
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        _make_stage(place).rmdir()
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from error


class staged_folder:
    """Write files aside and move them to their folder only when all are complete.

    A run that is killed leaves either the old result, or the new one, or (while files move
    into a folder that was there before) one without a manifest, which nothing takes for a result.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Path:
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.is_new = not self.folder.exists()
            # Inside a folder that is there already: it may be a mount of its own.
            self.stage = _make_stage(self.folder.parent if self.is_new else self.folder)
        except (OSError, ValueError) as error:
            raise _unwritable(self.folder, error) from error
        return self.stage

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is None:
                self._publish()
        except OSError as failure:
            raise _unwritable(self.folder, failure) from failure
        finally:
            shutil.rmtree(self.stage, ignore_errors=True)
        if isinstance(error, OSError):
            raise _unwritable(self.folder, error) from error

    def _publish(self) -> None:
        files = list(self.stage.iterdir())
        for file in files:
            _write_through(file)
        if self.is_new:
            self.stage.rename(self.folder)
            return
        # The manifest goes first and comes last: it vouches for the files beside it.
        for name in (MANIFEST, SELECTION, PROTOTYPES, PLAN, CERTIFICATE, PAGE):
            (self.folder / name).unlink(missing_ok=True)
        for file in sorted(files, key=lambda file: file.name == MANIFEST):
            file.replace(self.folder / file.name)


def _make_stage(place: Path) -> Path:
    stage = place / f".uniproto-{uuid.uuid4().hex}"
    stage.mkdir()
    return stage


def _write_through(file: Path) -> None:
    """Wait until a file's content is on the disk."""
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def plain(value: Any) -> Any:
    """A JSON value for a NumPy scalar or another simple object."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as an array that needs no pickle."""
    return ids.astype(str) if ids.dtype == object else ids


def damaged(folder: Path, error: BaseException) -> InputFileError:
    """What to say of a folder whose files do not make sense."""
    return InputFileError(
        f"{folder}: the folder must hold a complete saved selection. It is damaged ({error}). "
        "Run the selection again."
    )


def _unwritable(folder: Path, error: OSError | ValueError) -> OutputError:
    return OutputError(
        f"{folder}: the output must be a folder that can be written. Writing failed "
        f"({getattr(error, 'strerror', None) or error}). Choose another folder, or free some space."
    )
