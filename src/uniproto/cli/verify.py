"""`uniproto verify`: is a saved result what it says it is?"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.recorded_inputs import add_result, read_result
from uniproto.errors import ChangedInputError, printable

if TYPE_CHECKING:
    from uniproto.cli.verify_claims import Check


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="check a saved selection against its input files",
        description=textwrap.dedent("""\
            Check every claim of OUT against the input files, and answer yes or no: no file has
            changed; the chosen rows are allowed, and their ids and values are those of the input;
            the plan gives every chosen row 1/K and every target its weight; its cost is the one on
            record, and no plan of these rows costs less; where OUT says that no other rows cost
            less, or less than a lower bound, that is proven again. Nothing is written, and the
            search is not repeated."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto select vectors.npy -k 100 --certify -o out
              uniproto verify out && echo "safe to use"

            exit status: 0 if every answer is yes, 1 if one is no, 2 if the folder or an input file
            cannot be read.
            """),
    )
    add_result(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    verified = True
    for check in checks(Path(options.folder), options.moved):
        found = f" ({printable(check.found)})" if check.found else ""
        print(f"  {'yes' if check.holds else 'no':3}  {check.claim}{found}", flush=True)
        verified &= check.holds
    print(f"verified: {'yes' if verified else 'no'}")
    return 0 if verified else 1


def checks(folder: Path, moved: Sequence[str] | None = None) -> Iterator[Check]:
    """Every claim of a saved result, checked; ends early where the next could not be read.

    `moved` are where input files are now.
    """
    from uniproto.cli import verify_claims as claims
    from uniproto.selection.storage import load_manifest

    changed = claims.changed_files(folder, load_manifest(folder))
    if changed:
        yield claims.Check("the files of the result have not changed", False, ", ".join(changed))
        return
    try:
        remedy = "Run 'uniproto select' and verify its folder; this one cannot be verified."
        result = read_result(folder, moved, remedy=remedy)
    except ChangedInputError as error:
        yield claims.Check("the input files have not changed", False, str(error))
        return
    yield claims.Check("the files of the result have not changed", True)
    yield claims.Check("the input files have not changed", True)
    yield claims.record_check(result)
    rows = claims.rows_check(result)
    yield rows
    if not rows.holds:
        return
    yield claims.names_check(result, folder)
    yield claims.plan_check(result)
    yield from claims.cost_checks(result)
    yield from claims.certificate_checks(result)
