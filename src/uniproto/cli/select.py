"""`uniproto select`: from files to a folder of results."""

from __future__ import annotations

import argparse
import csv
import io
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.embed import embedding_notes
from uniproto.cli.inputs import Inputs, input_paths
from uniproto.cli.parser import add_output, add_pool, add_settings
from uniproto.cli.recorded_inputs import places_of
from uniproto.cli.spec import LanguageSpec, SelectSpec
from uniproto.errors import InvalidInputError, printable
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.runs.checkpoint import CHECKPOINT, Checkpoint
from uniproto.runs.lock import PRIVATE
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.select import as_time_limit, run_method
from uniproto.version import __version__

if TYPE_CHECKING:
    from uniproto.data.tables import InputData

CHOSEN = "chosen.jsonl"  # of `curate`
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
    add_settings(parser, SelectSpec, but=LanguageSpec)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.selection.storage import require_result_folder, save_selection

    spec = SelectSpec.of(vars(options))
    spec = replace(spec, output=spec.output or f"{_stem(spec.pool)}-prototypes")
    spec.check()
    method = spec.chosen_method()
    output = Path(str(spec.output))
    refuse_inputs_inside(output, input_paths(spec))
    require_result_folder(output, [EXCLUDED] if spec.exclude_near else ())
    if spec.engine == "ray":
        from uniproto.cli.select_on_ray import run_on_ray

        run_on_ray(spec, method, output)
        return
    inputs = spec.read()
    ids = ids_of(inputs)
    shown = False if spec.quiet else None
    problem = inputs.problem.with_k(spec.k)
    checkpoint = _checkpoint(output, inputs) if spec.checkpoint else None
    if checkpoint is not None:
        problem = problem.with_checkpoint(checkpoint)
    selection = run_method(problem, method, progress=shown)
    if spec.certify:
        selection.certify(as_time_limit(spec.certify)[1], progress=shown)
    pool = inputs.pool
    resumed = {} if checkpoint is None else {"resumed_from_pick": _resumed(selection.details.notes)}
    save_selection(
        inputs.in_files(selection),
        output,
        **ids,
        prototypes=None if pool.table is None else pool.table.take(selection.indices),
        record={**record_of(inputs, output), **resumed},
        files=excluded_file(inputs),
    )
    if checkpoint is not None:
        checkpoint.remove()
    if not spec.quiet:
        print(selection.summary())
        if inputs.near:
            print(f"  excluded                {len(inputs.near_rows):,} rows, in {EXCLUDED}")
        if pool.feature_columns and selection.details.preparation is None:
            columns = textwrap.shorten(", ".join(pool.feature_columns), 72, placeholder=" …")
            print(f"  features                {printable(columns)}")
        for data in filter(None, (pool, inputs.target)):
            for line in embedding_notes(data.embedded):
                print(f"  {printable(line)}")
        print(f"  written to              {printable(output)}")


def record_of(inputs: Inputs, output: Path) -> dict[str, Any]:
    """What a manifest says about the inputs, and about what was asked of them."""
    identities = inputs.identities()
    places = places_of(identities, output)
    return {"inputs": identities, "places": places, "arguments": inputs.asked()}


def _stem(pool: str) -> str:
    """The name of a file or folder without its ending, for that of the results."""
    if "://" in pool or any(mark in pool for mark in "*?["):
        raise InvalidInputError(
            "must be given where POOL is not a single file. Add -o OUT.", parameter="output"
        )
    return Path(pool).resolve().stem


def excluded_file(inputs: Inputs) -> dict[str, str]:
    """The rows that were excluded for what they are near to or repeat, for people to look at."""
    if not inputs.near:
        return {}
    lines = io.StringIO(newline="")
    table = csv.writer(lines)
    table.writerow(("row", "rule", "file", "matched_row", "matched_words", "distance"))
    for path, near in inputs.near:
        apart = [""] * len(near) if near.rules else near.distances
        rules, words = near.rules or ["near"] * len(near), near.words or [""] * len(near)
        rows, files = inputs.pool.rows[near.rows], [path] * len(near)
        table.writerows(zip(rows, rules, files, near.nearest, words, apart, strict=True))
    return {EXCLUDED: lines.getvalue()}


def _checkpoint(output: Path, inputs: Inputs) -> Checkpoint:
    """Where the run saves its picks; it belongs to these files and options and to no others."""
    # Where things are and how fast they go does not change the picks.
    irrelevant = {"pool", "target", "output", "certify", "memory", "device"}
    irrelevant |= {"cache", "no_cache", "batch_size", "engine", "address", "num_cpus"}
    identity = {
        "uniproto": __version__,
        # What was embedded is an input too.
        "inputs": [
            data and ({**data, "path": ""} if "embedding" in data else data["sha256"])
            for data in inputs.identities().values()
        ],
        "arguments": {name: v for name, v in inputs.asked().items() if name not in irrelevant},
    }
    return Checkpoint(output / PRIVATE / CHECKPOINT, identity)


def _resumed(notes: dict[str, Any]) -> int:
    """How many picks came from the checkpoint, over all groups."""
    if isinstance(notes.get("resumed_from_pick"), int):
        return int(notes["resumed_from_pick"])
    return sum(_resumed(part) for part in notes.values() if isinstance(part, dict))


def ids_of(inputs: Inputs) -> dict[str, Any]:
    """The names of rows for the files to write; those of a target only where it has them."""
    name, pool, target = inputs.spec.id, inputs.pool, inputs.target
    if name is None:
        return {}
    ids = {"source_ids": (name, _all_ids(pool, name))}
    if target is None and inputs.spec.metric not in MATRIX_METRICS:
        ids["target_ids"] = ids["source_ids"]
    elif target and name in target.names:
        ids["target_ids"] = (name, _all_ids(target, name))
    return ids


def _all_ids(data: InputData, name: str) -> Any:
    """The names of every row of a file, the skipped ones included."""
    whole = data if data.items is None else replace(data, table=data.items.table)
    return whole.column(name, "id")


def free_name(name: str, row: dict[str, Any]) -> str:
    """The name, lengthened until the row has no such column: who curates again loses nothing.

    >>> free_name("rank", {"rank": 1, "rank_chosen": 7}), free_name("cost", {"rank": 1})
    ('rank_chosen_chosen', 'cost')
    """
    while name in row:
        name = f"{name}_chosen"
    return name
