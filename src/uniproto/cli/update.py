"""`uniproto update`: few changes to a saved selection, when its data have changed."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.parser import add_output, add_settings
from uniproto.cli.recorded_inputs import add_result, read_result, recorded_call
from uniproto.cli.spec import SelectSpec
from uniproto.errors import InvalidInputError, printable
from uniproto.problem.problem import Problem
from uniproto.problem.values import Columns, TargetSample, as_columns
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.runtime.settings import made_of, setting, setting_of
from uniproto.selection.call import require_record

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

PAGE_OF_CHANGES = "changes.html"
# What of an earlier call says nothing about new rows.
_NOT_ASKED_AGAIN = ("k", "method", "certify", "include", "exclude", "compute")


@dataclass(frozen=True)
class UpdateOptions:
    """The options of `uniproto update`."""

    changes: int | None = setting(None, "replace at most N of the prototypes of OUT", common=True)
    k: int | None = setting(None, "number of rows (default: as many as in OUT)", common=True)
    seconds: float | None = setting_of(SelectSpec, "seconds")
    certify: bool | float = setting_of(
        SelectSpec,
        "certify",
        help="also prove a lower bound on the cost of any K rows with as few changes",
    )
    quiet: bool = setting_of(SelectSpec, "quiet")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "update",
        usage="uniproto update OUT NEW [--changes N] [-o OUT2] [options]",
        help="change as few prototypes as possible for new data",
        description="Update the saved selection OUT for the rows of NEW: keep all but at most N of "
        "its prototypes, which are found again by their --id or by their values. Without N, as "
        "few as bring the cost to within 1 % of that of a fresh selection are replaced. "
        "Columns, metric and options are those of OUT.",
        epilog=textwrap.dedent(f"""\
            examples:
              uniproto select march.csv -k 30 --id customer -o march
              uniproto drift march april.csv
              uniproto update march april.csv -o april
              uniproto update march april.csv --changes 3 -o april
              uniproto verify april

            OUT2 gets the files of 'uniproto select' and {PAGE_OF_CHANGES}: who stays, who leaves
            and who comes on one map, what fewer or more changes would cost, and the targets that
            were covered badly before.
            """),
    )
    add_result(parser)
    add_new_rows(parser)
    add_output(parser, default="NEW-prototypes")
    add_settings(parser, UpdateOptions)
    parser.set_defaults(typed="", run=run)


def add_new_rows(parser: argparse.ArgumentParser) -> None:
    """The files of the new rows."""
    parser.add_argument("new", metavar="NEW", help="the new rows: a file like the one of OUT")
    parser.add_argument(
        "--target", metavar="FILE", help="what the rows must represent now (default: NEW)"
    )


def run(options: argparse.Namespace) -> None:
    from uniproto.report.update_page import update_page
    from uniproto.selection.found_again import needs_data
    from uniproto.selection.selection import Selection
    from uniproto.selection.storage import load_manifest, require_result_folder, save_selection

    folder = Path(options.folder)
    manifest, earlier = load_manifest(folder), Selection.load(folder)
    asked = asked_again(folder, manifest, earlier, options.new, options.target)
    output = Path(options.output or f"{Path(options.new).stem}-prototypes")
    refuse_inputs_inside(output, [options.new, *([options.target] if options.target else [])])
    require_result_folder(output, [PAGE_OF_CHANGES])
    problem = Problem(**asked)
    if needs_data(earlier, problem):
        remedy = "Run 'uniproto select' with --id, and name the same column now."
        earlier = Selection.load(folder, read_result(folder, options.moved, remedy=remedy).problem)
    own = dict(vars(made_of(UpdateOptions, vars(options))))
    quiet = own.pop("quiet")
    selection = earlier.update(problem, **own, progress=False if quiet else None)
    page = update_page(selection, problem, title=Path(options.new).name, command=options.typed)
    asked = {"changes": own["changes"], "k": own["k"], "target": options.target}
    save_selection(
        selection,
        output,
        record={"command": {"earlier": options.folder, "new": options.new, **asked}},
        files={PAGE_OF_CHANGES: page},
    )
    if not quiet:
        print(selection.summary())
        print(f"  written to              {printable(output)}\n")
        selection.table()


def asked_again(
    folder: Path, manifest: Mapping[str, Any], earlier: Selection, new: str, target: str | None
) -> dict[str, Any]:
    """The arguments of a `Problem` of new files, asked as those of a saved selection were."""
    require_record(folder, manifest, "In Python: Selection.load(folder).update(rows).")
    call = recorded_call(manifest)
    before, features = call.get("target"), call.get("features")
    if (before.of if isinstance(before, TargetSample) else before) is not None and target is None:
        raise InvalidInputError(
            f"must be given: {folder} represents the rows of another file.", parameter="target"
        )
    if (preparation := earlier.details.preparation) is not None:
        asked = as_columns(features)
        features = Columns(
            prepare=preparation, id=asked.id, labels=asked.labels, encoding=asked.encoding
        )
    return {
        **{name: call[name] for name in call if name not in _NOT_ASKED_AGAIN},
        "source": new,
        "target": replace(before, of=target) if isinstance(before, TargetSample) else target,
        "features": features,
        "metric": earlier.details.measure,
    }
