"""What matters in choosing mini-batches: how many are kept, λ, the pool, and small sources.

The paper's ablations, on SmolLM2-135M and the mathematics of 22 sources, in the settings of the
experiment `finetuning`: 50, 25 and 12.5 % of 128 kept, by UniPROT, CoLM, GREATS and at random; the
entropic plan with λ = 0.1, 0.05 and 0.01, after 20 and 500 iterations, and the plan without
entropy; per-batch choices from a pool of 256, which is what the paper claims something about; and
the same small sources kept whole by every method, so that choices are compared and not budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line, name_parts, run_name
from support.statistics import by, difference, differences_table, mean_text
from uniproto.comparing.results import aligned

TITLE = "ablations of mini-batch selection: share kept, λ, pool of 256"

TRAINS = True

COLUMNS = ("overall", "of_sources", "of_smallest")
STEPS, QUICK_STEPS = 100, 2
SEEDS = (0, 1, 2)
LAMBDAS = (0.1, 0.05, 0.01)
ITERATIONS = (20, 500)  # of the entropic plan
SMALL = 0.02  # sources below this share of the data are small
_NOT_QUICK = ("25.0%", "12.5%", "0.1×", "0.05×", "×500", "→32")  # the other levels are enough
# Fixed beforehand: method and mode.
RATIO_WAYS = (("uniproto", "source"), ("colm", "source"), ("greats", "batch"), ("random", "batch"))
SMALL_METHODS = ("uniproto", "kmedoids", "colm", "random")
LARGE_POOL_METHODS = ("uniproto", "kmedoids", "colm", "greats", "random")


def _variations() -> dict[str, dict[str, Any]]:
    """The settings of every variation, by its name STUDY_LEVEL_METHOD."""
    found: dict[str, dict[str, Any]] = {}
    for keep in (64, 32, 16):
        for method, mode in RATIO_WAYS:
            name = run_name("ratio", f"{keep / 128:.1%}", method)
            found[name] = {"method": method, "mode": mode, "keep": keep}
    # λ is in the unit of the costs: cosines, as in the paper; distances of gradients are thousands.
    found[run_name("lambda", "none", "uniproto")] = {"mode": "batch", "metric": "cosine"}
    for reg in LAMBDAS:
        for iterations in ITERATIONS:
            found[run_name("lambda", f"{reg}×{iterations}", "uniproto")] = {
                "mode": "batch",
                "metric": "cosine",
                "plan": "entropic",
                "reg": reg,
                "iterations": iterations,
            }
    for keep in (64, 32):
        for method in LARGE_POOL_METHODS:
            name = run_name("pool", f"256→{keep}", method)
            found[name] = {"method": method, "mode": "batch", "pool": 256, "keep": keep}
    for method in SMALL_METHODS:
        name = run_name("small", f"{SMALL:.0%}", method)
        found[name] = {"method": method, "mode": "source", "keep_small": SMALL}
    for options in found.values():
        if options.get("method", "uniproto") == "uniproto":
            options["method"] = "greedy"  # the paper's algorithm
        if options.get("method") == "greats":
            options["score_batch_size"] = 32  # it differentiates the whole model
    return found


# What the variations of a study are compared with: a level or a method.
BESIDE = {"lambda": ("level", "none"), "pool": ("method", "random"), "ratio": ("method", "random")}
STUDIES = ("small", "ratio", "lambda", "pool")  # in the order they are worth running


def parts(setup: Setup) -> list[str]:
    """The names of all runs, in that order: of each study, one seed after the other."""
    if setup.quick:
        return list(_settings(setup))
    return [
        f"{name}_{seed}"
        for study in STUDIES
        for seed in setup.training.seeds or SEEDS
        for name in _variations()
        if name_parts(name)[0] == study
    ]


PARTS = parts(Setup(None, Path()))


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, join and publish their results."""
    from support.finetuning import run_study

    settings = _settings(setup)
    rows = run_study(setup, settings)
    if setup.waits_for_others(dict.fromkeys(row["run"] for row in rows)):
        return
    publish_joined(setup, "finetuning_ablations", _with_variation(rows), table, _chart)


def _with_variation(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what the name of their run says, STUDY_LEVEL_METHOD_SEED, in columns."""
    found = []
    for row in rows:
        study, level, method, seed = name_parts(row["run"])
        key = {"study": study, "level": level, "method": method, "seed": int(seed)}
        found.append({"run": row["run"]} | key | dict(row) | key)  # `uniproto`, not the algorithm
    return found


def _settings(setup: Setup) -> dict[str, Any]:
    from support.finetuning import math_settings, quick_settings

    if not setup.quick:
        base = math_settings(setup, STEPS)
        return {
            f"{name}_{seed}": replace(base, **options, seed=seed)
            for seed in setup.training.seeds or SEEDS
            for name, options in _variations().items()
        }
    base = quick_settings(setup, QUICK_STEPS)
    smaller = {"pool": lambda n: n // 8, "keep": lambda n: n // 8}
    return {
        f"{name}_0": replace(
            base, **{key: smaller.get(key, lambda n: n)(value) for key, value in options.items()}
        )
        for name, options in _variations().items()
        if "_uniproto" in name and not any(level in name for level in _NOT_QUICK)
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The last validation of every variation: means over the seeds ± their spread."""
    from support.finetuning import at_the_end

    shown: dict[str, list[str]] = {"variation": [], "seeds": [], "kept": []}
    shown |= {column: [] for column in COLUMNS}
    for (study, level, method), found in by(at_the_end(rows), "study", "level", "method").items():
        shown["variation"].append(f"{study} {level}, {method}")
        shown["seeds"].append(str(len(found)))
        shown["kept"].append(f"{found[0]['keep']} of {found[0]['pool']}")
        for column in COLUMNS:
            shown[column].append(mean_text([row[column] for row in found]))
    parts = [aligned(shown), _losses(rows)]
    parts += [_beside(rows, study, reference) for study, reference in BESIDE.items()]
    return "\n\n".join(part for part in parts if part)


def _beside(rows: Sequence[Mapping[str, Any]], study: str, reference: tuple[str, str]) -> str:
    """What the variations of a study differ by from its reference, over the seeds of both."""
    from support.finetuning import at_the_end

    column, wanted = reference
    ends = {
        (row["level"], row["method"], row["seed"]): row
        for row in at_the_end(rows)
        if row["study"] == study
    }
    pairs = {}
    for level, method in dict.fromkeys((level, method) for level, method, _ in ends):
        if wanted == (level if column == "level" else method):
            continue
        other = (wanted, method) if column == "level" else (level, wanted)
        pairs[f"{level}, {method}"] = [
            (row, ends[(*other, seed)])
            for (*way, seed), row in ends.items()
            if way == [level, method] and (*other, seed) in ends
        ]
    return differences_table(f"{study}, − {wanted}", pairs, COLUMNS)


def _losses(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a method loses from half of the pool to an eighth; UniPROT compared with the others."""
    from support.finetuning import at_the_end

    ends = {
        (row["method"], row["level"], row["seed"]): row["overall"]
        for row in at_the_end(rows)
        if row["study"] == "ratio"
    }
    lost = {
        (method, seed): value - ends[method, "50.0%", seed]
        for (method, level, seed), value in ends.items()
        if level == "12.5%" and (method, "50.0%", seed) in ends
    }
    shown: dict[str, list[str]] = {"from 50 to 12.5 %": [], "seeds": [], "overall": []}
    for method in dict.fromkeys(method for method, _ in lost):
        seeds = [n for name, n in lost if name == method]
        mine = [lost[method, n] for n in seeds]
        both = [n for n in seeds if ("uniproto", n) in lost]
        ours = [lost["uniproto", n] for n in both]
        apart = {method: difference(mine, [0.0] * len(mine))}
        if method != "uniproto":
            apart[f"uniproto − {method}"] = difference(ours, [lost[method, n] for n in both])
        for name, found in apart.items():
            if found.error is not None:
                shown["from 50 to 12.5 %"].append(name)
                shown["seeds"].append(str(found.draws))
                shown["overall"].append(found.starred())
    return aligned(shown) if shown["seeds"] else ""


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from support.finetuning import at_the_end
    from uniproto.report.charts import BLUE, GREEN, GREY, ORANGE, PINK, small_multiples, styled

    last = [dict(row) for row in at_the_end(rows)]
    studies = {"ratio": "share kept of 128", "lambda": "λ", "pool": "pool and kept"}
    studies |= {"small": "small sources whole, below"}
    columns = {"overall": "all held-out answers", "of_smallest": "8 smallest sources"}
    panels = [
        dots_and_means(
            [row for row in last if row["study"] == study],
            x=alt.X(f"{column}:Q", title="log-perplexity", scale=alt.Scale(zero=False)),
            y=alt.Y("level:N", title=title, sort=None, axis=alt.Axis(ticks=False)),
            series="method",
            colours={
                "uniproto": BLUE,
                "colm": ORANGE,
                "kmedoids": GREEN,
                "greats": PINK,
                "random": GREY,
            },
            title=words,
        )
        for study, title in studies.items()
        for column, words in columns.items()
    ]
    return styled(
        small_multiples(panels, columns=2),
        "What matters in choosing mini-batches",
        f"circles: seeds, diamonds: their mean, after {max(row['step'] for row in last)} steps",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
