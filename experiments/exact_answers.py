"""Exactly right answers after tuning on chosen mini-batches: the paper's measure, on mathematics.

The runs of the experiment `finetuning` (SmolLM2-135M, 22 sources, 64 of 128 examples, 100 steps)
with UniPROT and CoLM per source, random choices and all data; then 400 questions each of SVAMP,
NumGLUE and DeepMind's Mathematics, which the model before tuning answers, too: a program first,
words where none answers, at most 256 new tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line, name_parts, run_name
from support.statistics import by
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

TITLE = "mathematics answered exactly, after tuning on chosen mini-batches"

TRAINS = True

# Fixed beforehand; `none` is the model before tuning.
WAYS = {"none": "none", "random": "batch", "full": "batch", "colm": "source", "uniproto": "source"}
DATA_SETS = {"svamp": "SVAMP", "numglue": "NumGLUE", "deepmind": "Mathematics"}
QUESTIONS, NEW_TOKENS = 400, 256
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS = 100, 2


def parts(setup: Setup) -> list[str]:
    """The names of all runs, one seed after the other."""
    seeds = setup.training.seeds or (SEEDS[:1] if setup.quick else SEEDS)
    ways = [way for way in WAYS if not setup.quick or way in ("random", "uniproto")]
    return [
        run_name(way, WAYS[way], seed)
        for seed in seeds
        for way in ways
        if way != "none" or seed == seeds[0]  # there is one model before tuning
    ]


PARTS = parts(Setup(None, Path()))


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, publish their results."""
    names = setup.parts(parts(setup))
    rows = [row for name in names for row in _run_part(setup, name)]
    if setup.waits_for_others(names):
        return
    publish_joined(setup, "exact_answers", rows, table, _chart)


def _run_part(setup: Setup, name: str) -> list[dict[str, Any]]:
    """Tune, then ask; what was done before is read."""
    from support.finetuning import algorithm_of, math_settings, quick_settings, run_study
    from uniproto.lm.judging import evaluate
    from uniproto.lm.judging.evaluation import SCORES

    method, mode, seed = name_parts(name)
    out = setup.out / "judged" / name
    if setup.finished_only and not (out / SCORES).exists():
        return []
    base = quick_settings(setup, QUICK_STEPS) if setup.quick else math_settings(setup, STEPS)
    model = base.model
    if method != "none":
        settings = replace(base, method=algorithm_of(method), mode=mode, seed=int(seed))
        run_study(replace(setup, part=None, progress=False), {name: settings})
        model = str(setup.out / "runs" / name)
    judged = evaluate(
        model,
        suite="svamp" if setup.quick else ",".join(DATA_SETS),
        data=_few_questions(setup.out) if setup.quick else (setup.data or Path()) / "math",
        out=out,
        limit=None if setup.quick else QUESTIONS,
        allow_partial=setup.quick,
        max_new_tokens=4 if setup.quick else NEW_TOKENS,
        batch_size=256,
        device=base.device,
        bf16=base.bf16,
        trust_generated_code=setup.quick,
        progress=setup.progress,
        log=lambda _: None,
    )
    counts = ("questions", "right", "by_program", "by_reasoning", "no_answer", "cut_off")
    return [
        {"run": name, "method": method, "mode": mode, "seed": int(seed), "dataset": dataset}
        | {count: judged.scores[dataset][count] for count in counts}
        for dataset in DATA_SETS
        if dataset in judged.scores
    ]


def _few_questions(out: Path) -> Path:
    """A file of two questions, for quick runs."""
    folder = out / "questions"
    folder.mkdir(parents=True, exist_ok=True)
    line = '{"dataset": "svamp", "question": "What is %d+1?", "answer": "%d"}\n'
    text = "".join(line % (number, number + 1) for number in (1, 2))
    (folder / "math_test.jsonl").write_text(text, encoding="utf-8")
    return folder


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Percentage of exact answers, ± the standard error over questions, or over seeds."""
    shown: dict[str, list[str]] = {"tuned on": [], "seeds": []}
    for (method, mode), found in by(rows, "method", "mode").items():
        runs = by(found, "run")
        shown["tuned on"].append("nothing" if method == "none" else f"{method}, per {mode}")
        shown["seeds"].append(str(len(runs)))
        for dataset, title in DATA_SETS.items():
            of_set = [row for row in found if row["dataset"] == dataset]
            shown.setdefault(title, []).append(_share(of_set))
        shown.setdefault("all", []).append(_share(found))
    return aligned(shown)


def _share(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share that is right, with its error over seeds, or that of one draw of questions."""
    if not rows:
        return "–"
    shares = [
        100 * sum(row["right"] for row in some) / sum(row["questions"] for row in some)
        for some in by(rows, "run").values()
    ]
    mean, spread = mean_and_spread(shares)
    assert mean is not None
    if spread is None:
        asked = sum(row["questions"] for row in rows)
        return f"{mean:.1f} ± {(mean * (100 - mean) / asked) ** 0.5:.1f}"
    return f"{mean:.1f} ± {spread / len(shares) ** 0.5:.1f}"


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from uniproto.report.charts import BLUE, GREY, loose_scale, styled

    points = [
        {"dataset": DATA_SETS[row["dataset"]], "way": f"{row['method']}_{row['mode']}"}
        | {"share": row["right"] / row["questions"]}
        for row in rows
    ]
    return styled(
        dots_and_means(
            points,
            x=alt.X("share:Q", title="right", axis=alt.Axis(format="%"), scale=loose_scale(alt)),
            y=alt.Y("dataset:N", title=None, sort=None, axis=alt.Axis(ticks=False)),
            series="way",
            colours={
                way: BLUE if way.startswith("uniproto") else GREY
                for way in dict.fromkeys(point["way"] for point in points)
            },
            title="exactly right answers",
        ),
        "Mathematics answered exactly",
        "circles: seeds, diamonds: their mean",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
