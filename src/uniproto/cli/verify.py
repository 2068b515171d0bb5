"""`uniproto verify`: is a saved result what it says it is?"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from uniproto.cli.recorded_inputs import add_moved, recorded_inputs
from uniproto.cli.recorded_paths import ChangedInputError
from uniproto.cli.verify_check import Check
from uniproto.cli.verify_costs import cost_checks, gain_checks, plan_check, sums_check
from uniproto.cli.verify_optimum import certificate_checks, pick_checks
from uniproto.cli.verify_record import (
    condition_checks,
    file_check,
    name_checks,
    record_check,
    row_check,
)
from uniproto.errors import printable

_EMBEDDED = 1e-5  # vectors computed anew, in other batches, are off by as much


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="check a saved selection against its input files",
        description=textwrap.dedent("""\
            Recompute what OUT claims from its files and the input files alone, and say yes or no:
            that no file has changed; that the rows are allowed; that the plan gives every row 1/K
            and every target its weight; that it costs what is written, and no plan of these rows
            costs less; that the gains can be those of these rows; and, where OUT is certified, that
            the prices prove the lower bound, or that the search proves its optimum again."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto select vectors.npy -k 100 --certify -o out
              uniproto verify out && echo "safe to use"

            exit status: 0 where every answer is yes, 1 where one is no, 2 where the folder or an
            input file cannot be read.
            """),
    )
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    add_moved(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    verified = True
    for check in checks(Path(options.folder), options.moved):
        found = f" ({printable(check.found)})" if check.found else ""
        print(f"  {'yes' if check.holds else 'no ':3}  {check.claim}{found}", flush=True)
        verified = verified and check.holds
    print(f"verified: {'yes' if verified else 'no'}")
    return 0 if verified else 1


def checks(folder: Path, moved: Sequence[str] | None = None) -> Iterator[Check]:
    """Every claim of a saved result, checked; ends early where the next could not be read.

    `moved` are where input files are now.
    """
    from uniproto.selection.selection import Selection
    from uniproto.selection.storage import load_manifest, read_fields

    manifest = load_manifest(folder)
    claim = "the input files have not changed"
    try:
        remedy = "Run 'uniproto select' and verify its folder; this one cannot be verified."
        inputs = recorded_inputs(folder, manifest, moved, remedy=remedy)
    except ChangedInputError as error:
        yield Check(claim, False, str(error))
        return
    yield Check(claim, True)
    files = file_check(folder, manifest)
    yield files
    if not files.holds:
        return
    selection = Selection(**read_fields(folder))
    problem = inputs.problem()
    record = record_check(manifest, selection, problem)
    yield record
    rows = row_check(selection, problem)
    yield rows
    if not (record.holds and rows.holds):
        return
    yield from condition_checks(selection, problem)
    yield from name_checks(folder, manifest, selection, inputs)
    yield plan_check(selection, problem)
    embedded = "embedding" in manifest["inputs"]["source"]
    slack = _EMBEDDED * problem.costs.ceiling if embedded else 0.0
    yield from cost_checks(selection, problem, slack)
    yield from gain_checks(manifest, selection, problem, slack)
    if not embedded:
        yield from pick_checks(manifest, selection, problem)
    yield from certificate_checks(manifest, selection, problem, slack)
    yield sums_check(selection)
