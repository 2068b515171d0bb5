"""`uniproto verify`: is a saved result what it says it is?"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.recorded_inputs import ChangedInputError, add_moved, recorded_inputs
from uniproto.errors import printable

if TYPE_CHECKING:
    from uniproto.cli.verify_claims import Check

_EMBEDDED = 1e-5  # vectors computed anew, in other batches, are off by as much
_ANSWERS = {True: "yes", False: "no", None: "-"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help="check a saved selection against its input files",
        description=textwrap.dedent("""\
            Check every claim of OUT against the input files, and answer yes or no: no file has
            changed; the chosen rows are allowed, and their ids and values are those of the input;
            the plan gives every chosen row 1/K and every target its weight; its cost is the one on
            record, and no plan of these rows costs less; where OUT is certified, the lower bound is
            proven. Nothing is written, and the search is not repeated."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto select vectors.npy -k 100 --certify -o out
              uniproto verify out && echo "safe to use"

            exit status: 0 if every answer is yes, 1 if one is no, 2 if the folder or an input file
            cannot be read.
            """),
    )
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    add_moved(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    verified = True
    for check in checks(Path(options.folder), options.moved):
        found = f" ({printable(check.found)})" if check.found else ""
        print(f"  {_ANSWERS[check.holds]:3}  {check.claim}{found}", flush=True)
        verified = verified and check.holds is not False
    print(f"verified: {'yes' if verified else 'no'}")
    return 0 if verified else 1


def _differing(selection: Any, problem: Any) -> list[str]:
    """What the record says of the question otherwise than the inputs do."""
    costs = problem.costs
    found = {
        "k": (selection.k, problem.k),
        "shape": (selection.shape, costs.shape),
        "metric": (selection.metric, costs.metric),
        "bandwidth": (selection.bandwidth, costs.bandwidth),
        "preparation": (_prepared(selection.given), _prepared(problem.given)),
    }
    return [name for name, (said, is_so) in found.items() if said != is_so]


def _prepared(given: Any) -> Any:
    preparation = None if given is None else given.preparation
    return None if preparation is None else preparation.record()


def checks(folder: Path, moved: Sequence[str] | None = None) -> Iterator[Check]:
    """Every claim of a saved result, checked; ends early where the next could not be read.

    `moved` are where input files are now.
    """
    from uniproto.cli.verify_claims import (
        Check,
        bound_checks,
        broken_conditions,
        changed_files,
        cost_checks,
        plan_check,
        wrong_names,
    )
    from uniproto.selection.selection import Selection
    from uniproto.selection.storage import load_manifest

    manifest = load_manifest(folder)
    claim = "the input files have not changed"
    try:
        remedy = "Run 'uniproto select' and verify its folder; this one cannot be verified."
        inputs = recorded_inputs(folder, manifest, moved, remedy=remedy)
    except ChangedInputError as error:
        yield Check(claim, False, str(error))
        return
    yield Check(claim, True)
    changed = changed_files(folder, manifest)
    yield Check("the files of the result have not changed", not changed, ", ".join(changed))
    if changed:
        return
    selection, problem = Selection.load(folder), inputs.problem.with_k(inputs.spec.k)
    others = _differing(selection, problem)
    agrees = not others
    yield Check("the record agrees with the inputs", agrees, ", ".join(others))
    if not agrees:
        return
    broken = broken_conditions(selection.indices, problem)
    claim = f"{problem.k} different rows of the source are chosen, all of them allowed"
    yield Check(claim, not broken, "; ".join(broken))
    if broken:
        return
    wrong = wrong_names(folder, manifest, selection, inputs)
    yield Check("rows and ids are those of the inputs", not wrong, ", ".join(wrong))
    yield plan_check(selection, problem)
    embedded = "embedding" in manifest["inputs"]["source"]
    slack = _EMBEDDED * problem.costs.ceiling if embedded else 0.0
    yield from cost_checks(selection, problem, slack)
    certificate = selection.certificate
    if certificate is not None:
        yield from bound_checks(manifest["certificate"], selection, problem, slack)
    if selection.proof is not None and (certificate is None or certificate.proof is None):
        claim = f"not checked: that no choice of {problem.k} rows costs less"
        yield Check(claim, None, "the search says so, and is not repeated")
