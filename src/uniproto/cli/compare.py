"""`uniproto compare`: several methods on the same files, side by side."""

from __future__ import annotations

import argparse
import textwrap
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli import arguments
from uniproto.cli.feature_columns import add_features
from uniproto.cli.question import Question, read_question
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    UniprotoError,
    invalid,
    require_name,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "compare",
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
              comparison.json             the same with options, versions, and what was left out
              comparison.png, .svg, .html the plot
            """),
    )
    arguments.add_files(parser)
    parser.add_argument("-k", type=int, required=True, help="how many rows to choose")
    parser.add_argument(
        "-o", "--out", dest="output", metavar="OUT", help="folder to write the results to"
    )
    arguments.add_columns(
        parser, labels="classes of POOL's and the target's rows, to judge choices by"
    )
    add_features(parser)
    judged = parser.add_argument_group("what to compare")
    judged.add_argument(
        "--methods",
        type=arguments.names,
        metavar="A,B,C",
        help="names as 'uniproto select --method' takes them, and uniproto+polish (default: all "
        "that can answer)",
    )
    judged.add_argument(
        "--seeds",
        type=arguments.seeds,
        default=5,
        help="how many seeds methods that draw at random run with, or a list such as 3,7 (5)",
    )
    judged.add_argument(
        "--minority",
        type=arguments.names,
        metavar="A,B",
        help="with --labels: the minority classes (those below half the mean class size)",
    )
    arguments.add_conditions(parser.add_argument_group("how to choose"))
    arguments.add_scale(parser.add_argument_group("large inputs"))
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no table")
    parser.set_defaults(run=run, seed=0)


def run(options: argparse.Namespace) -> None:
    from uniproto.comparing.accuracy import LabelsWarning
    from uniproto.comparing.compare import compare
    from uniproto.comparing.results import require_results_folder
    from uniproto.runs.publish import refuse_inputs_inside

    if options.output:
        refuse_inputs_inside(Path(options.output), arguments.input_paths(options))
        require_results_folder(Path(options.output), "comparison")
    question = _read(options)
    labels, target_labels = _labels(question, options)
    machine = {"memory": options.memory, "device": options.device, "lists": options.lists}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelsWarning)  # they stand under the table
        comparison = compare(
            question.problem(**machine),
            options.k,
            labels=labels,
            target_labels=target_labels,
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
            print(f"\nwritten to {options.output}")


def _read(options: argparse.Namespace) -> Question:
    """The question; where the files make no sense for want of the column of labels, say that."""
    from uniproto.data.tables import read_input

    try:
        return read_question(options)
    except InvalidInputError as error:
        for file in (options.pool, options.target) if options.labels else ():
            try:
                read_input(file, options.labels) if file else None
            except InputFileError as missing:
                text = str(missing).replace("'--column'", "'--labels'")
                raise InputFileError(text) from error
            except UniprotoError:
                continue  # it is there, but of course it is no column of features
        raise


def _labels(
    question: Question, options: argparse.Namespace
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    if options.labels is None:
        return None, None
    target = question.target
    return (
        question.pool.column(options.labels, "--labels"),
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
