"""`uniproto select`: from files to a folder of results."""

from __future__ import annotations

import argparse
import csv
import io
import textwrap
from pathlib import Path
from typing import Any

from uniproto.cli.embed import embedding_notes, refuse_ray_options
from uniproto.cli.inputs import Inputs, file_rows, input_paths, read_inputs, recorded
from uniproto.cli.options import SelectOptions, add_settings
from uniproto.cli.parser import Parser, add_output, add_pool
from uniproto.cli.recorded_inputs import numbered_as_in_files
from uniproto.cli.recorded_paths import places
from uniproto.errors import invalid, printable
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.methods import Greedy, Method, UniProto, as_method
from uniproto.methods.greedy import plan_from
from uniproto.runs.checkpoint import CHECKPOINT, Checkpoint
from uniproto.runs.lock import PRIVATE
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.version import __version__

EXCLUDED = "excluded.csv"  # row of POOL, and the row of a file that it is near to


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "select",
        usage="uniproto select POOL -k K [-o OUT] [options]",
        help="choose k rows of a file and write them to a folder",
        description="Choose the K rows of POOL that, all with equal weight, are closest to the "
        "target in optimal-transport distance. OUT gets selection.parquet (rows of POOL from 0), "
        "prototypes.parquet and .csv (those of a table), plan.npz (who represents whom), "
        "certificate.npz (--certify), excluded.csv (--exclude-near) and manifest.json.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto select customers.csv -k 30
              uniproto select vectors.npy -k 100 --seconds 30 --certify -o out
              uniproto select pool.parquet -k 500 --target wanted.parquet --column embedding -o out
              uniproto select reviews.csv -k 100 --text review -o out
            Then 'uniproto report OUT', 'uniproto certify OUT', 'uniproto verify OUT'.
            """),
    )
    add_pool(parser, also=", or a folder of pictures")
    parser.add_argument("-k", type=int, required=True, help="how many rows to choose")
    add_output(parser, default="POOL-prototypes")
    add_settings(parser, SelectOptions, defaults=True)
    parser.set_defaults(run=run)


def default_options() -> dict[str, Any]:
    """What the options are where nobody says anything."""
    parser = Parser()
    add_parser(parser.add_subparsers())
    return vars(parser.parse_args(["select", "POOL", "-k", "1", "-o", "OUT"]))


def run(options: argparse.Namespace) -> None:
    from uniproto.select import run_method
    from uniproto.selection.storage import require_result_folder, save_selection

    method = chosen_method(options)
    options.output = options.output or f"{_stem(options.pool)}-prototypes"
    output = Path(options.output)
    refuse_inputs_inside(output, input_paths(options))
    require_result_folder(output, [EXCLUDED] if options.exclude_near else ())
    if options.time_limit is not None and not options.certify:
        raise invalid("--time-limit", "needs --certify", options.time_limit, "Add it.")
    if options.engine == "ray":
        from uniproto.cli.select_on_ray import run_on_ray

        run_on_ray(options, method)
        return
    refuse_ray_options(options, ("address", "num_cpus", "per_part"))
    inputs = read_inputs(options)
    ids = ids_of(inputs, options)
    shown = False if options.quiet else None
    machine = {"memory": options.memory, "device": options.device, "neighbours": options.lists}
    problem = inputs.problem(**machine)
    given = recorded(options, inputs.arguments["target_weights"], inputs)
    checkpoint = None
    if options.checkpoint:
        checkpoint = _checkpoint(output, inputs, given)
        problem = problem.with_checkpoint(checkpoint)
    selection = run_method(problem, method, progress=shown)
    if options.certify:
        selection.certify(time_limit=options.time_limit, progress=shown)
    pool = inputs.pool
    save_selection(
        numbered_as_in_files(inputs, selection),
        output,
        **ids,
        prototypes=None if pool.table is None else pool.table.take(selection.indices),
        record={
            "inputs": (identities := inputs.identities()),
            "places": places(identities, output),
            "arguments": given,
            **({} if checkpoint is None else {"resumed_from_pick": _resumed(selection.notes)}),
        },
        files=excluded_file(inputs),
    )
    if checkpoint is not None:
        checkpoint.remove()
    if not options.quiet:
        print(selection.summary())
        if inputs.near:
            print(f"  excluded                {len(inputs.near_rows):,} rows, in {EXCLUDED}")
        if pool.feature_columns and selection.preparation is None:
            columns = textwrap.shorten(", ".join(pool.feature_columns), 72, placeholder=" …")
            print(f"  features                {printable(columns)}")
        for data in (pool, inputs.target):
            for line in embedding_notes(getattr(data, "embedded", None)):
                print(f"  {printable(line)}")
        print(f"  written to              {printable(output)}")


def _stem(pool: str) -> str:
    """The name of a file or folder without its ending, for that of the results."""
    if "://" in pool or any(mark in pool for mark in "*?["):
        raise invalid("--out", "must be given where POOL is no single file", "none", "Add -o OUT.")
    return Path(pool).resolve().stem


def excluded_file(inputs: Inputs) -> dict[str, str]:
    """The rows that were excluded for what they are near to or repeat, for people to look at."""
    if not inputs.near:
        return {}
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(("row", "file", "near_to", "distance", "why"))
    numbers, _ = file_rows(inputs.pool)
    for path, near in inputs.near:
        files = [path] * len(near)
        apart = [""] * len(near) if near.why else near.distances
        why = near.why or ["near"] * len(near)
        table.writerows(zip(numbers[near.rows], files, near.nearest, apart, why, strict=True))
    return {EXCLUDED: lines.getvalue()}


def _checkpoint(output: Path, inputs: Inputs, given: dict[str, Any]) -> Checkpoint:
    """Where the run saves its picks; it belongs to these files and options and to no others."""
    if given["method"] not in (UniProto.name, Greedy.name):
        raise invalid(
            "--checkpoint",
            "needs --method uniproto or greedy",
            f"--method {given['method']}",
            "Drop it.",
        )
    # Where things are and how fast they go does not change the picks.
    irrelevant = {"pool", "target", "output", "certify", "time_limit", "memory", "device"}
    irrelevant |= {"cache", "no_cache", "batch_size", "engine", "address", "num_cpus"}
    identity = {
        "uniproto": __version__,
        # What was embedded is an input too.
        "inputs": [
            data and ({**data, "path": ""} if "embedding" in data else data["sha256"])
            for data in inputs.identities().values()
        ],
        "arguments": {name: given[name] for name in given if name not in irrelevant},
    }
    return Checkpoint(output / PRIVATE / CHECKPOINT, identity)


def _resumed(notes: dict[str, Any]) -> int:
    """How many picks came from the checkpoint, over all groups."""
    if isinstance(notes.get("resumed_from_pick"), int):
        return int(notes["resumed_from_pick"])
    return sum(_resumed(part) for part in notes.values() if isinstance(part, dict))


def ids_of(inputs: Inputs, options: argparse.Namespace) -> dict[str, Any]:
    """The names of rows for the files to write; those of a target only where it has them."""
    name, pool, target = options.id, inputs.pool, inputs.target
    if name is None:
        return {}
    ids = {"source_ids": (name, _all_ids(pool, name))}
    if target is None and options.metric not in MATRIX_METRICS:
        ids["target_ids"] = ids["source_ids"]
    elif target and target.table is not None and name in target.table.column_names:
        ids["target_ids"] = (name, _all_ids(target, name))
    return ids


def _all_ids(data: Any, name: str) -> Any:
    """The names of every row of a file, the skipped ones included."""
    from uniproto.data.tables import InputData

    items = getattr(data, "items", None)
    if items is None:
        return data.column(name, "--id")
    return InputData(data.path, data.sha256, None, items.table).column(name, "--id")


OWN_OPTIONS = {
    UniProto.name: ("search", "seconds"),
    Greedy.name: ("plan", "gains", "sample", "reg", "iterations"),
}


def chosen_method(options: argparse.Namespace) -> Method:
    """The method of a command line, with those of its options that were given."""
    given: dict[str, Any] = {}
    for method, names in OWN_OPTIONS.items():
        for name in names:
            if getattr(options, name) is None:
                continue
            if options.method != method:
                raise invalid(
                    f"--{name}",
                    f"is an option of --method {method}",
                    f"--method {options.method}",
                    "Drop one of the two.",
                )
            given[name] = getattr(options, name)
    if options.method == UniProto.name:
        return UniProto(**given)
    if options.method != Greedy.name:
        return as_method(options.method)
    reg, iterations = given.pop("reg", None), given.pop("iterations", None)
    plan = plan_from(given.pop("plan", Greedy.plan), reg, iterations)
    return Greedy(plan, **given)
