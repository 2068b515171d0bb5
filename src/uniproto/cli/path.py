"""`uniproto path`: how many rows are enough?"""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from uniproto.cli import arguments
from uniproto.cli.feature_columns import add_features
from uniproto.cli.parser import seconds
from uniproto.cli.question import read_question
from uniproto.methods import METHODS


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "path",
        help="show the cost for several k, to choose how many rows are enough",
        description="Choose rows of POOL for several k, and show for each what they cost, what no "
        "choice of k rows can be below, and what random choices cost.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto path vectors.npy -o out
              uniproto path pool.parquet --ks 10,20,50,100 --column embedding -o out
              uniproto path people.csv --features age,income --metric l1 -o out
              uniproto path vectors.npy --ks 10,100,1000 --max-cost 0.15 -o out

            Every k is a run of its own: the first 10 rows of k = 20 are not the rows of k = 10,
            and cost more. Do not cut a selection short; select again with the k you want.

            The knee is where the cost lies farthest below the straight line from the first k to
            the last, over log k. It depends on which k were tried: a hint, not a law.

            what is written to OUT:
              path.parquet, .csv      one line per k
              path.json               the same with the knee, the chosen k and versions
              path.png, .svg, .html   the plot
              selection/              with --max-cost: the selection of the chosen k
            """),
    )
    arguments.add_files(parser)
    parser.add_argument(
        "-o", "--out", dest="output", metavar="OUT", help="folder to write the results to"
    )
    parser.add_argument(
        "--ks",
        type=arguments.whole_numbers,
        metavar="K,K,…",
        help="the numbers of rows to try (default: about eight, up to half of POOL or 500)",
    )
    parser.add_argument(
        "--max-cost",
        type=arguments.number,
        metavar="COST",
        help="also find the smallest k that costs no more than this, between those of --ks",
    )
    arguments.add_columns(
        parser, labels="the target's classes, for --weights balanced; never a feature"
    )
    add_features(parser)
    how = parser.add_argument_group("how to choose")
    how.add_argument(
        "--method",
        default="uniproto",
        help=f"one of {', '.join(METHODS)}, uniproto+polish (uniproto)",
    )
    arguments.add_conditions(how)
    how.add_argument("--seed", type=int, default=0, help="for methods that draw at random (0)")
    beside = parser.add_argument_group("what to compare with")
    beside.add_argument(
        "--no-bound", action="store_true", help="leave out the bounds, which take time"
    )
    beside.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="stop raising each bound after this time (default: when it no longer rises)",
    )
    beside.add_argument(
        "--random-seeds",
        type=arguments.seeds,
        default=5,
        metavar="SEEDS",
        help="how many random choices, or a list of seeds such as 3,7; 0 for none (5)",
    )
    arguments.add_scale(parser.add_argument_group("large inputs"))
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    parser.set_defaults(run=run, k=None)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.choosing_k import path
    from uniproto.comparing.results import require_results_folder
    from uniproto.runs.publish import refuse_inputs_inside

    if options.output:
        refuse_inputs_inside(Path(options.output), arguments.input_paths(options))
        require_results_folder(Path(options.output), "path")
    question = read_question(options)
    machine = {"memory": options.memory, "device": options.device, "lists": options.lists}
    found = path(
        question.problem(**machine),
        options.ks,
        method=options.method,
        max_cost=options.max_cost,
        certify=False if options.no_bound else options.time_limit or True,
        random_seeds=options.random_seeds,
        progress=False if options.quiet else None,
    )
    if options.output:
        found.save(options.output)
    if not options.quiet:
        found.table()
        if options.output:
            print(f"\nwritten to {options.output}")
