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
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InputFileError, OutputError
from uniproto.transport.prototypes import Transport

if TYPE_CHECKING:
    from uniproto.selection import Selection

MANIFEST = "manifest.json"
SELECTION = "selection.parquet"
PROTOTYPES = "prototypes.parquet"
PLAN = "plan.npz"
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
    manifest.
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
        "uniproto": _version(),
        "method": selection.method,
        "options": selection.options,
        "metric": selection.metric,
        "k": selection.k,
        "shape": list(selection.shape),
        "seed": selection.seed,
        "cost": cost,
        "cost_is_exact": selection.cost_is_exact,
        "beta": selection.beta,
        "group_costs": [[_plain(label), cost] for label, cost in selection.group_costs.items()],
        "notes": selection.notes,
        "timings": selection.timings,
        **(record or {}),
    }
    if source_ids is not None:
        name, ids = source_ids
        chosen = ids[selection.indices]
        columns = {f"{name}_id" if name in columns else name: chosen, **columns}
        arrays["prototype_ids"] = _storable(chosen)
        manifest["id"] = {"column": name, "prototypes": [_plain(value) for value in chosen]}
    if target_ids is not None:
        arrays["target_ids"] = _storable(target_ids[1])
    with staged_folder(folder) as stage:
        pq.write_table(pa.table(columns), stage / SELECTION)
        if prototypes is not None:
            pq.write_table(prototypes, stage / PROTOTYPES)
        np.savez_compressed(stage / PLAN, **arrays)
        text = json.dumps(manifest, indent=2, ensure_ascii=False, default=_plain) + "\n"
        # Paths may hold bytes that are not UTF-8; their escapes are JSON's own.
        (stage / MANIFEST).write_text(text, encoding="utf-8", errors="backslashreplace")
    return folder


def load_selection(folder: Path) -> Selection:
    """Read a selection back, and check that its files belong together."""
    from uniproto.selection import Selection

    manifest = load_manifest(folder)
    try:
        table = pq.read_table(folder / SELECTION)
        with (folder / PLAN).open("rb") as file:
            plan = sp.csr_array(sp.load_npz(file))
        plan.check_format()
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
        )
        if plan.shape != (manifest["k"], selection.shape[1]) or selection.k != manifest["k"]:
            raise ValueError("its files are of different selections")
    except Exception as error:  # what a parser makes of a damaged file can be anything
        raise _damaged(folder, error) from error
    return selection


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
        raise _damaged(folder, error) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise _damaged(folder, ValueError("its manifest has another format"))
    return manifest


def require_writable(folder: Path) -> None:
    """Find out that nothing can be written before the work, not after it."""
    try:
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        _make_stage(place).rmdir()
    except OSError as error:
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
        except OSError as error:
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
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        if self.is_new:
            self.stage.rename(self.folder)
            return
        # The manifest goes first and comes last: it vouches for the files beside it.
        for name in (MANIFEST, SELECTION, PROTOTYPES, PLAN):
            (self.folder / name).unlink(missing_ok=True)
        for file in sorted(files, key=lambda file: file.name == MANIFEST):
            file.replace(self.folder / file.name)


def _make_stage(place: Path) -> Path:
    stage = place / f".uniproto-{uuid.uuid4().hex}"
    stage.mkdir()
    return stage


def _version() -> str:
    from uniproto import __version__

    return __version__


def _plain(value: Any) -> Any:
    """A JSON value for a NumPy scalar or another simple object."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _storable(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as an array that needs no pickle."""
    return ids.astype(str) if ids.dtype == object else ids


def _damaged(folder: Path, error: BaseException) -> InputFileError:
    return InputFileError(
        f"{folder}: the folder must hold a complete saved selection. It is damaged ({error}). "
        "Run the selection again."
    )


def _unwritable(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{folder}: the output must be a folder that can be written. Writing failed "
        f"({error.strerror or error}). Choose another folder, or free some space."
    )
