"""Fine-tuning SmolLM2-135M on 22 sources of mathematics: every method, both modes, and all data.

Every run sees the same pools of 128 examples in the same order (by seed) and trains on 64 of them;
`full` trains on all 128. What the paper calls FT is the whole pool by its text, and batches of 64,
as many as every method gets, by its appendix: the tables compare with both, `full_batch` and
`random_batch`. Every way is run with every seed: none is chosen by its results.

Measured: log-perplexity of held-out answers, overall, as a mean over the sources and over the eight
smallest ones, after equal steps and after equal time. The learning rate is constant after the
warm-up, so that a run may be cut short at any step without being punished.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line, name_parts, run_name
from support.statistics import STARS, by, differences_table, mean_text
from uniproto.comparing.results import aligned

TITLE = "fine-tuning a language model on chosen mini-batches: all methods and modes"

TRAINS = True

# Fixed beforehand: all seeds of the first ways come before the others, so that what is done when
# time runs out can be compared.
FIRST_METHODS = ("uniproto", "uniproto.dot", "colm", "kmedoids", "random")  # METHOD.METRIC
OTHER_METHODS = ("gradnorm", "maxloss", "greats", "sbert")
FIRST_WAYS, OTHER_WAYS = (
    [run_name(method, mode) for method in methods for mode in ("source", "batch")]
    for methods in (FIRST_METHODS, OTHER_METHODS)
)
FIRST_WAYS = [*FIRST_WAYS, run_name("full", "batch")]
QUICK_WAYS = ["uniproto_source", "random_batch", "full_batch"]
REFERENCES = {  # what the paper calls FT
    "random_batch": "64 random examples (FT by the paper's appendix)",
    "full_batch": "all 128 examples (FT by the paper's text)",
}
COLUMNS = ("overall", "of_sources", "of_smallest")
SEEDS = (0, 1, 2)
STEPS, QUICK_STEPS = 100, 4


def parts(setup: Setup) -> list[str]:
    """The names of all runs, in the order they are worth running."""
    groups = [QUICK_WAYS] if setup.quick else [FIRST_WAYS, OTHER_WAYS]
    seeds = setup.training.seeds or (SEEDS[:1] if setup.quick else SEEDS)
    return [f"{way}_{seed}" for ways in groups for seed in seeds for way in ways]


PARTS = parts(Setup(None, Path()))


def run(setup: Setup) -> None:
    """Every way with every seed, or one part only."""
    from support.finetuning import run_study

    settings = _settings(setup, parts(setup))
    if setup.part is not None:
        names = setup.parts(list(settings))
        run_study(replace(setup, part=None), {name: settings[name] for name in names})
        print(f"{', '.join(names)}: done. The same command without --part does what is left.")
        return
    publish_joined(setup, "finetuning", run_study(setup, settings), tables, _chart)


def _settings(setup: Setup, names: Sequence[str]) -> dict[str, Any]:
    from support.finetuning import algorithm_of, math_settings, quick_settings

    base = quick_settings(setup, QUICK_STEPS) if setup.quick else math_settings(setup, STEPS)
    found = {}
    for name in names:
        way, mode, seed = name_parts(name)
        method, _, metric = way.partition(".")
        # GREATS differentiates the whole model: fewer examples at a time.
        at_once = 32 if method == "greats" else None
        found[name] = replace(
            base,
            method=algorithm_of(method),
            metric=metric or None,
            mode=mode,
            seed=int(seed),
            score_batch_size=at_once,
        )
        if method == "uniproto" and setup.training.plan is not None:
            found[name] = replace(found[name], plan=setup.training.plan)
    return found


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """After equal steps, after equal time, and the differences to random choices."""
    from support.finetuning import at_step, at_the_end

    last = at_the_end(rows)
    seconds = _seconds(last)
    steps = max(row["step"] for row in last)
    ways = {way: [row["run"] for row in found] for (way,), found in by(_ways(last), "way").items()}
    curves = by(rows, "run")
    tables = {f"after {steps} steps": dict.fromkeys(ways, float(steps))}
    if "random_batch" in ways:
        budget = steps * seconds["random_batch"]
        title = f"after {budget:.0f} s, in which random_batch takes {steps} steps"
        tables[title] = {way: budget / seconds[way] for way in ways}

    def values(way: str, column: str, step: float) -> list[float]:
        return [at_step(curves[(run,)], min(step, steps), column) for run in ways[way]]

    texts = []
    for title, step_of in tables.items():
        order = sorted(ways, key=lambda way: statistics.fmean(values(way, "overall", step_of[way])))
        shown: dict[str, list[str]] = {title: order, "seeds": [str(len(ways[w])) for w in order]}
        shown["steps"] = [f"{min(step_of[way], steps):.0f}" for way in order]
        shown["s/step"] = [f"{seconds[way]:.3f}" for way in order]
        for column in COLUMNS:
            shown[column] = [mean_text(values(way, column, step_of[way])) for way in order]
        texts.append(aligned(shown))
    return "\n\n".join([*texts, *(_differences(last, way) for way in REFERENCES)])


def _differences(last: Sequence[Mapping[str, Any]], reference: str) -> str:
    """Each way − the reference in the end, over the seeds that both were run with."""
    ends = {(row["way"], row["seed"]): row for row in _ways(last)}
    title = f"way − {REFERENCES[reference]}"
    pairs = {
        way: [
            (row, ends[reference, seed])
            for (its_way, seed), row in ends.items()
            if its_way == way and (reference, seed) in ends
        ]
        for way in dict.fromkeys(way for way, _ in ends if way != reference)
    }
    table = differences_table(title, pairs, COLUMNS)
    return f"{table}\n{STARS}" if table else f"{title}: one seed each, no differences to judge."


def _ways(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """With the way of choosing, METHOD_MODE or METHOD.METRIC_MODE, as a column."""
    return [{"way": run_name(*name_parts(row["run"])[:-1])} | dict(row) for row in rows]


def _seconds(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The median step of every way of choosing, over its seeds."""
    return {
        way: statistics.median(row["step_seconds"] for row in found)
        for (way,), found in by(_ways(rows), "way").items()
    }


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import lines_and_bands
    from uniproto.report.charts import (
        BLUE,
        GREEN,
        GREY,
        ORANGE,
        PINK,
        small_multiples,
        styled,
    )

    colours = {"uniproto_source": BLUE, "uniproto.dot_batch": "#56B4E9", "kmedoids_batch": GREEN}
    colours |= {"colm_source": ORANGE, "colm_batch": PINK}
    colours |= {"random_batch": GREY, "full_batch": "#000000"}
    seconds = _seconds(rows)
    later = [row | {"minutes": row["step"] * seconds[row["way"]] / 60} for row in _ways(rows)]
    later = [row for row in later if row["step"] > 0 and row["way"] in colours]
    present = {way: colour for way, colour in colours.items() if by(later, "way").get((way,))}
    names = {"overall": "all held-out answers", "of_smallest": "mean of the 8 smallest sources"}
    panels = [
        lines_and_bands(
            later,
            x=alt.X(f"{axis}:Q", title=axis),
            y=alt.Y(f"{column}:Q", title="log-perplexity", scale=alt.Scale(zero=False)),
            series="way",
            colours=present,
            title=title,
        )
        for column, title in names.items()
        for axis in ("step", "minutes")
    ]
    return styled(
        small_multiples(panels, columns=2),
        "Fine-tuning on chosen mini-batches",
        "lines: means over seeds, bands: from lowest to highest; the first validation is left out",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
