"""`uniproto certify`: how much better could any other choice have been?"""

from __future__ import annotations

import argparse
import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.cli.parser import seconds
from uniproto.cli.recorded_inputs import add_result, read_result
from uniproto.runs.atomic import require_writable
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import transport

if TYPE_CHECKING:
    from uniproto.certificate.certificate import Certificate
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "certify",
        help="prove how close a saved selection is to the best possible",
        description=textwrap.dedent("""\
            Compute a lower bound on the cost of any choice of as many rows, whatever the method,
            under the same conditions (--include, --exclude, --groups), and write it to OUT. The
            input files must be unchanged; --input says where one has moved to."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto select vectors.npy -k 100 -o out
              uniproto certify out --seconds 60
                  cost 0.2111; no choice of 100 rows can be below 0.2051 (gap 2.93%)
              uniproto verify out

            what is written to OUT:
              certificate.npz     prices of the targets, which prove the bound
              manifest.json       "certificate": lower_bound, gap (cost / lower_bound - 1; null
                                  where the bound is 0), absolute_gap (cost - lower_bound),
                                  converged and more; limit_needed, the seconds it would need,
                                  where the time was too short for a bound

            If the search stopped early, run the command again: it continues from there.
            'uniproto select --seconds' lowers the cost; this raises the bound.
            """),
    )
    add_result(parser)
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="SECONDS",
        help="time limit (default: until the bound no longer rises)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.certificate.ascent import certify
    from uniproto.methods.search.prove import prove
    from uniproto.runtime.budget import Budget
    from uniproto.selection.storage import save_certificate

    folder = Path(options.folder)
    remedy = "Run 'uniproto select', or call selection.certify() in Python before saving."
    result = read_result(folder, options.moved, remedy=remedy)
    selection, problem = result.selection, result.problem
    require_writable(folder)
    # That a record says so proves nothing.
    proof = None if selection.details.proof is None else prove(problem, selection.indices, Budget())
    certificate = certify(
        problem,
        selection.cost,
        _first_prices(folder, selection, problem),
        rows=selection.indices,
        plan=selection.plan,
        proven=None if proof is None else (proof.why, proof.least),
        time_limit=options.seconds,
        progress=Progress(False if options.quiet else None),
    )
    earlier = selection.certificate
    if earlier is not None and earlier.lower_bound > certificate.lower_bound:
        from uniproto.cli.verify_claims import bound_check

        if bound_check(result).holds:
            if not options.quiet:
                print(f"The earlier bound is higher and stays: {earlier}")
            return
    save_certificate(folder, certificate)
    if not options.quiet:
        print(_in_words(certificate, problem, selection.cost_is_exact))
        if certificate.limit_needed is not None:
            print(f"A bound needs more time: give --seconds {certificate.limit_needed:.0f}.")
        elif not certificate.converged:
            print("The search stopped early: run the command again to go on from there.")


def _first_prices(folder: Path, selection: Selection, problem: Problem) -> Any:
    """Where the search starts: at the last one's end, or at the prices of the optimal plan."""
    from uniproto.selection.storage import damaged

    prices: Any = np.zeros(problem.n)  # where no solve fits, any will do
    if selection.cost_is_exact:
        solved = transport(problem, selection.indices)
        if not math.isclose(solved.cost, selection.cost, rel_tol=1e-6, abs_tol=1e-12):
            raise damaged(
                folder, ValueError(f"its cost is {selection.cost:g}, its rows cost {solved.cost:g}")
            )
        prices = solved.prices
    if selection.certificate is not None:
        prices = np.clip(selection.certificate.prices, 0.0, 4 * problem.costs.ceiling)
    return prices


def _in_words(certificate: Certificate, problem: Problem, cost_is_exact: bool) -> str:
    from uniproto.report.verdict import conditions_of

    if not certificate.relative:
        gap = f"absolute gap {certificate.absolute_gap:.4g}"
    elif math.isinf(certificate.gap):
        gap = "which every cost is: the bound says nothing"
    else:
        gap = f"gap {certificate.gap:.2%}"
    return (
        f"cost {'' if cost_is_exact else 'at most '}{certificate.cost:.6g}; no choice of "
        f"{problem.k} row{'s' if problem.k > 1 else ''}{conditions_of(problem)} can be below "
        f"{certificate.lower_bound:.6g} ({gap})"
    )
