"""Which settings of UniPROT choose mini-batches best: features, metric, small sources, exchanges.

The settings of the experiment `finetuning`, on seeds of their own (10 and 11), so that what is
picked here can be judged on others: the two best run again with seeds 0 to 4, next to random
choices, CoLM and all data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.joined import publish_joined
from support.runs import Setup, command_line, name_parts
from support.statistics import by, differences_table
from uniproto.methods import UniProto

TITLE = "settings of mini-batch selection, tried on seeds of their own"

TRAINS = True

STEPS, QUICK_STEPS = 100, 2
TRIAL_SEEDS, FINAL_SEEDS = (10, 11), (0, 1, 2, 3, 4)
COLUMNS = ("overall", "of_sources", "of_smallest")
_COLM_FEATURES = {"features": "zeroth-order", "moments": "example", "metric": "l1"}
_COLM_FEATURES |= {"coordinates": 2560}
_EXCHANGES = UniProto(seconds=0.03)  # a source has 1 to 15 of the pool's examples

VARIATIONS: Mapping[str, Mapping[str, Any]] = {
    "random.batch": {"method": "random", "mode": "batch"},
    "colm.batch": {"method": "colm", "mode": "batch"},
    "colm.source": {"method": "colm", "mode": "source"},
    "euclidean.source": {"metric": "euclidean"},
    "euclidean.source.small": {"metric": "euclidean", "keep_small": True},
    "cosine.source": {"metric": "cosine"},
    "cosine.source.small": {"metric": "cosine", "keep_small": True},
    "colmfeatures.batch": {**_COLM_FEATURES, "mode": "batch"},
    "colmfeatures.source": _COLM_FEATURES,
    "colmfeatures.source.small": {**_COLM_FEATURES, "keep_small": True},
    "exchanges.source": {"metric": "euclidean", "method": _EXCHANGES},
    "adapters.source": {"metric": "euclidean", "features": "adapters", "score_batch_size": 32},
    "full.batch": {"method": "full", "mode": "batch"},
}
# One for each kind of setting.
QUICK = ("random.batch", "colm.source", "euclidean.source.small", "colmfeatures.batch")
QUICK += ("exchanges.source", "adapters.source")
REFERENCES = ("random.batch", "colm.batch", "colm.source", "full.batch")
# The best of the trials over all answers, and on small sources; judged on the other seeds.
FINALISTS = ("cosine.source", "euclidean.source.small")


def parts(setup: Setup) -> list[str]:
    """The names of all runs: the trials, then the finalists, one seed after the other."""
    trials = QUICK if setup.quick else [name for name in VARIATIONS if name != "full.batch"]
    seeds = setup.training.seeds or (TRIAL_SEEDS[:1] if setup.quick else TRIAL_SEEDS)
    names = [f"{name}_{seed}" for seed in seeds for name in trials]
    if setup.quick or setup.training.seeds is not None:
        return names
    finals = [f"{name}_{n}" for n in FINAL_SEEDS for name in (*FINALISTS, *REFERENCES)]
    return names + finals


PARTS = parts(Setup(None, Path()))


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, join and publish their results."""
    from support.finetuning import math_settings, quick_settings, run_study

    base = quick_settings(setup, QUICK_STEPS) if setup.quick else math_settings(setup, STEPS)
    settings = {}
    for name in parts(setup):
        variation, seed = name_parts(name)
        settings[name] = replace(base, **VARIATIONS[variation], seed=int(seed))
    rows = run_study(setup, settings)
    if setup.waits_for_others(dict.fromkeys(row["run"] for row in rows)):
        return
    found = [{"variation": name_parts(row["run"])[0], **row} for row in rows]
    for row in found:
        if not isinstance(row["method"], str):  # a method with its options
            row["method"] = UniProto.name
    publish_joined(setup, "finetuning_settings", found, table, chart)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The trials compared with random choices; the finalists with those and with CoLM."""
    trials = [row for row in rows if row["seed"] in TRIAL_SEEDS]
    finals = [row for row in rows if row["seed"] not in TRIAL_SEEDS]
    found = [compared_with(trials, "random.batch"), compared_with(finals, "random.batch")]
    return "\n\n".join([*found, compared_with(finals, "colm.source")])


def compared_with(rows: Sequence[Mapping[str, Any]], reference: str) -> str:
    """The last validation of every variation, less that of the reference with the same seed."""
    from support.finetuning import at_the_end

    ends = by(at_the_end(rows), "variation")
    known = {row["seed"]: row for row in ends.get((reference,), [])}
    title = f"variation − {reference}"
    pairs = {
        variation: [(row, known[row["seed"]]) for row in found if row["seed"] in known]
        for (variation,), found in ends.items()
        if variation != reference
    }
    return differences_table(title, pairs, COLUMNS) or f"{title}: no variation has two seeds yet."


def chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from support.finetuning import at_the_end
    from uniproto.report.charts import BLUE, small_multiples, styled

    last = [dict(row) | {"series": "all"} for row in at_the_end(rows)]
    panels = [
        dots_and_means(
            last,
            x=alt.X(f"{column}:Q", title="log-perplexity", scale=alt.Scale(zero=False)),
            y=alt.Y("variation:N", title=None, sort=None, axis=alt.Axis(ticks=False)),
            series="series",
            colours={"all": BLUE},
            title=words,
        )
        for column, words in (("overall", "all held-out answers"), ("of_smallest", "8 smallest"))
    ]
    return styled(
        small_multiples(panels, columns=2),
        "Settings of mini-batch selection",
        "circles: seeds, diamonds: their mean",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
