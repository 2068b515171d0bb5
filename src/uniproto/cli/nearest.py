"""`uniproto nearest`: which prototype a new row is nearest to."""

from __future__ import annotations

import argparse
import csv
import sys
import textwrap
from pathlib import Path
from typing import Any

from uniproto.cli.recorded_inputs import add_result, read_result


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "nearest",
        usage="uniproto nearest OUT ROWS [options]",
        help="find the nearest prototype of new rows",
        description="Print for every row of the file ROWS its nearest prototype among those of "
        "OUT, and how far it is. New rows are prepared as those that OUT was chosen from.",
        epilog=textwrap.dedent("""\
            example:
              uniproto select customers.csv -k 30 -o out
              uniproto nearest out new-customers.csv > nearest.csv

            columns: row (of ROWS, from 0), rank (of the prototype, from 1), index (its row in the
            input of OUT), distance.
            """),
    )
    add_result(parser)
    parser.add_argument("rows", metavar="ROWS", help="a file of rows like those of the input")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.selection.selection import Selection

    folder = Path(options.folder)
    result = read_result(folder, options.moved, remedy="Run 'uniproto select' again.")
    selection = Selection.load(folder, result.problem)
    found = selection.nearest(Path(options.rows))
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(("row", "rank", "index", "distance"))
    indices = selection.indices[found.prototype]
    places = (found.prototype + 1).tolist()
    numbers = range(len(places))
    table.writerows(zip(numbers, places, indices.tolist(), found.distance.tolist(), strict=True))
