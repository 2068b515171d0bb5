"""`uniproto compare`: several methods on the same files, side by side."""

from __future__ import annotations

import argparse
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.cli.inputs import input_paths, problem_of
from uniproto.cli.parser import add_output, add_pool, add_settings, names
from uniproto.cli.parser import seeds as as_seeds
from uniproto.cli.spec import RowsSpec, SelectSpec
from uniproto.errors import printable
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.runtime.settings import made_of, setting, setting_of


@dataclass(frozen=True)
class CompareOptions(RowsSpec):
    """The options of `uniproto compare`."""

    methods: list[str] | None = setting(
        None,
        "names as for 'uniproto select --method' (default: all that apply)",
        common=True,
        metavar="A,B,C",
        parse=names,
    )
    labels: str | None = setting_of(
        RowsSpec,
        "labels",
        help="column of classes, to measure classification by",
        common=True,
    )
    seeds: int | list[int] = setting(
        5,
        "number of seeds for methods that draw at random, or a list such as 3,7 (default: 5)",
        common=True,
        metavar="SEEDS",
        parse=as_seeds,
    )
    minority: list[str] | None = setting(
        None,
        "the minority classes (default: those below half the mean class size)",
        group="columns",
        metavar="A,B",
        parse=names,
    )
    quiet: bool = setting(False, "no progress bar and no table", common=True)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        usage="uniproto compare POOL -k K [options]",
        help="compare several methods on the same problem",
        description="Let several methods choose K rows of POOL for the same target, and compare "
        "them: exact optimal-transport cost with equal weights, time, memory, and how unequal "
        "their own weights are. With --labels, also how well the chosen rows classify the target.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto compare vectors.npy -k 100
              uniproto compare pool.parquet -k 100 --target wanted.parquet --labels class -o out
              uniproto compare pool.csv -k 50 --methods uniproto,kmedoids,random --seeds 10 -o out
              uniproto compare pool.csv -k 50 --labels class --minority rare,odd
              uniproto compare people.csv -k 50 --columns age,income --metric l1

            how to read the table:
              cost          lower is better; * marks the lowest
              seconds       for choosing alone, without reading files and computing costs
              memory        peak memory while choosing, beyond what was in use before
              weight ratio  the method's largest weight divided by its smallest (1: all equal)
              entropy       of its weights, relative to equal weights (1: all equal)
              accuracy      when every target row gets the label of its nearest chosen row;
                            balanced: mean over classes; minority: mean over minority classes
              ±             standard deviation over seeds, for methods that draw at random

            what is written to OUT:
              comparison.parquet, .csv    one line per method and seed
              comparison.json             the same with options, versions, and what was skipped
              comparison.png, .svg, .html the plot
            """),
    )
    add_pool(parser)
    parser.add_argument("-k", type=int, required=True, help="how many rows to choose")
    add_output(parser)
    add_settings(parser, CompareOptions)
    parser.set_defaults(typed="", run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.accuracy import LabelsWarning
    from uniproto.comparing.compare import compare

    spec, own = SelectSpec.of(vars(options)), made_of(CompareOptions, vars(options))
    require_free(spec, "comparison")
    problem = problem_of(spec).with_k(spec.k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelsWarning)  # they stand under the table
        comparison = compare(
            problem,
            problem.k,
            labels=spec.labels,
            minority=own.minority,
            methods=own.methods,
            seeds=own.seeds,
            progress=False if own.quiet else None,
        )
    save_and_show(comparison, spec, options.typed)


def require_free(spec: SelectSpec, name: str) -> None:
    """Refuse, before the work, an output folder that results of this name cannot go to."""
    from uniproto.comparing.results import require_results_folder

    if spec.output:
        refuse_inputs_inside(Path(spec.output), input_paths(spec))
        require_results_folder(Path(spec.output), name)


def save_and_show(found: Any, spec: SelectSpec, typed: str) -> None:
    """Write the results to the output folder, if there is one, and print their table."""
    if spec.output:
        found.save(spec.output, command=typed)
    if not spec.quiet:
        found.table()
        if spec.output:
            print(f"\nwritten to {printable(spec.output)}")
