"""`uniproto cost`: what given rows cost, wherever they come from."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from uniproto.cli.inputs import problem_of
from uniproto.cli.option_values import row_numbers
from uniproto.cli.parser import add_pool, add_settings
from uniproto.cli.spec import RowsSpec, SelectSpec
from uniproto.geometry.metrics import metric_label


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cost",
        usage="uniproto cost POOL ROWS [options]",
        help="compute the exact cost of given rows",
        description="Print the exact optimal-transport cost of ROWS of POOL, all with equal "
        "weight: the number by which any two choices of rows can be compared.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto cost customers.csv 3,17,40
              uniproto cost pool.parquet out --target wanted.parquet --column embedding
            """),
    )
    add_pool(parser)
    parser.add_argument(
        "rows", metavar="ROWS", help="row numbers such as 3,17,40, or a folder of 'uniproto select'"
    )
    add_settings(parser, RowsSpec)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.select import cost
    from uniproto.selection.selection import Selection

    rows: Any = options.rows
    rows = Selection.load(rows) if Path(rows).is_dir() else row_numbers(rows, "rows")
    problem = problem_of(SelectSpec.of(vars(options)))
    found, costs = cost(problem, rows), problem.costs
    count = len(rows.indices if isinstance(rows, Selection) else rows)
    metric = metric_label(costs.metric, costs.bandwidth)
    print(f"{found:.10g} ({metric}, {count:,} rows for {problem.n:,} targets)")
