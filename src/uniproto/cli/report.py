"""`uniproto report`: a page about a saved result, for people."""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import recorded_command
from uniproto.cli.parser import add_settings
from uniproto.cli.recorded_inputs import add_result, read_result
from uniproto.cli.select import EXCLUDED
from uniproto.cli.spec import options_of
from uniproto.errors import InputFileError, printable
from uniproto.problem.values import TargetSample
from uniproto.report import PAGE, write_report
from uniproto.runs.publish import place_of
from uniproto.runtime.settings import made_of, setting
from uniproto.selection.selection import Selection

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.report.content import Excluded

_COMPARISON = "comparison.json"
_MOST_EXCLUDED = 50  # rules, and rows of each, on the page
_LONGEST = 300  # characters of a value there


_common = partial(setting, common=True)


@dataclass(frozen=True)
class ReportSpec:
    """What `uniproto report` was asked."""

    folder: str = ""
    output: str | None = _common(
        None, f"the page to write (default: OUT/{PAGE})", flags=["-o"], metavar="FILE"
    )
    labels: str | None = _common(
        None, "column (or array of an .npz file) of classes", metavar="COLUMN"
    )
    text: str | None = _common(None, "show the texts of this column", metavar="COLUMN")
    images: str | None = _common(
        None,
        "show pictures: a column (or array of an .npz file) of pictures or paths, or a folder "
        "with the files that the table or the ids name, or with one file per row",
        metavar="COLUMN_OR_FOLDER",
    )
    positions: str | None = _common(
        None,
        "coordinates of the map: a column of pairs, or two columns X,Y (default: the table's only "
        "column of pairs, or principal components)",
        metavar="COLUMN",
    )
    title: str | None = _common(None, "title of the page (default: the name of the input file)")
    random: int | None = _common(
        None, "compare with N random choices (default: 5, or fewer if they take long)"
    )
    open: bool = _common(False, "open the page in the browser")
    quiet: bool = _common(False, "print nothing")
    moved: tuple[str, ...] | None = None  # where input files are now


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write an HTML report about a saved selection",
        description=textwrap.dedent("""\
            Write an HTML report about a saved selection: how good it is, a map, every prototype
            with the examples it represents, coverage of classes, the worst-covered examples. It is
            one file, which opens from disk and loads nothing from the network."""),
        epilog=textwrap.dedent("""\
            examples:
              uniproto report out --open
              uniproto report out --labels class --text review
              uniproto report out --images photos/ -o page.html

            You need not repeat options of 'uniproto select' (--labels, --text, --images, --groups,
            --id). Results of 'uniproto compare -o out' and 'uniproto certify out' are shown, too.
            """),
    )
    add_result(parser)
    add_settings(parser, ReportSpec)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    make_report(made_of(ReportSpec, vars(options)))


def make_report(spec: ReportSpec) -> None:
    """Write a page about a saved result."""
    from uniproto.report.inputs import examples_of
    from uniproto.selection.storage import load_manifest

    folder = Path(spec.folder)
    manifest, certifier, made = load_manifest(folder), None, ""
    problem: Problem | None = None
    known = {name: getattr(spec, name) for name in ("labels", "text", "images", "positions")}
    if "inputs" in manifest or any(known.values()):
        remedy = "Run 'uniproto select', or call selection.report() in Python."
        _, selection, problem, call = read_result(folder, spec.moved, remedy=remedy)
        made = _made_by(manifest, call, problem, spec.folder)
        title = spec.title or problem.given.inputs[0].name.name
        certifier = "'uniproto certify OUT'"
    else:  # saved from Python: the page only shows what the folder holds
        selection = Selection.load(folder)
        title = spec.title or folder.resolve().name
    sources = manifest.get("command", {}).get("source")
    source, target = examples_of(selection, problem, known, sources)
    path = write_report(
        selection,
        spec.output or folder / PAGE,
        source,
        target,
        problem=problem,
        title=title,
        commands=_commands(made, spec),
        random=spec.random,
        comparison=_comparison(folder, selection),
        certifier=certifier,
        excluded=_excluded(place_of(folder, EXCLUDED, EXCLUDED)),
        **_nouns(manifest),
    )
    if not spec.quiet:
        print(f"{printable(path)} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")
    if spec.open:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def _nouns(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the page of a curation calls its rows and their labels."""
    is_curation = "keep_duplicates" in manifest.get("command", {})
    return {"noun": "chosen row", "kind": "source"} if is_curation else {}


def _excluded(path: Path) -> list[Excluded]:
    """What a table of excluded rows says, the rule of most rows first."""
    from uniproto.report.content import Excluded

    if not path.is_file():
        return []
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, restval=""))
    except (OSError, ValueError, csv.Error) as error:
        raise InputFileError(
            f"{path}: the file must be a table of excluded rows. It could not be read ({error}). "
            "Remove it, or run the selection again."
        ) from error
    for row in rows:
        rule, name, *shown = (
            str(row.get(column) or "")[:_LONGEST]
            for column in ("rule", "file", "row", "matched_row", "matched_words")
        )
        counts[rule, name] += 1
        examples = found.setdefault((rule, name), [])
        if len(examples) < _MOST_EXCLUDED:
            examples.append((shown[0], shown[1], shown[2]))
    return [
        Excluded(rule, name, count, found[rule, name])
        for (rule, name), count in counts.most_common(_MOST_EXCLUDED)
    ]


def _comparison(folder: Path, selection: Selection) -> dict[str, Any] | None:
    """What `uniproto compare` left in the folder, if it is about the same inputs."""
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
    same = about == (
        selection.k,
        selection.details.shape,
        selection.details.metric,
        selection.details.bandwidth,
    )
    return record if same else None


def _commands(made: str, spec: ReportSpec) -> list[tuple[str, str]]:
    """What made the selection, and the page."""
    plain = replace(spec, open=False, quiet=False)
    page = shlex.join(["uniproto", "report", spec.folder, *options_of(plain)])
    return [*([("The selection", made)] if made else []), ("This page", page)]


def _made_by(
    manifest: Mapping[str, Any], call: Mapping[str, Any], problem: Problem, folder: str
) -> str:
    """The command that makes the selection from the files that were read, or the call in Python."""
    paths = [_from_here(each.name) for each in problem.given.inputs]
    target = call.get("target")
    if isinstance(target, TargetSample):
        target = replace(target, of=target.of and paths[-1])
    elif target is not None:
        target = paths[-1]
    call = {**call, "source": paths[0], "target": target}
    words = recorded_command(call, manifest, folder)
    if words is not None:
        return shlex.join(words)
    return f"uniproto.select({', '.join(f'{name}={call[name]!r}' for name in call)})"


def _from_here(path: Path) -> str:
    here, path = Path.cwd(), path.resolve()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
