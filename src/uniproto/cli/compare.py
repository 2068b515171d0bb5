"""`uniproto compare`: several methods on the same files, side by side."""

from __future__ import annotations

import argparse
import textwrap
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import Inputs, input_paths, read_inputs
from uniproto.cli.options import ProblemOptions, add_settings
from uniproto.cli.parser import add_output, add_pool, names
from uniproto.cli.parser import seeds as as_seeds
from uniproto.errors import (
    invalid,
    printable,
    require_name,
)
from uniproto.runtime.settings import setting, setting_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class CompareOptions(ProblemOptions):
    """The options of `uniproto compare`."""

    methods: list[str] | None = setting(
        None,
        "as 'uniproto select --method' takes them (all that can answer)",
        common=True,
        metavar="A,B,C",
        parse=names,
    )
    labels: str | None = setting_of(
        ProblemOptions,
        "labels",
        help="classes of POOL's and the target's rows, to judge choices by",
        common=True,
    )
    seeds: int | list[int] = setting(
        5,
        "how many seeds methods that draw at random run with, or a list such as 3,7 (5)",
        common=True,
        metavar="SEEDS",
        parse=as_seeds,
    )
    minority: list[str] | None = setting(
        None,
        "with --labels: the minority classes (those below half the mean class size)",
        group="columns",
        metavar="A,B",
        parse=names,
    )
    quiet: bool = setting(False, "no progress bar and no table", common=True)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
        usage="uniproto compare POOL -k K [options]",
        help="run several methods on the same problem and set them side by side",
        description="Let several methods choose K rows of POOL for the same target, and show what "
        "each costs: the exact optimal-transport cost with equal weights, time, memory and how "
        "unequal the weights are that it learned. With --labels, also how well the rows chosen "
        "classify the target.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto compare vectors.npy -k 100
              uniproto compare pool.parquet -k 100 --target wanted.parquet --labels class -o out
              uniproto compare pool.csv -k 50 --methods uniproto,kmedoids,random --seeds 10 -o out
              uniproto compare pool.csv -k 50 --labels class --minority rare,odd
              uniproto compare people.csv -k 50 --features age,income --metric l1

            how to read the table:
              cost          lower is better; * marks the lowest
              seconds       to pick alone; reading, costs and accuracies are not counted
              memory        the most that picking took beyond what was held before
              weight ratio  largest weight the method learned over the smallest (1: all equal)
              entropy       of those weights, over that of equal ones (1: all equal)
              accuracy      of giving every target row the label of its nearest chosen row;
                            balanced: the mean over classes; minority: over minority classes
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
    add_settings(parser, CompareOptions, defaults=True)
    parser.set_defaults(run=run, seed=0)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.accuracy import LabelsWarning
    from uniproto.comparing.compare import compare
    from uniproto.comparing.results import require_results_folder
    from uniproto.runs.publish import refuse_inputs_inside

    if options.output:
        refuse_inputs_inside(Path(options.output), input_paths(options))
        require_results_folder(Path(options.output), "comparison")
    inputs = read_inputs(options)
    labels, target_labels = _labels(inputs, options)
    machine = {"memory": options.memory, "device": options.device, "neighbours": options.lists}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelsWarning)  # they stand under the table
        comparison = compare(
            inputs.problem(**machine),
            options.k,
            labels=labels if target_labels is None else (labels, target_labels),
            minority=_classes(options.minority, labels, target_labels),
            methods=options.methods,
            seeds=options.seeds,
            progress=False if options.quiet else None,
        )
    if options.output:
        comparison.save(options.output)
    if not options.quiet:
        comparison.table()
        if options.output:
            print(f"\nwritten to {printable(options.output)}")


def _labels(
    inputs: Inputs, options: argparse.Namespace
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    if options.labels is None:
        return None, None
    target = inputs.target
    return (
        inputs.pool.column(options.labels, "--labels"),
        None if target is None else target.column(options.labels, "--labels"),
    )


def _classes(
    named: list[str] | None, labels: NDArray[Any] | None, target_labels: NDArray[Any] | None
) -> list[Hashable] | None:
    """Classes as the files hold them, from the texts of the command line."""
    if named is None:
        return None
    if labels is None:
        raise invalid("--minority", "needs --labels", ",".join(named), "Name the column.")
    aim = labels if target_labels is None else target_labels
    known = {str(label): label for label in aim.tolist()}
    for name in named:
        require_name("--minority", name, known)
    return [known[name] for name in named]
