"""`uniproto path`: how many rows are enough?"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import dataclass
from typing import Any

from uniproto.cli.compare import require_free, save_and_show
from uniproto.cli.inputs import problem_of
from uniproto.cli.parser import add_output, add_pool, add_settings, number, parse_ints, seconds
from uniproto.cli.parser import seeds as as_seeds
from uniproto.cli.spec import RowsSpec, SelectSpec
from uniproto.runtime.settings import made_of, setting, setting_of


@dataclass(frozen=True)
class PathOptions(RowsSpec):
    """The options of `uniproto path`."""

    ks: list[int] | None = setting(
        None,
        "numbers of rows to try (default: about eight, up to half of POOL or 500)",
        common=True,
        metavar="K,K,…",
        parse=parse_ints,
    )
    max_cost: float | None = setting(
        None,
        "also find the smallest k whose cost is at most COST, between those of --ks",
        common=True,
        metavar="COST",
        parse=number,
    )
    method: str = setting_of(SelectSpec, "method")
    quiet: bool = setting(False, "no progress bar and no table", common=True)
    seed: int = setting_of(SelectSpec, "seed", group="what to compare with")
    certify: bool | float = setting(
        True,
        "also prove a lower bound for each K, for at most SECONDS each (default)",
        group="what to compare with",
        metavar="SECONDS",
        parse=seconds,
        bare=True,
        off=("--no-certify", "compute no lower bounds, which take time", False),
    )
    seeds: int | list[int] = setting(
        5,
        "number of random choices to compare with, or a list of seeds such as 3,7 (default: 5)",
        group="what to compare with",
        metavar="SEEDS",
        parse=as_seeds,
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
              uniproto path people.csv --columns age,income --metric l1 -o out
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
    add_settings(parser, PathOptions)
    parser.set_defaults(typed="", run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.path import path

    spec, own = SelectSpec.of(vars(options)), made_of(PathOptions, vars(options))
    require_free(spec, "path")
    found = path(
        problem_of(spec),
        own.ks,
        method=own.method,
        max_cost=own.max_cost,
        certify=own.certify,
        seeds=own.seeds,
        progress=False if own.quiet else None,
    )
    save_and_show(found, spec, options.typed)
