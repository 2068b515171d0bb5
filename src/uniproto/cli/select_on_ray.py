"""`uniproto select --engine ray`: from shards to the same folder of results."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.input_file import named_features
from uniproto.cli.inputs import recorded
from uniproto.cli.option_values import (
    min_distance,
    names_weights,
    read_budgets,
    row_numbers,
    with_bandwidth,
)
from uniproto.cli.recorded_paths import places
from uniproto.errors import InputFileError, invalid, printable
from uniproto.methods import Method

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from uniproto.scale.cluster import Cluster
    from uniproto.scale.parts import Request
    from uniproto.scale.rounds import RoundsResult
    from uniproto.scale.shards import Shards

# What the two rounds have no answer to yet: refused, never ignored.
_REFUSED = {
    "text": "Embed it first, with 'uniproto embed'.",
    "images": "Embed them first, with 'uniproto embed'.",
    "initial": "Use --engine local.",
    "exclude_near": "Use --engine local.",
    "at_most": "Use --engine local.",
    "at_least": "Use --engine local.",
    "budget": "Use --engine local.",
    "checkpoint": "Drop it: finished parts are saved in OUT anyway.",
}


def run_on_ray(options: argparse.Namespace, method: Method) -> None:
    """Both rounds on Ray, then the files of a result."""
    from uniproto.problem.values import Compute, Groups
    from uniproto.scale.cluster import Cluster
    from uniproto.scale.rounds import run_rounds
    from uniproto.scale.select import make_request

    _refuse(options)
    if options.groups is None:
        read_budgets(options.budgets, None)
    output = Path(options.output)
    shown = False if options.quiet else None
    cluster = Cluster(options.address, options.num_cpus)
    # Paths are looked at here, so what is wrong with them is said before Ray starts.
    request = make_request(
        cluster,
        options.pool,
        options.k,
        options.target,
        method=method,
        certify=options.certify and (options.time_limit or True),
        target_sample=options.target_sample,
        per_part=options.per_part,
        metric=with_bandwidth(options.metric or "auto", options.bandwidth),
        target_weights=_weights(options),
        groups=options.groups and Groups(options.groups, budgets=_budgets(options)),
        exclude=row_numbers(options.exclude, "--exclude"),
        min_distance=min_distance(options.distinct),
        columns=_columns(options),
        compute=Compute(options.memory, options.device),
        seed=options.seed,
    )
    with cluster:
        result = run_rounds(request, cluster, saved_in=output, progress=shown)
        _save(options, request, result, cluster, output)
    if not options.quiet:
        _print_summary(request, result, output)


def _refuse(options: argparse.Namespace) -> None:
    for name, remedy in _REFUSED.items():
        value = getattr(options, name)
        if value is not None and value is not False:
            raise invalid(
                f"--{name.replace('_', '-')}",
                "is not offered by --engine ray",
                repr(value),
                remedy,
            )
    if options.lists != "exact":
        raise invalid("--lists", "must be exact on Ray", repr(options.lists), "Drop it.")


def _weights(options: argparse.Namespace) -> Any:
    """A column of the target, or the weights that a word names."""
    from uniproto.problem.values import Balanced
    from uniproto.problem.weights import density_from

    if not names_weights(options.weights):
        return options.weights
    if options.weights != "balanced":
        return density_from(options.weights, "--weights")
    if options.labels is None:
        raise invalid("--labels", "must be given with --weights balanced", "none", "Name it.")
    return Balanced(options.labels)


def _columns(options: argparse.Namespace) -> Any:
    from uniproto.problem.values import Columns

    chosen = named_features(options)
    use = [options.column] if options.column is not None else chosen["features"] or None
    aside = [name for name in (options.id, options.labels) if name]
    return Columns(use=use, ignore=[*chosen["ignore"], *aside])


def _budgets(options: argparse.Namespace) -> Any:
    """How k is shared: a word, or the numbers of groups that the cluster will tell."""
    import numpy as np

    text, groups = options.budgets, options.groups
    if groups is None or text is None or "=" not in text:
        return read_budgets(text, None if groups is None else np.array([]))
    labels = [part.rpartition("=")[0].strip() for part in text.split(",")]
    return read_budgets(text, np.array(labels))


def _save(
    options: argparse.Namespace,
    request: Request,
    result: RoundsResult,
    cluster: Cluster,
    output: Path,
) -> None:
    from uniproto.scale.parts import remove_finished_parts
    from uniproto.selection.storage import save_selection

    prototypes = chosen_rows(cluster, request.source, result.selection.indices)
    save_selection(
        result.selection,
        output,
        **_ids(options, request, result, cluster, prototypes),
        prototypes=prototypes,
        record={
            "inputs": (identities := _identities(request, result)),
            "places": places(identities, output),
            "arguments": recorded(options, request.target_options.weights),
        },
    )
    remove_finished_parts(output)


def chosen_rows(cluster: Cluster, source: Shards, rows: NDArray[Any]) -> pa.Table:
    """The chosen rows with all their columns, in the order picked, each read where it lies."""
    import numpy as np
    import pyarrow as pa

    from uniproto.scale.shards import take_rows

    local = source.split(rows)
    wanted = [place for place, some in enumerate(local) if len(some)]
    tasks = [(source.parts[p], source.parts[p].content, local[p]) for p in wanted]
    found = cluster.all(take_rows, tasks)
    try:  # files may differ in the order of columns, in their width, or lack some
        table = pa.concat_tables(found, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputFileError(
            f"{source.name}: a column must be of one kind in all files, for the chosen rows to "
            f"stand in one table. It is not ({str(error).splitlines()[0]}). Write the files alike."
        ) from error
    numbers = np.concatenate([local[p] + source.parts[p].first for p in wanted])
    place_of = {int(number): place for place, number in enumerate(numbers)}
    return table.take(pa.array([place_of[int(row)] for row in rows]))


class _IdsOfRows:
    """Ids of the chosen rows, looked up by row number like an array of all ids."""

    def __init__(self, rows: NDArray[Any], ids: NDArray[Any]) -> None:
        self._rows, self._ids = rows, ids

    def __getitem__(self, rows: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        order = np.argsort(self._rows, kind="stable")
        return self._ids[order[np.searchsorted(self._rows, rows, sorter=order)]]


def _ids(
    options: argparse.Namespace,
    request: Request,
    result: RoundsResult,
    cluster: Cluster,
    prototypes: pa.Table,
) -> dict[str, Any]:
    """The names of rows for the files to write; those of a target only where it has them."""
    from uniproto.data.tables import InputData
    from uniproto.scale.target import named_values

    name = options.id
    if name is None:
        return {}
    chosen = InputData(Path(request.source.name), "", None, prototypes).column(name, "--id")
    ids: dict[str, Any] = {
        "source_ids": (name, _IdsOfRows(result.selection.indices, chosen)),
    }
    target = result.target
    if name in target.shards.schema.names:
        rows = [None] * len(target.shards.parts)
        wanted = rows if target.sampled is None else target.shards.split(target.sampled)
        ids["target_ids"] = (name, named_values(cluster, target.shards, name, wanted))
    return ids


def _identities(request: Request, result: RoundsResult) -> dict[str, Any]:
    """What a manifest says about the input files, as one machine would say it."""
    from uniproto.data.tables import sample_record

    width = result.target.width
    source = _identity(
        request.source, result.digests, (request.source.rows, width), request.settings.columns
    )
    laid = result.target
    if request.target is None and laid.sampled is None:
        return {"source": source, "target": None}
    columns = request.target_options.columns
    target = _identity(laid.shards, laid.digests, (laid.count, width), columns)
    if laid.sampled is not None:
        target["sample"] = sample_record(laid.count, request.target_options.seed)
    return {"source": source, "target": target}


def _identity(
    shards: Shards, digests: list[str], shape: tuple[int, int], columns: tuple[str, ...]
) -> dict[str, Any]:
    from uniproto.scale.shards import is_address

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
