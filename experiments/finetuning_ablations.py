"""What matters in choosing mini-batches: how many are kept, λ, and the size of the pool.

The paper's ablations, on SmolLM2-135M and the mathematics of 22 sources, in the settings of the
experiment `finetuning`: 50, 25 and 12.5 % of 128 kept; the entropic plan with λ = 0.1, 0.05 and
0.01 beside the plan without entropy; a pool of 256.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line
from support.statistics import by
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread

TITLE = "ablations of mini-batch selection: share kept, λ, pool of 256"

STEPS, QUICK_STEPS = 120, 2
SEEDS = (0, 1, 2)
LAMBDAS = (0.1, 0.05, 0.01)
ITERATIONS = 100  # of the entropic plan; the paper's number for up to 200 examples


def _variations() -> dict[str, dict[str, Any]]:
    """The settings of every variation, by its name STUDY-LEVEL-METHOD."""
    found: dict[str, dict[str, Any]] = {}
    for keep in (64, 32, 16):
        for method, mode in (("uniproto", "source"), ("random", "batch")):
            found[f"ratio-{keep / 128:.1%}-{method}"] = {
                "method": method,
                "mode": mode,
                "keep": keep,
            }
    found["lambda-none-uniproto"] = {"mode": "batch"}
    for reg in LAMBDAS:
        found[f"lambda-{reg}-uniproto"] = {
            "mode": "batch",
            "plan": "entropic",
            "reg": reg,
            "iterations": ITERATIONS,
        }
    for keep in (64, 32):
        for method, mode in (("uniproto", "source"), ("random", "batch")):
            found[f"pool-256→{keep}-{method}"] = {
                "method": method,
                "mode": mode,
                "pool": 256,
                "keep": keep,
            }
    return found


PARTS = [f"{name}-{seed}" for seed in SEEDS for name in _variations()]


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, join and publish their results."""
    from support.finetuning import run_study

    settings = _settings(setup)
    rows = run_study(setup, settings)
    if setup.waits_for_others(dict.fromkeys(row["run"] for row in rows)):
        return
    publish_joined(setup, "finetuning_ablations", _with_variation(rows), table, _chart)


def _with_variation(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with what the name of their run says, STUDY-LEVEL-METHOD-SEED, in columns."""
    found = []
    for row in rows:
        study, level, method, seed = row["run"].split("-")
        key = {"study": study, "level": level, "method": method, "seed": int(seed)}
        found.append({"run": row["run"]} | key | dict(row))
    return found


def _settings(setup: Setup) -> dict[str, Any]:
    from support.finetuning import math_settings, quick_settings

    if not setup.quick:
        base = math_settings(setup, STEPS)
        return {
            f"{name}-{seed}": replace(base, **options, seed=seed)
            for seed in SEEDS
            for name, options in _variations().items()
        }
    base = quick_settings(setup, QUICK_STEPS)
    smaller = {"pool": lambda n: n // 8, "keep": lambda n: n // 8}
    return {
        f"{name}-0": replace(
            base, **{key: smaller.get(key, lambda n: n)(value) for key, value in options.items()}
        )
        for name, options in _variations().items()
        if "random" not in name and "12.5" not in name
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The last validation of every variation: means over the seeds ± their spread."""
    from support.finetuning import at_the_end

    shown: dict[str, list[str]] = {"variation": [], "seeds": [], "kept": []}
    shown |= {"overall": [], "of_sources": [], "of_smallest": []}
    for (study, level, method), found in by(at_the_end(rows), "study", "level", "method").items():
        shown["variation"].append(f"{study} {level}, {method}")
        shown["seeds"].append(str(len(found)))
        shown["kept"].append(f"{found[0]['keep']} of {found[0]['pool']}")
        for column in ("overall", "of_sources", "of_smallest"):
            mean, spread = mean_and_spread([row[column] for row in found])
            shown[column].append(
                f"{mean:.4f}" + (" " * 9 if spread is None else f" ± {spread:.4f}")
            )
    return aligned(shown)


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from support.finetuning import at_the_end
    from uniproto.report.charts import BLUE, GREY, small_multiples, styled

    last = [dict(row) for row in at_the_end(rows)]
    studies = {"ratio": "share kept of 128", "lambda": "λ", "pool": "pool and kept"}
    columns = {"overall": "all held-out answers", "of_smallest": "8 smallest sources"}
    panels = [
        dots_and_means(
            [row for row in last if row["study"] == study],
            x=alt.X(f"{column}:Q", title="log-perplexity", scale=alt.Scale(zero=False)),
            y=alt.Y("level:N", title=title, sort=None, axis=alt.Axis(ticks=False)),
            series="method",
            colours={"uniproto": BLUE, "random": GREY},
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
