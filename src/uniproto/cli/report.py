"""`uniproto report`: a page about a saved result, for people."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.recorded_inputs import add_moved, recorded_inputs, require_same_problem
from uniproto.cli.report_examples import examples_of
from uniproto.errors import InputFileError, printable
from uniproto.report import PAGE
from uniproto.runtime.settings import described

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.report.examples import Examples
    from uniproto.selection.selection import Selection

_COMPARISON = "comparison.json"


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make a page to look at from a saved selection",
        description=textwrap.dedent("""\
            Write one HTML file about a saved selection: the verdict, a map, every prototype with
            the examples it represents, coverage of classes, the worst-covered examples, costs.
            The file needs nothing else: it opens from disk, and nothing is ever fetched."""),
        epilog=textwrap.dedent("""\
            examples:
              uniproto report out --open
              uniproto report out --labels class --text review
              uniproto report out --images photos/ -o page.html

            The options of 'uniproto select' (--labels, --text, --images, --groups, --id) are known
            already. A comparison that 'uniproto compare -o out' left there is shown too, and so
            is the bound of 'uniproto certify out'.
            """),
    )
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    parser.add_argument(
        "-o", "--out", dest="output", metavar="FILE", help=f"the page to write (OUT/{PAGE})"
    )
    parser.add_argument(
        "--labels",
        metavar="COLUMN",
        help="the classes: a column (of an .npz file: an array of it)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--text", metavar="COLUMN", help="show this column's text")
    shown.add_argument(
        "--images",
        metavar="COLUMN_OR_FOLDER",
        help="show pictures: a column of paths or of pictures, or a folder with the files that the "
        "table or the ids name, or with one file per row (of an .npz file: an array of it)",
    )
    parser.add_argument(
        "--map",
        metavar="COLUMN",
        help="the map's coordinates: a column of pairs, or two columns as X,Y (principal "
        "components, unless the table has one column of pairs)",
    )
    parser.add_argument("--title", help="what the page is about (the name of the input file)")
    parser.add_argument(
        "--random",
        type=_count,
        metavar="N",
        help="compare with N random choices (5, as far as half a minute allows)",
    )
    add_moved(parser)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--quiet", action="store_true", help="say nothing")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.report import write_report
    from uniproto.selection.selection import Selection
    from uniproto.selection.storage import load_manifest

    folder = Path(options.folder)
    manifest, selection = load_manifest(folder), Selection.load(folder)
    problem: Problem | None = None
    certifier = None
    if "inputs" in manifest or _asks_for_columns(options):
        remedy = "Run 'uniproto select', or call selection.report() in Python."
        inputs = recorded_inputs(folder, manifest, options.moved, remedy=remedy)
        problem = inputs.problem()
        require_same_problem(folder, selection, problem)
        source, target = examples_of(inputs, manifest, options)
        title = options.title or inputs.pool.path.name
        certifier = "'uniproto certify OUT'"
    else:  # saved from Python: the page only shows what the folder holds
        source, target = _nothing_known(selection)
        title = options.title or folder.resolve().name
    path = write_report(
        selection,
        options.output or folder / PAGE,
        source,
        target,
        problem=problem,
        title=title,
        commands=_commands(manifest, options),
        random=options.random,
        comparison=_comparison(folder, selection),
        certifier=certifier,
    )
    if not options.quiet:
        print(f"{printable(path)} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    if options.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _nothing_known(selection: Selection) -> tuple[Examples, Examples]:
    from uniproto.report.examples import Examples

    m, n = selection.shape
    return Examples(m), Examples(n)


def _asks_for_columns(options: argparse.Namespace) -> bool:
    return any((options.labels, options.text, options.images, options.map))


def _comparison(folder: Path, selection: Selection) -> dict[str, Any] | None:
    """What `uniproto compare` left in the folder, if it is about the same inputs."""
    from uniproto.runs.publish import place_of

    path = place_of(folder, _COMPARISON, _COMPARISON)
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        about = (record["k"], tuple(record["shape"]), record["metric"], record.get("bandwidth"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputFileError(
            f"{path}: the file must hold a comparison. It could not be read ({error}). Remove it, "
            "or run 'uniproto compare' again."
        ) from error
    same = about == (selection.k, selection.shape, selection.metric, selection.bandwidth)
    return record if same else None


def _commands(manifest: Mapping[str, Any], options: argparse.Namespace) -> list[tuple[str, str]]:
    found = []
    if recorded := manifest.get("arguments"):
        command, unsaid = _command_of(recorded)
        words = ["uniproto", command, str(recorded.get("pool"))]
        for name, value in recorded.items():
            # 0 equals False, and yet --distinct 0 is not the default.
            usual = value is None or (type(value), value) == (
                type(unsaid.get(name)),
                unsaid.get(name),
            )
            if name in ("pool", "output", "near_rows") or (usual and name != "k"):
                continue
            flag = "-k" if name == "k" else f"--{name.replace('_', '-')}"
            if name == "exclude_near":
                words += [flag, *map(str, value)]
                continue
            for given in value if isinstance(value, list) else [value]:
                words += [flag] if given is True else [flag, str(given)]
        found.append(("The selection", shlex.join([*words, "-o", str(recorded.get("output"))])))
    words = ["uniproto", "report", options.folder]
    if options.output is not None:
        words += ["-o", options.output]
    for name in ("labels", "text", "images", "map", "title", "random"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}", str(value)]
    return [*found, ("This page", shlex.join(words))]


def _command_of(recorded: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The command that wrote a record, and its options where nobody says anything."""
    from uniproto.cli.options import CurateOptions
    from uniproto.cli.select import default_options

    usual = default_options()
    if "keep_duplicates" not in recorded:
        return "select", usual
    own = {each.name: each.default for each in described(CurateOptions)}
    distinct = not recorded["keep_duplicates"]
    return "curate", {**usual, **own, "gradients": "value", "distinct": distinct}


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return number
