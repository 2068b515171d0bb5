"""`uniproto select`: from files to a folder of results."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.embed import embedding_notes
from uniproto.cli.inputs import input_paths, method_of, problem_of
from uniproto.cli.parser import add_output, add_pool, add_settings
from uniproto.cli.spec import LanguageSpec, SelectSpec
from uniproto.data.examples import without_gaps
from uniproto.errors import InvalidInputError, printable
from uniproto.runs.checkpoint import CHECKPOINT, Checkpoint
from uniproto.runs.lock import PRIVATE
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.runs.records import without_infinity
from uniproto.select import select
from uniproto.selection.call import on_any_machine, recorded
from uniproto.version import __version__

if TYPE_CHECKING:
    from uniproto.methods import Method
    from uniproto.problem.problem import Problem

CHOSEN = "chosen.jsonl"  # of `curate`
EXCLUDED = "excluded.csv"
_IRRELEVANT = ("source", "target", "compute")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "select",
        usage="uniproto select POOL -k K [-o OUT] [options]",
        help="choose k rows of a file and write them to a folder",
        description="Choose the K rows of POOL that, all with equal weight, are closest to the "
        "target in optimal-transport distance. OUT gets selection.parquet (rows of POOL from 0), "
        "prototypes.parquet and .csv (those of a table), plan.npz (which targets each represents), "
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
    method = method_of(spec)
    output = Path(str(spec.output))
    refuse_inputs_inside(output, input_paths(spec))
    require_result_folder(output, [EXCLUDED] if spec.exclude_near else ())
    if spec.engine == "ray":
        from uniproto.cli.select_on_ray import run_on_ray

        run_on_ray(spec, method, output)
        return
    problem = problem_of(spec)
    shown = False if spec.quiet else None
    checkpoint = _checkpoint(output, problem, spec.k, method) if spec.checkpoint else None
    if checkpoint is not None:
        problem = problem.with_checkpoint(checkpoint)
    selection = select(problem, spec.k, method=method, certify=spec.certify, progress=shown)
    resumed = {} if checkpoint is None else {"resumed_from_pick": _resumed(selection.details.notes)}
    save_selection(selection, output, record=resumed)
    if checkpoint is not None:
        checkpoint.remove()
    if not spec.quiet:
        print(selection.summary())
        for line in notes_on(problem):
            print(f"  {printable(line)}")
        print(f"  written to              {printable(output)}")


def notes_on(problem: Problem) -> Iterator[str]:
    """What a person should know about the inputs: excluded rows, features, rows without vector."""
    if problem.near:
        yield f"excluded                {len(problem.near_rows):,} rows, in {EXCLUDED}"
    given = problem.given
    if given.inputs[0].feature_columns and given.preparation is None:
        columns = ", ".join(given.inputs[0].feature_columns)
        yield f"features                {textwrap.shorten(columns, 72, placeholder=' …')}"
    for each in given.inputs:
        yield from embedding_notes(each.embedded)


def _stem(pool: str) -> str:
    """The name of a file or folder without its ending, for that of the results."""
    if "://" in pool or any(mark in pool for mark in "*?["):
        raise InvalidInputError(
            "must be given where POOL is not a single file. Add -o OUT.", parameter="output"
        )
    return Path(pool).resolve().stem


def _checkpoint(output: Path, problem: Problem, k: Any, method: Method) -> Checkpoint:
    """Where the run saves its picks; it belongs to these files and options and to no others."""
    # Where things are and how fast they go does not change the picks.
    asked = {name: of for name, of in problem.asked.items() if name not in _IRRELEVANT}
    if "features" in asked:
        asked["features"] = on_any_machine(asked["features"])
    identity = {
        "uniproto": __version__,
        # What was embedded is an input too.
        "inputs": [
            data and ({**data, "path": ""} if "embedding" in data else data["sha256"])
            for data in (problem.identities() or {}).values()
        ],
        "arguments": recorded({**asked, "k": k, "method": method}),
        "near": problem.near_rows,
    }
    return Checkpoint(output / PRIVATE / CHECKPOINT, identity)


def _resumed(notes: dict[str, Any]) -> int:
    """How many picks came from the checkpoint, over all groups."""
    if isinstance(notes.get("resumed_from_pick"), int):
        return int(notes["resumed_from_pick"])
    return sum(_resumed(part) for part in notes.values() if isinstance(part, dict))


def free_name(name: str, row: dict[str, Any]) -> str:
    """The name, lengthened until the row has no such column: who curates again loses nothing.

    >>> free_name("rank", {"rank": 1, "rank_chosen": 7}), free_name("cost", {"rank": 1})
    ('rank_chosen_chosen', 'cost')
    """
    while name in row:
        name = f"{name}_chosen"
    return name


def json_rows(table: Any) -> list[dict[str, Any]]:
    """The rows of a table as JSON: without infinity, and without the gaps of conversations."""
    rows = without_infinity(table.to_pylist())
    return [{name: without_gaps(value) for name, value in row.items()} for row in rows]
