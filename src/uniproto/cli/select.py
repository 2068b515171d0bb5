"""`uniproto select`: from files to a folder of results."""

from __future__ import annotations

import argparse
import os
import textwrap
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.errors import OutputError, invalid
from uniproto.geometry.costs import METRICS
from uniproto.methods import METHODS, Method, UniProto, as_method
from uniproto.methods.uniproto import GAINS, PLANS

if TYPE_CHECKING:
    from uniproto.data.tables import InputData
    from uniproto.selection import Selection


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "select",
        help="choose k rows of a file and write them to a folder",
        description="Choose the K rows of POOL that, all counting equally, are closest to the "
        "target in optimal-transport distance.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto select vectors.npy -k 100 -o out
              uniproto select pool.parquet -k 500 --target wanted.parquet --column embedding \\
                  --id doc_id -o out
              uniproto select pool.csv -k 60 --groups source --id row --metric euclidean -o out

            what is written to OUT:
              selection.parquet   rank, index (row of POOL, from 0), gain, mass it stands for
              prototypes.parquet  the chosen rows of POOL, if it is a table
              plan.npz            sparse K x targets: who stands for whom (scipy.sparse.load_npz)
              manifest.json       cost, options, seed, timings, digests of the inputs
            """),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "pool",
        metavar="POOL",
        help="the rows to choose from: .npy, .npz, .parquet, .csv or .jsonl",
    )
    parser.add_argument("-k", type=int, required=True, help="how many rows to choose")
    parser.add_argument(
        "-o", "--output", metavar="OUT", required=True, help="folder to write the result to"
    )
    parser.add_argument("--target", metavar="FILE", help="what to stand for (default: POOL itself)")
    data = parser.add_argument_group("what the columns mean")
    data.add_argument(
        "--column",
        help="the list column (or .npz array) of features; without it every column not named by "
        "another option must be numeric",
    )
    data.add_argument("--id", help="a column that names rows; it appears in every output file")
    data.add_argument("--groups", metavar="COLUMN", help="select inside each group of this column")
    data.add_argument("--weights", metavar="COLUMN", help="the target's weights (default: equal)")
    how = parser.add_argument_group("how to choose")
    how.add_argument("--metric", default="cosine", help=f"one of {', '.join(METRICS)} (cosine)")
    how.add_argument("--method", default="uniproto", help=f"one of {', '.join(METHODS)} (uniproto)")
    how.add_argument("--plan", help=f"uniproto: one of {', '.join(PLANS)} (extend)")
    how.add_argument("--gains", help=f"uniproto: one of {', '.join(GAINS)} (approx)")
    how.add_argument("--reg", type=float, help="uniproto, plan entropic: strength of the entropy")
    how.add_argument(
        "--budgets",
        default="proportional",
        help="with --groups: proportional, balanced, or label=count,label=count (proportional)",
    )
    how.add_argument("--initial", metavar="ROWS", help="rows already chosen, such as 3,17")
    how.add_argument("--exclude", metavar="ROWS", help="rows never to choose, such as 0,5")
    how.add_argument(
        "--distinct",
        nargs="?",
        const=True,
        default=False,
        type=float,
        metavar="DISTANCE",
        help="never choose near-duplicates (rows at most DISTANCE apart)",
    )
    how.add_argument("--seed", type=int, default=0, help="for methods that draw at random (0)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar and no summary")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    import uniproto
    from uniproto.data.tables import read_input

    method = _method(options)
    output = Path(options.output)
    require_writable(output)
    named = [name for name in (options.id, options.groups, options.weights) if name]
    pool = read_input(options.pool, options.column, named)
    target = read_input(options.target, options.column, named) if options.target else None
    aim = target or pool
    selection = uniproto.select(
        pool.features,
        options.k,
        target.features if target else None,
        method=method,
        metric=options.metric,
        target_weights=aim.column(options.weights, "--weights") if options.weights else None,
        groups=pool.column(options.groups, "--groups") if options.groups else None,
        target_groups=target.column(options.groups, "--groups")
        if target and options.groups
        else None,
        budgets=_budgets(options.budgets, pool, options.groups),
        initial=_rows(options.initial, "--initial"),
        exclude=_rows(options.exclude, "--exclude"),
        distinct=options.distinct,
        seed=options.seed,
        progress=False if options.quiet else None,
    )
    write(selection, output, pool, target, options)
    if not options.quiet:
        print(selection.summary())
        print(f"  written to              {output}")


def write(
    selection: Selection,
    output: Path,
    pool: InputData,
    target: InputData | None,
    options: argparse.Namespace,
) -> None:
    """Save the selection with what the files it came from can add."""
    from uniproto.storage import save_selection

    aim = target or pool
    has_target_ids = options.id and aim.table is not None and options.id in aim.table.column_names
    save_selection(
        selection,
        output,
        source_ids=(options.id, pool.column(options.id, "--id")) if options.id else None,
        target_ids=(options.id, aim.column(options.id, "--id")) if has_target_ids else None,
        prototypes=None if pool.table is None else pool.table.take(selection.indices),
        record={
            "inputs": {
                "source": pool.identity(),
                "target": target.identity() if target else None,
            },
            "arguments": {
                name: value for name, value in vars(options).items() if name not in ("run", "quiet")
            },
        },
    )


def require_writable(folder: Path) -> None:
    """Find out that nothing can be written before the work, not after it."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        raise OutputError(
            f"{folder}: the output folder must be writable. {place} is "
            f"{'read-only' if place.is_dir() else 'a file'}. Choose another folder with -o."
        )


def _method(options: argparse.Namespace) -> Method:
    given = {
        name: getattr(options, name)
        for name in ("plan", "gains", "reg")
        if getattr(options, name) is not None
    }
    if not given:
        return as_method(options.method)
    if options.method != "uniproto":
        raise invalid(
            f"--{next(iter(given))}",
            "is an option of --method uniproto",
            f"--method {options.method}",
            "Drop one of the two.",
        )
    return UniProto(**given)


def _budgets(text: str, pool: InputData, groups: str | None) -> str | dict[Hashable, int]:
    if "=" not in text:
        return text
    remedy = "Write it as label=count,label=count."
    if groups is None:
        raise invalid("--budgets", "needs --groups", text, "Name the column of groups.")
    labels = {str(label): label for label in pool.column(groups, "--groups").tolist()}
    budgets: dict[Hashable, int] = {}
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        if not count.strip().isdigit():
            raise invalid("--budgets", "must give each group a whole number", repr(part), remedy)
        budgets[labels.get(label.strip(), label.strip())] = int(count)
    return budgets


def _rows(text: str | None, parameter: str) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise invalid(
            parameter, "must be row numbers", repr(text), "Write them as 3,17,40."
        ) from None
