"""`uniproto curate`: training data for a task, chosen from a large pool by a small target."""

from __future__ import annotations

import argparse
import json
import shlex
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.embed import embedding_notes
from uniproto.cli.inputs import distance_of, features_of, input_paths, method_of, question
from uniproto.cli.parser import add_output, add_settings
from uniproto.cli.report import ReportSpec, make_report
from uniproto.cli.select import CHOSEN, EXCLUDED, free_name, json_rows
from uniproto.cli.spec import OWN, SOURCE, CurateSpec
from uniproto.errors import printable
from uniproto.runs.publish import refuse_inputs_inside
from uniproto.runtime.settings import made_of

if TYPE_CHECKING:
    from uniproto.data.tables import Input
    from uniproto.features.files import Items
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

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
                  --at-most 'source:*=500' --benchmarks benchmark.jsonl -o out

            POOL and TARGET: .jsonl(.zst), .parquet, .csv, a data set that 'datasets' has saved,
            or owner/name:split of the Hugging Face hub. Vectors are cached: the same command
            resumes after a kill, and another K or limit takes seconds.

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
    add_settings(parser, CurateSpec, required=("target",))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    from uniproto.data.examples import is_plain_text
    from uniproto.data.tables import require_column
    from uniproto.lm.curation.curate import curate
    from uniproto.lm.curation.rows import read_rows
    from uniproto.selection.storage import require_result_folder, save_selection

    asked = made_of(CurateSpec, vars(options))
    if asked.adapter:
        asked = replace(asked, adapter=str(Path(asked.adapter).expanduser().resolve()))
    spec = asked.select_spec()
    spec.check()
    method, output = method_of(spec), Path(asked.output)
    refuse_inputs_inside(output, input_paths(spec))
    require_result_folder(output, [CHOSEN, EXCLUDED])
    features, arguments = features_of(spec), question(spec)
    pool = read_rows(Path(asked.pool), "pool", features)
    items = features.items(pool)
    of_gradients = (
        asked.gradients or asked.layer or asked.adapter or asked.width != CurateSpec.width
    )
    if spec.gradients and not of_gradients and is_plain_text(items.columns):
        features = features_of(replace(spec, gradients=None, hidden=True))
    if asked.source not in (None, SOURCE):
        require_column(items.table, asked.source, "--source", pool.name)
    near = None
    if asked.exclude_near is not None:
        path, distance = asked.exclude_near
        near = Path(path), distance_of(distance)
    selection = curate(
        pool,
        Path(asked.target),
        asked.k,
        features=features,
        benchmarks=[Path(path) for path in asked.benchmarks or ()],
        decontaminate=asked.decontaminate,
        exclude_near=near,
        method=method,
        progress=False if asked.quiet else None,
        **{name: arguments[name] for name in ("limits", "min_distance", "compute", "seed")},
    )
    problem = selection._problem
    assert problem is not None
    pool, target = problem.given.inputs
    chosen = pool.table.take(selection.indices)
    rows = json_rows(chosen)
    save_selection(
        selection,
        output,
        record={"command": {name: value for name, value in vars(asked).items() if name in OWN}},
        files={CHOSEN: chosen_lines(rows, selection, problem)},
    )
    if not asked.no_page:
        title = f"{pool.name.name} for {target.name.name}"
        make_report(ReportSpec(folder=str(output), title=title, quiet=True))
    if not asked.quiet:
        _print_summary(asked, problem, selection, output)
        if command := finetune_command(asked, pool.items, rows, output, target):
            print("\nTo train on rows of the target as well, give finetune --mix FILE with others")
            name = ", with the model's name at the end" if command.endswith("--model") else ""
            print(f"than it validates on. Train on it{name}:\n  {command}")


def chosen_lines(rows: list[dict[str, Any]], selection: Selection, problem: Problem) -> str:
    """The chosen rows as JSON lines: their own columns, rank, what each serves, and its cost."""
    from uniproto.report.targets import arc_costs

    plan = selection.plan.sorted_indices()
    costs = arc_costs(problem, selection.indices, plan)
    lines = []
    for place, row in enumerate(rows):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        masses, arcs = plan.data[part], costs[part]
        added = {
            "rank": place + 1,
            "serves": plan.indices[part].tolist(),
            "cost": round(float(masses @ arcs / masses.sum()), 6),
        }
        named = {free_name(name, row): value for name, value in added.items()}
        lines.append(json.dumps({**row, **named}, ensure_ascii=False, default=str))
    return "".join(f"{line}\n" for line in lines)


def _print_summary(asked: CurateSpec, problem: Problem, selection: Selection, output: Path) -> None:
    print(selection.summary())
    inputs = problem.given.inputs
    if inputs[0].items.kind == "language":
        is_hidden = inputs[0].items.language.kind == "hidden"
        how = "hidden states of the model" if is_hidden else "gradients of the model"
        columns = ", ".join(inputs[0].feature_columns)
        print(f"  compared by             {how}, of {printable(columns)}")
    for path, near in problem.near:
        if not len(near):
            continue
        how = "that repeat" if near.rules else "near"
        print(
            f"  dropped                 {len(near):,} rows {how} {printable(path)}, in {EXCLUDED}"
        )
    for data in inputs:
        for line in embedding_notes(data.embedded):
            print(f"  {printable(data.name.name)}: {printable(line)}")
    for line in _composition(asked, inputs[0], selection):
        print(f"  {printable(line)}")
    print(f"  written to              {printable(output)}")


def _composition(asked: CurateSpec, pool: Input, selection: Selection) -> list[str]:
    """How many rows each source gives, the largest first."""
    from collections import Counter

    table = pool.table
    if table is None or asked.source not in pool.names:
        return []
    counts = table.column(asked.source).value_counts().to_pylist()
    every = Counter({each["values"]: each["counts"] for each in counts})
    chosen = Counter(table.take(selection.indices).column(asked.source).to_pylist())
    lines = [f"{asked.source}: chosen of the rows there are"]
    for name, count in chosen.most_common(_MOST_SOURCES):
        lines.append(f"  {count:>7,} of {every[name]:<9,} {name}")
    others = len(every) - min(len(chosen), _MOST_SOURCES)
    return [*lines, f"  and {others} other sources"] if others else lines


def finetune_command(
    asked: CurateSpec,
    items: Items,
    rows: list[dict[str, Any]],
    output: Path,
    target: Input,
) -> str | None:
    """The command that trains on the chosen rows as they were compared; none without answers.

    Where no language model has compared them, it ends with --model, for the reader to go on.
    """
    from uniproto.data.examples import FURTHER, usual_columns
    from uniproto.lm.finetune.settings import FinetuneSettings as Usual

    talks = len(items.columns) == 1 and isinstance(rows[0][items.columns[0]], list)
    if not talks and len(items.columns) != 2 and FURTHER not in items.columns[1:2]:
        return None
    longest, model = asked.max_length, ""
    if items.kind == "language":
        from uniproto.lm.features.language_features import tokens_read

        model = str(asked.model)
        longest = tokens_read(model, longest)
    words = ["uniproto", "finetune", *(["--model", model] if model else [])]
    words += ["--data", str(output / CHOSEN), "--method", "full"]
    if usual_columns(list(rows[0])) != items.columns:
        names = ("--messages",) if talks else ("--prompt", "--answer")
        ends = (items.columns[0], items.columns[-1])
        words += [word for pair in zip(names, ends, strict=False) for word in pair]
    template = asked.template or Usual.template
    words += [] if talks or template == Usual.template else ["--template", template]
    words += [] if longest == Usual.max_length else ["--max-length", str(longest)]
    words += ["--bf16"] if asked.bf16 and items.kind == "language" else []
    if asked.source is None or any(row.get(asked.source) is None for row in rows):
        words += ["--no-source"]  # finetune needs it in every row
    elif asked.source != Usual.source:
        words += ["--source", asked.source]
    size = str(max(1, min(_BATCH, asked.k // 8)))
    words += ["--pool", size, "--keep", size, "--epochs", "3"]
    validates = target.items.columns == items.columns
    words += ["--validation-data", str(target.name)] if validates else []
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
