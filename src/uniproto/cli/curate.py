"""`uniproto curate`: training data for a task, chosen from a large pool by a small target."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.embed import embedding_notes
from uniproto.cli.inputs import Inputs, file_rows, input_paths, read_inputs, recorded
from uniproto.cli.language import example_options
from uniproto.cli.option_values import checked_distance
from uniproto.cli.options import (
    EmbeddingOptions,
    LanguageOptions,
    ProblemOptions,
    SelectOptions,
    add_settings,
)
from uniproto.cli.parser import add_output, number
from uniproto.cli.recorded_inputs import numbered_as_in_files
from uniproto.cli.recorded_paths import places
from uniproto.cli.select import EXCLUDED, chosen_method, default_options, excluded_file
from uniproto.errors import InfeasibleError, InputFileError, invalid, printable
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.runtime.settings import setting, setting_of

if TYPE_CHECKING:
    from uniproto.features.files import Items
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

CHOSEN = "chosen.jsonl"
_CHOICE = "what may be chosen"
_MOST_SOURCES = 12  # in the summary; the page shows all
_TRAINED_POOL = 128  # of finetune, unless there are fewer rows


@dataclass(frozen=True)
class CurateOptions(EmbeddingOptions, LanguageOptions):
    """The options of `uniproto curate`."""

    target: str = setting(
        "", "examples of what you want, in the pool's columns", common=True, metavar="TARGET"
    )
    model: str | None = setting(
        None,
        "the language model you will train, whose gradients compare examples; with --text or "
        "--images a model of those",
        common=True,
        metavar="NAME_OR_PATH",
    )
    hidden: bool = setting_of(LanguageOptions, "hidden", common=True)
    source: str | None = setting(
        "source", "where a row comes from, if there is such a column", common=True, metavar="COLUMN"
    )
    at_most: list[str] | None = setting_of(ProblemOptions, "at_most")
    at_least: list[str] | None = setting_of(ProblemOptions, "at_least")
    budget: list[str] | None = setting_of(ProblemOptions, "budget")
    exclude_near: list[str] | None = setting_of(ProblemOptions, "exclude_near")
    distinct: bool | float = setting(
        True,
        "drop copies: rows at most DISTANCE from a chosen one or from the target (a hundredth of "
        "the median)",
        group=_CHOICE,
        metavar="DISTANCE",
        parse=number,
    )
    keep_duplicates: bool = setting(False, "drop no copies", group=_CHOICE)
    method: str = setting_of(SelectOptions, "method", common=False, group="how to choose")
    polish: bool | float | None = setting_of(
        SelectOptions, "polish", common=False, group="how to choose"
    )
    seed: int = setting_of(SelectOptions, "seed")
    memory: str | None = setting_of(ProblemOptions, "memory")
    device: str = setting("auto", "of the model and of neighbours: cpu, cuda", common=True)
    no_page: bool = setting(False, "write no page", common=True)
    quiet: bool = setting(False, "no progress bar and no summary", common=True)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "curate",
        usage="uniproto curate POOL --target TARGET -k K --model MODEL -o OUT [options]",
        help="choose training data for a task from a large pool",
        description="Choose the K rows of POOL to train on, for the task that the rows of TARGET "
        "show. Rows are compared by the gradients of MODEL.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto curate pool.jsonl --target wanted.jsonl -k 2000 --model ./my-llm -o out
              uniproto curate pool.parquet --target wanted.csv -k 2000 --text prompt,answer -o out
              uniproto curate pool.jsonl --target wanted.jsonl -k 2000 --model ./my-llm \\
                  --at-most 'source:*=500' --exclude-near benchmark.jsonl 0.05 -o out

            POOL and TARGET: .jsonl(.zst), .parquet, .csv, a data set that 'datasets' has saved,
            or owner/name:split of the Hugging Face hub. Vectors are cached: the same command
            goes on after a kill, and another K or limit takes seconds.

            what is written to OUT:
              chosen.jsonl     the chosen rows as POOL has them, with rank, the rows of TARGET
                               each one serves and its cost; 'uniproto finetune' reads it
              excluded.csv     rows that copy TARGET or are near a --exclude-near FILE
              report.html      the page: what was chosen for what, and from which source
              and what 'uniproto select' writes: 'uniproto verify OUT' checks it
            """),
    )
    parser.add_argument("pool", metavar="POOL", help="the examples to choose from")
    parser.add_argument("-k", type=int, required=True, help="how many rows to choose")
    add_output(parser, required=True)
    add_settings(parser, CurateOptions, required=("target",), defaults=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.select import run_method
    from uniproto.selection.storage import require_result_folder, save_selection

    options = _completed(options)
    method = chosen_method(options)
    output = Path(options.output)
    refuse_inputs_inside(output, input_paths(options))
    require_result_folder(output, [CHOSEN, EXCLUDED])
    _require_answerable(options)
    inputs = read_inputs(options)
    problem = inputs.problem(memory=options.memory, device=options.device)
    if not options.keep_duplicates:
        inputs, problem = _without_copies(inputs, problem, options)
    shown = False if options.quiet else None
    problem = problem.with_k(options.k)
    selection = run_method(problem, method, progress=shown)
    given = recorded(options, None, inputs)
    if options.adapter is not None:
        given["adapter"] = str(Path(options.adapter).expanduser().resolve())
    pool = inputs.pool
    assert pool.table is not None
    assert inputs.target is not None
    chosen, (target_rows, _) = pool.table.take(selection.indices), file_rows(inputs.target)
    save_selection(
        numbered_as_in_files(inputs, selection),
        output,
        prototypes=chosen,
        record={
            "inputs": (identities := inputs.identities()),
            "places": places(identities, output),
            "arguments": given,
        },
        files={
            **excluded_file(inputs),
            CHOSEN: chosen_lines(chosen.to_pylist(), selection, problem, target_rows),
        },
    )
    if not options.no_page:
        _write_page(output, options)
    if not options.quiet:
        _print_summary(options, inputs, selection, output)


def _completed(options: argparse.Namespace) -> argparse.Namespace:
    """The options with those of `select` beside them, so that a record of them is one of both."""
    from uniproto.data.hub import local_data
    from uniproto.features.cache import cache_folder

    given = {**default_options(), **vars(options)}
    if given["text"] is None and given["images"] is None and not given["hidden"]:
        given["gradients"] = given["gradients"] or "value"
    if given["keep_duplicates"]:
        given["distinct"] = False
    kept = cache_folder() / "datasets" if given["cache"] is None else Path(given["cache"])
    for name in ("pool", "target"):
        given[name] = local_data(given[name], kept)
    if given["exclude_near"] is not None:
        path, distance = given["exclude_near"]
        given["exclude_near"] = [local_data(path, kept), distance]
    return argparse.Namespace(**given)


def _require_answerable(options: argparse.Namespace) -> None:
    """Refuse, before a model looks at anything, a question that has no answer."""
    from uniproto.features.files import read_items

    if options.exclude_near is not None:
        checked_distance(options.exclude_near[1])
    named = {"language": None, **example_options(options)}
    pool, target = (
        read_items(path, options.text, options.images, **named)
        for path in (options.pool, options.target)
    )
    if pool.columns and not set(pool.columns) <= set(target.table.column_names):
        raise InputFileError(
            f"{target.path}: the target must have the pool's columns {', '.join(pool.columns)}. "
            f"Got {', '.join(target.table.column_names)} instead. Rename its columns, or name "
            "those that both have: --prompt, --answer, --messages or --text."
        )
    if not len(target):
        raise InputFileError(
            f"{target.path}: the target must hold examples of what is wanted. It is empty. Put in "
            "a hundred, or as many as you have."
        )
    if not 1 <= options.k <= len(pool):
        raise invalid(
            "-k", f"must lie between 1 and the {len(pool):,} rows of the pool", options.k,
            "Lower it, or bring more rows.",
        )  # fmt: skip
    _require_limits(pool, options)
    if pool.kind != "images":
        if not options.keep_duplicates:
            _require_different(pool, target, options.k)
        for data in (target, pool):
            _require_embeddable(data, options.on_error)


def _require_limits(pool: Items, options: argparse.Namespace) -> None:
    """Refuse limits of sources that the pool cannot keep."""
    import numpy as np

    from uniproto.cli.limits import limits_of
    from uniproto.data.tables import InputData
    from uniproto.problem.limits import checked_limits

    named = limits_of(options, InputData(pool.path, pool.sha256, None, pool.table))
    if named and (limits := checked_limits(**named, m=len(pool))) is not None:
        limits.require(options.k, np.empty(0, np.intp), np.arange(len(pool)))


def _require_different(pool: Items, target: Items, k: int) -> None:
    """Refuse a k that exact copies leave too few rows for."""
    wanted = set(map(repr, target))
    different = set(map(repr, pool))
    left = len(different - wanted)
    if left < k:
        raise InfeasibleError(
            f"'-k' must not exceed the rows that are no copies of each other or of the target. Got "
            f"k={k} and {left:,} such rows of {len(pool):,} instead. Lower k, bring more rows, or "
            "allow copies: --keep-duplicates."
        )


def _require_embeddable(data: Items, on_error: str) -> None:
    """Refuse rows that no model can look at, and a file with no others."""
    from uniproto.features.embedded import unembeddable
    from uniproto.features.text import what_is_wrong

    what, rows, skipped = "texts", data.texts(), ""
    wrong_with: Callable[[Any], str | None] = what_is_wrong
    if data.language is not None:
        from uniproto.training.example_tokens import NO_ANSWER, what_is_wrong_with

        what, wrong_with, rows, skipped = "examples", what_is_wrong_with, iter(data), NO_ANSWER
    found = [(row, reason) for row, each in enumerate(rows) if (reason := wrong_with(each))]
    unexpected = [(row, reason) for row, reason in found if reason != skipped]
    if len(found) == len(data) or (unexpected and on_error == "fail"):
        raise InputFileError(f"{data.path}: {unembeddable(unexpected or found, what)}")


def _without_copies(
    inputs: Inputs, problem: Problem, options: argparse.Namespace
) -> tuple[Inputs, Problem]:
    """The inputs and the problem without rows that are near to the target's."""
    from uniproto.problem.near import near_targets

    assert problem.twin_distance is not None
    near = near_targets(problem.costs, problem.twin_distance)
    noted = inputs.without(near.rows.tolist()).noting(options.target, near)
    return noted, problem.excluding(near.rows)


def chosen_lines(
    rows: list[dict[str, Any]], selection: Selection, problem: Problem, target_rows: Any
) -> str:
    """The chosen rows as JSON lines: their own columns, rank, what each serves, and its cost."""
    from uniproto.report.targets import arc_costs

    plan = selection.plan
    costs = arc_costs(problem, selection.indices, plan)
    lines = []
    for place, row in enumerate(rows):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        masses, arcs = plan.data[part], costs[part]
        added = {
            "rank": place + 1,
            "serves": target_rows[plan.indices[part]].tolist(),
            "cost": round(float(masses @ arcs / masses.sum()), 6),
        }
        named = {f"{name}_chosen" if name in row else name: value for name, value in added.items()}
        lines.append(json.dumps({**row, **named}, ensure_ascii=False, default=str))
    return "".join(f"{line}\n" for line in lines)


def _write_page(output: Path, options: argparse.Namespace) -> None:
    from uniproto.cli import report

    shown = argparse.Namespace(
        folder=str(output), output=None, labels=None, text=None, images=None, map=None,
        title=f"{Path(options.pool).name} for {Path(options.target).name}",
        random=None, moved=None, open=False, quiet=True,
    )  # fmt: skip
    report.run(shown)


def _print_summary(
    options: argparse.Namespace, inputs: Inputs, selection: Selection, output: Path
) -> None:
    print(selection.summary())
    for path, near in inputs.near:
        print(f"  dropped                 {len(near):,} rows near {printable(path)}, in {EXCLUDED}")
    for data in (inputs.pool, inputs.target):
        for line in embedding_notes(getattr(data, "embedded", None)):
            print(f"  {printable(line)}")
    for line in _composition(options, inputs, selection):
        print(f"  {printable(line)}")
    print(f"  written to              {printable(output)}")
    if command := finetune_command(options, inputs, output):
        print(f"\nTrain on it:\n  {printable(command)}")


def _composition(options: argparse.Namespace, inputs: Inputs, selection: Selection) -> list[str]:
    """How many rows each source gives, the largest first."""
    from collections import Counter

    table = inputs.pool.table
    if options.source is None or table is None or options.source not in table.column_names:
        return []
    every = Counter(table.column(options.source).to_pylist())
    chosen = Counter(table.take(selection.indices).column(options.source).to_pylist())
    lines = [f"{options.source}: chosen of the rows there are"]
    for name, count in chosen.most_common(_MOST_SOURCES):
        lines.append(f"  {count:>7,} of {every[name]:<9,} {name}")
    others = len(every) - min(len(chosen), _MOST_SOURCES)
    return [*lines, f"  and {others} other sources"] if others else lines


def finetune_command(options: argparse.Namespace, inputs: Inputs, output: Path) -> str | None:
    """The command that trains on what was chosen; none where there is no answer to learn."""
    from uniproto.data.columns import is_text

    items = inputs.pool.items  # type: ignore[attr-defined]
    if items.kind == "images":
        return None
    talks = len(items.columns) == 1 and not is_text(items.table.schema.field(items.columns[0]).type)
    if len(items.columns) != 2 and not talks:
        return None
    words = ["uniproto", "finetune", "--model"]
    words += [options.model if items.language is not None else "MODEL"]
    words += ["--data", str(output / CHOSEN), "--method", "full"]
    if talks:
        words += ["--messages", *items.columns]
    else:
        for flag, name, usual in zip(
            ("--prompt", "--answer"), items.columns, ("instruction", "output"), strict=True
        ):
            words += [] if name == usual else [flag, name]
    if options.template is not None and not talks:
        words += ["--template", options.template]
    named = options.source in items.table.column_names
    words += ["--source", options.source] if named and options.source != "source" else []
    words += [] if named else ["--no-source"]
    if options.k < 2 * _TRAINED_POOL:
        size = str(max(1, options.k // 4))
        words += ["--pool", size, "--keep", size]
    return shlex.join([*words, "--out", f"{output}-model"])
