"""`uniproto curate`: training data for a task, chosen from a large pool by a small target."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import textwrap
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.embed import embedding_notes
from uniproto.cli.input_file import refuse_pictures
from uniproto.cli.inputs import Inputs, file_rows, input_paths, read_inputs, recorded
from uniproto.cli.language import language_features, read_rows, refuse_language_options
from uniproto.cli.option_values import checked_distance, min_distance
from uniproto.cli.options import SOURCE, CurateOptions, add_settings
from uniproto.cli.parser import add_output
from uniproto.cli.recorded_inputs import numbered_as_in_files
from uniproto.cli.recorded_paths import places
from uniproto.cli.select import EXCLUDED, chosen_method, default_options, excluded_file
from uniproto.errors import InputFileError, invalid, printable
from uniproto.runs.publish import refuse_inputs_inside

if TYPE_CHECKING:
    from uniproto.features.files import Items
    from uniproto.methods import Method
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

CHOSEN = "chosen.jsonl"
_BATCH = 32  # of the training that is proposed
_MOST_SOURCES = 12  # in the summary; the page shows all


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "curate",
        usage="uniproto curate POOL --target TARGET -k K --model MODEL -o OUT [options]",
        help="choose training data for a task from a large pool",
        description="Choose the K rows of POOL to train on, for the task that the rows of TARGET "
        "show. Rows are compared by the gradients of MODEL, plain texts by its hidden states.",
        epilog=textwrap.dedent("""\
            examples:
              uniproto curate pool.jsonl --target wanted.jsonl -k 2000 --model ./my-llm -o out
              uniproto curate pool.parquet --target wanted.csv -k 2000 --text prompt,answer -o out
              uniproto curate pool.jsonl --target wanted.jsonl -k 2000 --model ./my-llm \\
                  --at-most 'source:*=500' --decontaminate benchmark.jsonl -o out

            POOL and TARGET: .jsonl(.zst), .parquet, .csv, a data set that 'datasets' has saved,
            or owner/name:split of the Hugging Face hub. Vectors are cached: the same command
            goes on after a kill, and another K or limit takes seconds.

            what is written to OUT:
              chosen.jsonl     the chosen rows as POOL has them, with rank, the rows of TARGET
                               each one serves and its cost; 'uniproto finetune' reads it
              excluded.csv     rows dropped because they repeat TARGET, a benchmark or each other
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
    from uniproto.data.examples import is_plain_text
    from uniproto.select import run_method
    from uniproto.selection.storage import require_result_folder, save_selection

    of_gradients = (options.gradients, options.layer, options.adapter)
    unsaid = not any(of_gradients) and options.width == CurateOptions.width
    options = _completed(options)
    method = chosen_method(options)
    output = Path(options.output)
    refuse_inputs_inside(output, input_paths(options))
    require_result_folder(output, [CHOSEN, EXCLUDED])
    columns, benchmarks = _require_answerable(options, method)
    if unsaid and is_plain_text(columns):
        options.gradients, options.hidden = None, True
    inputs = read_inputs(options)
    problem = inputs.problem(memory=options.memory, device=options.device)
    pool: Items = inputs.pool.items  # type: ignore[attr-defined]
    target: Items = inputs.target.items  # type: ignore[union-attr]
    others = dict(zip(options.decontaminate or (), benchmarks, strict=True))
    if not options.keep_duplicates:
        inputs, problem = _without_copies(inputs, problem, options)
        others = {options.target: target, options.pool: pool, **others}
    inputs, problem = _without_repeated(inputs, problem, pool, others)
    shown = False if options.quiet else None
    problem = problem.with_k(options.k)
    selection = run_method(problem, method, progress=shown)
    given = recorded(options, None, inputs)
    if options.adapter is not None:
        given["adapter"] = str(Path(options.adapter).expanduser().resolve())
    assert inputs.pool.table is not None
    assert inputs.target is not None
    chosen, (target_rows, _) = inputs.pool.table.take(selection.indices), file_rows(inputs.target)
    rows = _as_json(chosen.to_pylist())
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
            CHOSEN: chosen_lines(rows, selection, problem, target_rows),
        },
    )
    if not options.no_page:
        _write_page(output, options)
    if not options.quiet:
        _print_summary(options, inputs, selection, output)
        if command := finetune_command(options, pool, rows, output, target):
            print("\nTo train on rows of the target as well, give finetune --mix FILE with others")
            name = ", with the model's name at the end" if command.endswith("--model") else ""
            print(f"than it validates on. Train on it{name}:\n  {command}")


def _completed(options: argparse.Namespace) -> argparse.Namespace:
    """The options with those of `select` beside them, so that a record of them is one of both."""
    from uniproto.data.hub import local_data
    from uniproto.features.cache import cache_folder

    given = {**default_options(), **vars(options)}
    if given["text"] is None and given["images"] is None and not given["hidden"]:
        given["gradients"] = given["gradients"] or "value"
    if given["keep_duplicates"]:
        if given["distinct"] is not True:
            raise invalid(
                "--distinct", "excludes --keep-duplicates", given["distinct"], "Drop one."
            )
        given["distinct"] = False
    kept = cache_folder() / "datasets" if given["cache"] is None else Path(given["cache"])
    for name in ("pool", "target"):
        given[name] = local_data(given[name], kept)
    if given["decontaminate"] is not None:
        given["decontaminate"] = [local_data(path, kept) for path in given["decontaminate"]]
    if given["exclude_near"] is not None:
        path, distance = given["exclude_near"]
        given["exclude_near"] = [local_data(path, kept), distance]
    return argparse.Namespace(**given)


def _require_answerable(
    options: argparse.Namespace, method: Method
) -> tuple[tuple[str, ...], list[Items]]:
    """The pool's columns, and the benchmarks; refuses what has no answer before a model looks."""
    from uniproto.data.tables import require_column
    from uniproto.lm.curation.curate import usable
    from uniproto.problem.near import require_distance

    if language_features(options) is None:  # these two are for the command that trains
        refuse_language_options(options, but=("template", "max_length"))

    def read(path: str, like: tuple[str, ...] = ()) -> Items:
        if options.images is None:
            refuse_pictures(Path(path))
        return read_rows(options, path, like=like)

    pool = read(options.pool)
    target = read(options.target, pool.columns)
    if not len(target):
        raise InputFileError(
            f"{target.path}: the target must hold examples of what is wanted. It is empty. Put in "
            "a hundred, or as many as you have."
        )
    if not 1 <= options.k <= len(pool):
        raise invalid(
            "-k", f"must lie between 1 and the {len(pool):,} rows of the pool", options.k,
            "Choose another, or bring more rows.",
        )  # fmt: skip
    if options.source not in (None, SOURCE):
        require_column(pool.table, options.source, "--source", pool.path)
    if options.exclude_near is not None:
        path, distance = options.exclude_near
        require_distance(checked_distance(distance), "--exclude-near")
        usable(read(path, pool.columns), options.on_error)
    targets = sum(usable(target, options.on_error))
    known = usable(pool, options.on_error)
    _require_choosable(pool, target, known, targets, options, method)
    return pool.columns, [read(path, pool.columns) for path in options.decontaminate or ()]


def _require_choosable(
    pool: Items,
    target: Items,
    usable: list[bool],
    targets: int,
    options: argparse.Namespace,
    method: Method,
) -> None:
    """Refuse a k and conditions that the rows of the pool cannot meet."""
    import numpy as np

    from uniproto.cli.limits import limits_of
    from uniproto.data.tables import InputData
    from uniproto.features.files import EmbeddedRows
    from uniproto.methods.rehearsal import rehearse, require_enough
    from uniproto.problem.values import Compute

    if pool.kind != "images":
        copies = None if options.keep_duplicates else "--keep-duplicates"
        require_enough(options.k, compress(pool, usable), target, len(pool), copies=copies)
    rows = EmbeddedRows(pool.table, np.flatnonzero(usable))
    limits = limits_of(options, InputData(pool.path, pool.sha256, None, rows))
    rehearse(
        method,
        options.k,
        sum(usable),
        targets,
        limits=limits,
        min_distance=min_distance(options.distinct),
        seed=options.seed,
        compute=Compute(memory=options.memory),
    )


def _without_copies(
    inputs: Inputs, problem: Problem, options: argparse.Namespace
) -> tuple[Inputs, Problem]:
    """The inputs and the problem without rows that are near to the target's."""
    from uniproto.problem.near import near_targets

    assert problem.twin_distance is not None
    assert inputs.target is not None
    near = near_targets(problem.costs, problem.twin_distance)
    noted = inputs.without(near.rows.tolist()).noting(options.target, inputs.target, near)
    return noted, problem.excluding(near.rows)


def _without_repeated(
    inputs: Inputs, problem: Problem, pool: Items, others: dict[str, Items]
) -> tuple[Inputs, Problem]:
    """The inputs and the problem without rows that repeat, in words, those of other files."""
    from uniproto.lm.curation.copies import repeated_in_itself
    from uniproto.lm.curation.overlap import repeated_rows

    if pool.kind == "images":
        return inputs, problem
    numbers, _ = file_rows(inputs.pool)
    for path, data in others.items():
        found = repeated_in_itself(pool) if data is pool else repeated_rows(pool, data)
        found = found.only(numbers)
        if len(found):
            inputs = inputs.without(found.rows.tolist())
            inputs = replace(inputs, near=(*inputs.near, (path, found)))
            problem = problem.excluding(found.rows)
    return inputs, problem


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
        named = {_free_name(name, row): value for name, value in added.items()}
        lines.append(json.dumps({**row, **named}, ensure_ascii=False, default=str))
    return "".join(f"{line}\n" for line in lines)


def _free_name(name: str, row: dict[str, Any]) -> str:
    """The name, lengthened until the row has no such column: who curates again loses nothing.

    >>> _free_name("rank", {"rank": 1, "rank_chosen": 7}), _free_name("cost", {"rank": 1})
    ('rank_chosen_chosen', 'cost')
    """
    while name in row:
        name = f"{name}_chosen"
    return name


def _as_json(value: Any) -> Any:
    """A value without NaN and infinity, which JSON has no words for."""
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):  # the entries of an Arrow map are tuples
        return [_as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    if options.gradients or options.hidden:
        how = "gradients of the model" if options.gradients else "hidden states of the model"
        columns = ", ".join(inputs.pool.feature_columns)
        print(f"  compared by             {how}, of {printable(columns)}")
    for path, near in inputs.near:
        if not len(near):
            continue
        how = "that repeat" if near.why else "near"
        print(
            f"  dropped                 {len(near):,} rows {how} {printable(path)}, in {EXCLUDED}"
        )
    assert inputs.target is not None
    for data in (inputs.pool, inputs.target):
        for line in embedding_notes(getattr(data, "embedded", None)):
            print(f"  {printable(data.path.name)}: {printable(line)}")
    for line in _composition(options, inputs, selection):
        print(f"  {printable(line)}")
    print(f"  written to              {printable(output)}")


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


def finetune_command(
    options: argparse.Namespace,
    items: Items,
    rows: list[dict[str, Any]],
    output: Path,
    target: Items,
) -> str | None:
    """The command that trains on the chosen rows as they were compared; none without answers.

    Where no language model has compared them, it ends with --model, for the reader to go on.
    """
    from uniproto.data.examples import FURTHER, usual_columns
    from uniproto.lm.finetune.settings import FinetuneSettings as Usual

    talks = len(items.columns) == 1 and isinstance(rows[0][items.columns[0]], list)
    if not talks and len(items.columns) != 2 and FURTHER not in items.columns[1:2]:
        return None
    longest, model = options.max_length, None
    if items.kind == "language":
        from uniproto.lm.features.language_features import tokens_read

        longest, model = tokens_read(options.model, longest), options.model
    words = ["uniproto", "finetune", *(["--model", model] if model else [])]
    words += ["--data", str(output / CHOSEN), "--method", "full"]
    if usual_columns(list(rows[0])) != items.columns:
        names = ("--messages",) if talks else ("--prompt", "--answer")
        ends = (items.columns[0], items.columns[-1])
        words += [word for pair in zip(names, ends, strict=False) for word in pair]
    template = options.template or Usual.template
    words += [] if talks or template == Usual.template else ["--template", template]
    words += [] if longest == Usual.max_length else ["--max-length", str(longest)]
    words += ["--bf16"] if options.bf16 and items.kind == "language" else []
    if any(row.get(options.source) is None for row in rows):
        words += ["--no-source"]  # finetune needs it in every row
    elif options.source != Usual.source:
        words += ["--source", options.source]
    size = str(max(1, min(_BATCH, options.k // 8)))
    words += ["--pool", size, "--keep", size, "--epochs", "3"]
    validates = target.columns == items.columns
    words += ["--validation-data", options.target] if validates else []
    words += ["--out", f"{output}-model", *([] if model else ["--model"])]
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    r"""A word for a shell, on one line of a terminal.

    >>> print(_quoted("a b"), _quoted("it's\n"))
    'a b' $'it\'s\n'
    """
    if printable(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{printable(escaped)}'"
