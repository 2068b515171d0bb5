"""`uniproto update`: few changes to a saved selection, when its data have changed."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.cli.inputs import Inputs, input_paths
from uniproto.cli.parser import add_output, seconds
from uniproto.cli.recorded_inputs import add_result, read_result
from uniproto.cli.select import ids_of, record_of
from uniproto.cli.spec import SelectSpec
from uniproto.data.columns import arrow_table
from uniproto.errors import InvalidInputError, printable
from uniproto.runs.publish import refuse_inputs_inside

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.selection.selection import Selection

PAGE_OF_CHANGES = "changes.html"
_ASKED_ANEW = (  # what of an earlier selection says nothing about new rows
    *("include", "exclude", "exclude_near", "near_rows", "checkpoint", "engine", "address"),
    *("num_cpus", "per_part", "plan", "gains", "sample", "reg", "iterations"),
    *("method", "seconds", "certify", "memory", "device", "neighbours"),
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "update",
        usage="uniproto update OUT NEW [--changes N] [-o OUT2] [options]",
        help="change as few prototypes as possible for new data",
        description="Update the saved selection OUT for the rows of NEW: keep all but at most N of "
        "its prototypes, which are found again by their --id or by their values. Without N, the "
        "fewest changes are made with which the cost is within 1 %% of that of a fresh selection. "
        "Columns, metric and options are those of OUT.",
        epilog=textwrap.dedent(f"""\
            examples:
              uniproto select march.csv -k 30 --id customer -o march
              uniproto drift march april.csv
              uniproto update march april.csv -o april
              uniproto update march april.csv --changes 3 -o april
              uniproto verify april

            OUT2 gets the files of 'uniproto select' and {PAGE_OF_CHANGES}: who stays, who leaves
            and who comes on one map, what fewer or more changes would cost, and the targets that
            were covered badly before.
            """),
    )
    add_result(parser)
    add_new_rows(parser)
    parser.add_argument(
        "--changes", type=int, metavar="N", help="at most N of the rows may be others than in OUT"
    )
    parser.add_argument("-k", type=int, help="how many rows to choose (default: as many as in OUT)")
    add_output(parser, default="NEW-prototypes")
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="SECONDS",
        help="keep searching until SECONDS have passed",
    )
    parser.add_argument(
        "--certify",
        nargs="?",
        const=True,
        default=False,
        type=seconds,
        metavar="SECONDS",
        help="also prove a lower bound on the cost of any K rows with so few changes",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(typed="", run=run)


def add_new_rows(parser: argparse.ArgumentParser) -> None:
    """The files of the new rows."""
    parser.add_argument("new", metavar="NEW", help="the new rows: a file like the one of OUT")
    parser.add_argument(
        "--target", metavar="FILE", help="what the rows must represent now (default: NEW)"
    )


def run(options: argparse.Namespace) -> None:
    from uniproto.report.update_page import update_page
    from uniproto.selection.selection import Selection, as_time_limit
    from uniproto.selection.storage import load_manifest, require_result_folder, save_selection
    from uniproto.selection.update import record_of as record_of_update
    from uniproto.selection.update import updated

    folder = Path(options.folder)
    manifest, earlier = load_manifest(folder), Selection.load(folder)
    spec = spec_for(folder, manifest, options.new, options.target)
    output = options.output or f"{Path(options.new).stem}-prototypes"
    spec = replace(
        spec,
        k=options.k or earlier.k,
        output=output,
        seconds=options.seconds,
        certify=options.certify,
        quiet=options.quiet,
        changes=options.changes,
    )
    refuse_inputs_inside(Path(output), input_paths(spec))
    require_result_folder(Path(output), [PAGE_OF_CHANGES])
    inputs = spec.read()
    found = found_in(inputs, folder, manifest, earlier, options.moved)
    shown = False if options.quiet else None
    made = updated(
        earlier,
        inputs.problem,
        found,
        changes=options.changes,
        k=options.k,
        seconds=options.seconds,
        progress=shown,
    )
    selection = Selection(**made)
    assert selection.details.updated is not None
    if options.certify:
        selection.certify(as_time_limit(options.certify)[1], progress=shown)
    page = update_page(
        selection, inputs.problem, title=Path(options.new).name, command=options.typed
    )
    table = inputs.pool.table
    record = record_of(inputs, Path(output))
    record["update"] = record_of_update(selection.details.updated, inputs.pool.rows)
    save_selection(
        inputs.in_files(selection),
        Path(output),
        **ids_of(inputs),
        prototypes=None if table is None else table.take(selection.indices),
        record=record,
        files={PAGE_OF_CHANGES: page},
    )
    if not options.quiet:
        print(selection.summary())
        print(f"  written to              {printable(output)}\n")
        selection.table()


def spec_for(folder: Path, manifest: Mapping[str, Any], new: str, target: str | None) -> SelectSpec:
    """What the record of a selection asks of new files."""
    if "arguments" not in manifest:
        raise InvalidInputError(
            f"{folder}: only what 'uniproto select' wrote can be updated here. In Python: "
            "Selection.load(folder).update(rows)."
        )
    spec = SelectSpec.of(manifest["arguments"])
    if spec.target is not None and target is None:
        raise InvalidInputError(
            f"must be given: {folder} represents the rows of another file.", parameter="target"
        )
    usual: dict[str, Any] = {each.name: each.default for each in fields(SelectSpec)}
    bandwidth = manifest["bandwidth"]
    return replace(
        spec,
        **{name: usual[name] for name in _ASKED_ANEW},
        pool=new,
        target=target,
        metric=manifest["metric"],
        bandwidth=usual["bandwidth"] if bandwidth is None else repr(float(bandwidth)),
        earlier=str(folder),
        preparation=manifest.get("preparation"),
    )


def found_in(
    inputs: Inputs,
    folder: Path,
    manifest: Mapping[str, Any],
    earlier: Selection,
    moved: Sequence[str] | None,
) -> NDArray[np.intp]:
    """The rows of the new file that are the prototypes: by their ids, or else their values."""
    from uniproto.selection.found_again import by_ids, by_names, found_again

    spec, pool = inputs.spec, inputs.pool
    if spec.id is not None and "id" in manifest:
        names = np.array([str(name) for name in manifest["id"]["prototypes"]])
        return by_ids(names, pool.column(spec.id, "--id").astype(str))
    looked_at = spec.text or spec.images
    table = earlier.details.prototypes
    if looked_at and table is not None and pool.table is not None:
        columns = [name for name in looked_at.split(",") if name in table.column_names]
        if columns and set(columns) <= set(pool.table.column_names):
            old, new = (
                each.select(columns).to_pylist()
                for each in (table, arrow_table(pool.table, "source"))
            )
            return by_names(*([str(sorted(row.items())) for row in rows] for rows in (old, new)))
    if table is not None and not spec.embeds:
        return found_again(earlier, inputs.problem)
    remedy = "Run 'uniproto select' with --id, and name the same column now."
    result = read_result(folder, moved, remedy=remedy)
    given = replace(earlier.details, given=result.problem.given)
    known = type(earlier)(indices=result.selection.indices, weights=earlier.weights, details=given)
    return found_again(known, inputs.problem)
