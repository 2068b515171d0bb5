"""`uniproto drift`: are new rows still like those that a selection represents?"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from uniproto.cli.recorded_inputs import add_result, read_result
from uniproto.cli.update import add_new_rows, asked_again
from uniproto.errors import printable
from uniproto.problem.problem import Problem


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "drift",
        usage="uniproto drift OUT NEW [--target FILE]",
        help="test whether new rows differ from those of a saved selection",
        description=textwrap.dedent("""\
            Compare the rows of NEW with the target of the saved selection OUT: what the prototypes
            cost each of them, how many rows are far from all of them, which prototypes gain or lose
            rows, and which columns make the difference. Each is compared with how much halves of
            the old rows differ, and a permutation test at the 5 % level gives the answer. Nothing
            is written."""),
        epilog=textwrap.dedent("""\
            example:
              uniproto drift march april.csv || uniproto update march april.csv -o april

            exit status: 0 if no drift was found, 1 if there is drift, 2 if a file cannot be read.
            """),
    )
    add_result(parser)
    add_new_rows(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from uniproto.selection.drift import drift

    folder = Path(options.folder)
    remedy = "Run 'uniproto select', or call selection.drift(rows) in Python."
    result = read_result(folder, options.moved, remedy=remedy)
    asked = asked_again(folder, result.manifest, result.selection, options.new, options.target)
    found = drift(result.selection, result.problem, Problem(**asked))
    print("\n".join(map(printable, str(found).split("\n"))))
    return 1 if found.alarm else 0
