"""`uniproto select --engine ray`: from shards to the same folder of results."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uniproto.cli.inputs import method_of, question
from uniproto.data.tables import Input
from uniproto.errors import InputFileError, InvalidInputError, printable
from uniproto.methods import Method
from uniproto.problem.problem import ProblemOptions
from uniproto.problem.values import as_columns
from uniproto.scale.cluster import Cluster
from uniproto.scale.parts import remove_finished_parts
from uniproto.scale.rounds import run_rounds
from uniproto.scale.select import make_request, refused_on_ray
from uniproto.scale.shards import is_address, take_rows
from uniproto.scale.target import named_values
from uniproto.selection.call import asked_of, places_of, recorded
from uniproto.selection.storage import Ids, save_selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.cli.spec import SelectSpec
    from uniproto.scale.parts import Request
    from uniproto.scale.rounds import RoundsResult
    from uniproto.scale.shards import Shards


def run_on_ray(spec: SelectSpec, method: Method, output: Path) -> None:
    """Both rounds on Ray, then the files of a result."""
    asked = question(spec)
    near = ["exclude_near"] if spec.exclude_near else []
    for name in [*refused_on_ray(asked), *near]:
        raise InvalidInputError(
            "does not work with --engine ray. Drop it.", parameter=name.rpartition(".")[2]
        )
    if spec.checkpoint:
        raise InvalidInputError(
            "is not needed with --engine ray, which saves parts.", parameter="checkpoint"
        )
    shown = False if spec.quiet else None
    cluster = Cluster(spec.address, spec.num_cpus)
    options = {name: asked[name] for name in ProblemOptions.__annotations__}
    # Paths are looked at here, so that errors come before Ray starts.
    request = make_request(
        cluster,
        spec.pool,
        spec.k,
        spec.target,
        method=method,
        certify=spec.certify,
        target_sample=spec.target_sample,
        per_part=spec.per_part,
        **options,
    )
    with cluster:
        result = run_rounds(request, cluster, saved_in=output, progress=shown)
        _save(spec, asked, request, result, cluster, output)
    if not spec.quiet:
        _print_summary(request, result, output)


def _save(
    spec: SelectSpec,
    asked: dict[str, Any],
    request: Request,
    result: RoundsResult,
    cluster: Cluster,
    output: Path,
) -> None:
    prototypes = chosen_rows(cluster, request.source, result.selection.indices)
    # Shards are compared as they are.
    asked = {**asked, "features": replace(as_columns(asked["features"]), prepare=False)}
    save_selection(
        result.selection,
        output,
        ids=_ids(spec, request, result, cluster, prototypes),
        prototypes=prototypes,
        record={
            "inputs": (identities := _identities(request, result)),
            "places": places_of(identities, output),
            "arguments": recorded(asked_of(asked, spec.k, method_of(spec), spec.certify)),
            "command": {"engine": spec.engine, "per_part": spec.per_part},
        },
    )
    remove_finished_parts(output)


def chosen_rows(cluster: Cluster, source: Shards, rows: NDArray[Any]) -> pa.Table:
    """The chosen rows with all their columns, in the order picked, each read where it lies."""
    local = source.split(rows)
    wanted = [place for place, some in enumerate(local) if len(some)]
    tasks = [(source.parts[p], source.parts[p].content, local[p]) for p in wanted]
    found = cluster.all(take_rows, tasks)
    try:  # files may differ in the order of columns, in their width, or lack some
        table = pa.concat_tables(found, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputFileError(
            f"{source.name}: a column must be of one kind in all files "
            f"({str(error).splitlines()[0]})."
        ) from error
    numbers = np.concatenate([local[p] + source.parts[p].first for p in wanted])
    place_of = {int(number): place for place, number in enumerate(numbers)}
    return table.take(pa.array([place_of[int(row)] for row in rows]))


class _IdsOfRows:
    """Ids of the chosen rows, looked up by row number like an array of all ids."""

    def __init__(self, rows: NDArray[Any], ids: NDArray[Any]) -> None:
        self._rows, self._ids = rows, ids

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[Any]:
        order = np.argsort(self._rows, kind="stable")
        return self._ids[order[np.searchsorted(self._rows, rows, sorter=order)]]


def _ids(
    spec: SelectSpec,
    request: Request,
    result: RoundsResult,
    cluster: Cluster,
    prototypes: pa.Table,
) -> Ids | None:
    """The names of rows for the files to write; those of a target only where it has them."""
    name = spec.id
    if name is None:
        return None
    chosen = Input(prototypes, Path(request.source.name)).column(name, "id")
    target, ids = result.target, None
    if name in target.shards.schema.names:
        rows = [None] * len(target.shards.parts)
        wanted = rows if target.sampled is None else target.shards.split(target.sampled)
        ids = named_values(cluster, target.shards, name, wanted)
    every: Any = _IdsOfRows(result.selection.indices, chosen)
    return Ids(name, every, ids)


def _identities(request: Request, result: RoundsResult) -> dict[str, Any]:
    """What a manifest says about the input files, as one machine would say it."""
    width = result.target.target.given.shape[1]
    source = _identity(
        request.source, result.digests, (request.source.rows, width), request.settings.columns
    )
    laid = result.target
    if request.target is None and laid.sampled is None:
        return {"source": source, "target": None}
    columns = request.target_options.columns
    target = _identity(laid.shards, laid.digests, (laid.count, width), columns)
    if laid.sampled is not None:
        target["sample"] = {"rows": laid.count, "seed": request.target_options.seed}
    return {"source": source, "target": target}


def _identity(
    shards: Shards, digests: list[str], shape: tuple[int, int], columns: tuple[str, ...]
) -> dict[str, Any]:
    name = shards.name
    return {
        "path": name if is_address(name) else str(Path(name).resolve()),
        "sha256": shards.digest(digests),
        "shape": list(shape),
        "columns": list(columns),
    }


def _print_summary(request: Request, result: RoundsResult, output: Path) -> None:
    selection = result.selection
    print(selection.summary())
    first = result.rounds[1]
    again = f", {first['resumed']} of them finished before" if first["resumed"] else ""
    print(
        f"  on Ray                  {len(request.source.parts)} shards sent "
        f"{sum(first['picks_per_part']):,} rows{again}"
    )
    if request.target_options.sample is not None:
        total = result.target.shards.rows
        print(
            f"  target                  {request.target_options.sample:,} rows drawn of {total:,}"
        )
    columns = textwrap.shorten(", ".join(request.settings.columns), 72, placeholder=" …")
    print(f"  features                {printable(columns)}")
    print(f"  written to              {printable(output)}")
