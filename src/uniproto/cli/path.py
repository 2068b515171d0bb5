"""`uniproto path`: how many rows are enough?"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.cli.inputs import input_paths, read_inputs
from uniproto.cli.options import ProblemOptions, add_settings
from uniproto.cli.parser import add_output, add_pool, number, parse_ints, seconds, seeds
from uniproto.errors import printable
from uniproto.methods import METHODS
from uniproto.runtime.settings import setting


@dataclass(frozen=True)
class PathOptions(ProblemOptions):
    """The options of `uniproto path`."""

    ks: list[int] | None = setting(
        None,
        "the numbers of rows to try (about eight, up to half of POOL or 500)",
        common=True,
        metavar="K,K,…",
        parse=parse_ints,
    )
    max_cost: float | None = setting(
        None,
        "also find the smallest k that costs no more than this, between those of --ks",
        common=True,
        metavar="COST",
        parse=number,
    )
    method: str = setting("uniproto", f"one of {', '.join(METHODS)} (uniproto)", common=True)
    quiet: bool = setting(False, "no progress bar and no table", common=True)
    seed: int = setting(0, "of methods that draw at random", group="what to compare with")
    no_bound: bool = setting(
        False, "leave out the bounds, which take time", group="what to compare with"
    )
    time_limit: float | None = setting(
        None,
        "stop raising each bound after so many seconds (when it no longer rises)",
        group="what to compare with",
        metavar="SECONDS",
        parse=seconds,
    )
    random_seeds: int | list[int] = setting(
        5,
        "how many random choices, or a list of seeds such as 3,7; 0 for none (5)",
        group="what to compare with",
        metavar="SEEDS",
        parse=seeds,
    )


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "path",
        usage="uniproto path POOL [options]",
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
    add_pool(parser)
    add_output(parser)
    add_settings(parser, PathOptions, defaults=True)
    parser.set_defaults(run=run, k=None)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.path import path_of
    from uniproto.comparing.results import require_results_folder
    from uniproto.runs.publish import refuse_inputs_inside

    if options.output:
        refuse_inputs_inside(Path(options.output), input_paths(options))
        require_results_folder(Path(options.output), "path")
    inputs = read_inputs(options)
    machine = {"memory": options.memory, "device": options.device, "neighbours": options.lists}
    found = path_of(
        inputs.problem(**machine),
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
            print(f"\nwritten to {printable(options.output)}")
