"""SST-2, CB and MultiRC with 8 of every 32 examples: every method, and all data.

SmolLM2-135M is tuned for 512 steps on 3,000 random examples of each task (CB: all 250) and judged
on the whole validation split, by which label word it finds likeliest. The tasks have no sources,
so every method chooses from the whole pool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line, name_parts, run_name
from support.statistics import by
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

TITLE = "SST-2, CB and MultiRC: accuracy after tuning on chosen mini-batches"

TRAINS = True

# Fixed beforehand: all seeds of the first methods come before the others.
FIRST_METHODS = ("uniproto", "colm", "random", "full")
OTHER_METHODS = ("kmedoids", "gradnorm", "maxloss", "greats", "sbert")
EXAMPLES: dict[str, int | None] = {"sst2": 3000, "multirc": 3000, "cb": None}
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS = 512, 2


def parts(setup: Setup) -> list[str]:
    """The names of all runs, in the order they are worth running."""
    if setup.quick:
        return [run_name("sst2", method, 0) for method in ("uniproto", "random", "full")]
    return [
        run_name(task, method, seed)
        for methods in (FIRST_METHODS, OTHER_METHODS)
        for seed in setup.training.seeds or SEEDS
        for task in EXAMPLES
        for method in methods
    ]


PARTS = parts(Setup(None, Path()))


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, publish their results."""
    names = setup.parts(parts(setup))
    rows = [row for name in names for row in _run_part(setup, name)]
    if setup.waits_for_others(names):
        return
    publish_joined(setup, "superglue", rows, table, _chart)


def _run_part(setup: Setup, name: str) -> list[dict[str, Any]]:
    """Tune, then judge; what was done before is read."""
    from support.finetuning import run_study
    from uniproto.lm.judging import evaluate
    from uniproto.lm.judging.evaluation import SCORES

    task, method, seed = name_parts(name)
    judged_in = setup.out / "judged" / name
    if setup.finished_only and not (judged_in / SCORES).exists():
        return []
    data = _tiny_reviews(setup.out) if setup.quick else setup.data
    settings = _settings(setup, task, method, int(seed), data)
    (last, *_) = reversed(run_study(replace(setup, part=None, progress=False), {name: settings}))
    judged = evaluate(
        setup.out / "runs" / name,
        suite=task,
        data=data or "",
        out=judged_in,
        allow_partial=setup.quick,
        device=settings.device,
        bf16=settings.bf16,
        batch_size=64,
        progress=setup.progress,
        log=lambda _: None,
    )
    found = {"task": task, "method": method, "seed": int(seed), "log_perplexity": last["overall"]}
    return [
        {"run": name} | found | {"measure": measure, "value": value}
        for measure, value in judged.scores[task].items()
        if isinstance(value, float)
        and measure not in ("error", "low", "high")  # seeds tell the spread
    ]


def _settings(setup: Setup, task: str, method: str, seed: int, data: Path | None) -> Any:
    from support.finetuning import algorithm_of, math_settings, quick_settings

    if setup.quick:
        base = quick_settings(setup, QUICK_STEPS)
    else:
        base = replace(math_settings(setup, STEPS), pool=32, keep=8, max_length=512)
    return replace(
        base,
        data=str(_tuning_file(setup, task, seed, data)),
        method=algorithm_of(method),
        plan=(setup.training.plan or base.plan) if method == "uniproto" else base.plan,
        mode="batch",
        source=None,
        seed=seed,
        eval_steps=base.steps,
    )


def _tuning_file(setup: Setup, task: str, seed: int, data: Path | None) -> Path:
    """The examples to tune on, drawn by the seed: the same for every method."""
    from uniproto.lm.judging import superglue_rows

    rows = superglue_rows(
        task,
        "train",
        data or "",
        examples=None if setup.quick else EXAMPLES[task],
        seed=seed,
        allow_partial=setup.quick,
    )
    setup.out.mkdir(parents=True, exist_ok=True)
    path = setup.out / f"{task}-{seed}.jsonl"
    partial = path.with_suffix(f".{id(rows)}.partial")  # several parts may write it at once
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(path)
    return path


def _tiny_reviews(out: Path) -> Path:
    """Files in SST-2's format with a few made reviews, for quick runs."""
    folder = out / "data" / "SST-2"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train.tsv", 40), ("dev.tsv", 8)):
        lines = [f"a {'fine' if n % 2 else 'dull'} film , {n}\t{n % 2}" for n in range(count)]
        (folder / name).write_text("sentence\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return folder.parent


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Every measure in per cent: means over the seeds ± their spread."""
    columns = list(dict.fromkeys((row["task"], row["measure"]) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    shown: dict[str, list[str]] = {"method": methods}
    for task, measure in columns:
        cells = []
        for method in methods:
            values = [
                100 * row["value"]
                for row in rows
                if (row["task"], row["measure"], row["method"]) == (task, measure, method)
            ]
            mean, spread = mean_and_spread(values)
            shown_mean = "–" if mean is None else f"{mean:.1f}"
            cells.append(shown_mean + (" " * 6 if spread is None else f" ± {spread:.1f}".ljust(6)))
        shown[f"{task} {measure}"] = cells
    return aligned(shown)


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from uniproto.report.charts import BLUE, GREY, loose_scale, small_multiples, styled

    methods = list(dict.fromkeys(row["method"] for row in rows))
    panels = [
        dots_and_means(
            [dict(row) for row in found],
            x=alt.X("value:Q", title=measure, axis=alt.Axis(format="%"), scale=loose_scale(alt)),
            y=alt.Y("method:N", title=None, sort=methods, axis=alt.Axis(ticks=False)),
            series="method",
            colours={name: BLUE if name == "uniproto" else GREY for name in methods},
            title=task,
        )
        for (task, measure), found in by(rows, "task", "measure").items()
    ]
    return styled(
        small_multiples(panels, columns=2),
        "Tuned on chosen mini-batches, judged on the validation split",
        "circles: seeds, diamonds: their mean",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
