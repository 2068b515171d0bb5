"""The options that commands share, declared once: files, columns, conditions, large inputs."""

from __future__ import annotations

import argparse
import glob
from pathlib import Path
from typing import Any

from uniproto.geometry.costs import METRICS
from uniproto.problem.weights import DensityWeights

ENGINES = ("local", "ray")


def add_files(parser: argparse.ArgumentParser, also: str = "") -> None:
    """What to choose from, and what to stand for. `also` says what else POOL may be."""
    parser.add_argument(
        "pool",
        metavar="POOL",
        help="the rows to choose from: .npy, .npz, .parquet, .csv or .jsonl, or many .parquet "
        f"files as a folder or a quoted pattern such as 'pool/*.parquet'{also}",
    )
    parser.add_argument("--target", metavar="FILE", help="what to stand for (default: POOL itself)")


def add_columns(
    parser: argparse.ArgumentParser,
    labels: str,
    ids: str = "a column that names rows; never a feature",
) -> None:
    """What the columns mean. `labels` and `ids` say what the command does with these."""
    data = parser.add_argument_group("what the columns mean")
    data.add_argument(
        "--column",
        metavar="COLUMN",
        help="the list column (or .npz array) of features; without it every column not named by "
        "another option must be numeric",
    )
    data.add_argument("--id", metavar="COLUMN", help=ids)
    data.add_argument("--groups", metavar="COLUMN", help="select inside each group of this column")
    data.add_argument(
        "--weights",
        metavar="COLUMN",
        help="the target's weights (default: equal): a column; or the word balanced, the same "
        "total for every class of --labels; or density, more where targets lie apart, with "
        "options such as density:q=30,alpha=4",
    )
    data.add_argument("--labels", metavar="COLUMN", help=labels)


def add_conditions(group: argparse._ArgumentGroup) -> None:
    """Which rows may be chosen, and how far apart rows are."""
    group.add_argument("--metric", default="cosine", help=f"one of {', '.join(METRICS)} (cosine)")
    group.add_argument(
        "--budgets",
        help="with --groups: proportional, balanced, or label=count,label=count (proportional)",
    )
    group.add_argument("--initial", metavar="ROWS", help="rows already chosen, such as 3,17")
    group.add_argument("--exclude", metavar="ROWS", help="rows never to choose, such as 0,5")
    group.add_argument(
        "--distinct",
        nargs="?",
        const=True,
        default=False,
        type=number,
        metavar="DISTANCE",
        help="never choose near-duplicates: rows at most DISTANCE apart (a hundredth of the median "
        "distance)",
    )


def add_scale(group: argparse._ArgumentGroup) -> None:
    """How much memory, and which processor."""
    group.add_argument("--memory", help="working memory, such as 4GB (a quarter of what is free)")
    group.add_argument("--device", default="auto", help="where lists are built: cpu, cuda (auto)")
    group.add_argument(
        "--lists", default="exact", help="exact, or faiss, which is approximate (exact)"
    )


def add_cluster(group: argparse._ArgumentGroup) -> None:
    """Where the work is done: on this machine, or on Ray."""
    group.add_argument(
        "--engine",
        choices=ENGINES,
        default="local",
        help="local, or ray: every .parquet file of POOL is selected from where it lies, then k "
        "of all their picks are chosen (local)",
    )
    group.add_argument(
        "--address", help="ray: a running Ray, as auto, HOST:PORT or ray://HOST:PORT"
    )
    group.add_argument(
        "--num-cpus",
        type=int,
        metavar="N",
        help="ray: start a local one of this size, and stop it afterwards (all cores)",
    )
    group.add_argument(
        "--per-part",
        type=int,
        metavar="ROWS",
        help="ray: how many rows each file sends to the final selection (k)",
    )


def input_paths(options: argparse.Namespace) -> list[Path]:
    """The files and folders that POOL and --target name; patterns name what they match."""
    found = []
    for text in (options.pool, options.target):
        if text is not None and "://" not in text:
            found += [Path(path) for path in glob.glob(text)] or [Path(text)]
    return found


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, not {text!r} (POOL goes before the options)"
        ) from None


def names(text: str) -> list[str]:
    """A list such as a,b,c.

    >>> names("uniproto, random,")
    ['uniproto', 'random']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def whole_numbers(text: str) -> list[int]:
    """A list such as 10,20,50."""
    try:
        return [int(part) for part in names(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers such as 10,20,50, not {text!r}"
        ) from None


def seeds(text: str) -> int | list[int]:
    """How many seeds, or a list of them."""
    listed = whole_numbers(text)
    return listed[0] if len(listed) == 1 and "," not in text else listed


def recorded(options: argparse.Namespace, weights: Any) -> dict[str, Any]:
    """The options as a manifest keeps them."""
    given = {name: value for name, value in vars(options).items() if name not in ("run", "quiet")}
    if isinstance(weights, DensityWeights):  # whatever defaults become
        given["weights"] = str(weights)
    return given
