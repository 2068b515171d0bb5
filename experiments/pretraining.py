"""Pretraining a LLaMA-3 model from scratch: every method, and training on all sequences.

Every run sees the same pools of 128 sequences in the same order (by seed) and trains on 64 of
them; `full` trains on all 128. First all methods for a few hundred steps, then those of `LONG` for
longer, with other seeds too: they go on from where they ended. Which these are is fixed beforehand,
not chosen by results. `uniproto` has the plan without entropy, `uniproto-entropic` the paper's.
Measured: log-perplexity of held-out documents, after equal steps and after equal time. Methods are
compared on the same seeds: the short runs on the first, the long ones on all.

The data folder holds text/english_mix.jsonl.zst, or tokens prepared by
`uniproto pretrain --prepare-only` (tokens.json). The runs are in OUT/runs, and go on after a kill;
delete that folder to start over.

    UNIPROTO_DATA=/path/to/data uniproto experiment pretraining
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from support.runs import DATA_VARIABLE, Runs, Setup, command_line, run_name
from support.statistics import by
from uniproto.comparing.results import aligned, number_column
from uniproto.errors import InputFileError
from uniproto.report.words import mean_and_spread
from uniproto.runs.journal import read_metrics

TITLE = "pretraining on chosen sequences, against training on all of them"
TRAINS = True
ENTROPIC = "uniproto-entropic"
METHODS = ("uniproto", ENTROPIC, "colm", "greats", "gradnorm", "maxloss", "random", "full")
LONG = ("uniproto", ENTROPIC, "colm", "random", "full")
SEEDS = (0, 1, 2)
CORPUS = Path("text", "english_mix.jsonl.zst")
FULL = "full"


@dataclass(frozen=True)
class Scale:
    """How large the runs are; short ones by every method, long ones by some."""

    size: str = "60m"
    methods: tuple[str, ...] = METHODS
    seeds: tuple[int, ...] = SEEDS
    short: int = 500
    long: int = 2000
    long_methods: tuple[str, ...] = LONG
    eval_steps: int = 50
    pool: int = 128
    length: int = 512
    learning_rate: float = 1e-4
    plan: str = "extend"

    @classmethod
    def asked(cls, setup: Setup) -> Scale:
        """As large as the command line wants it."""
        if setup.quick:
            return QUICK
        asked = setup.training
        given = {"size": asked.model, "seeds": asked.seeds, "long": asked.steps}
        given |= {"learning_rate": asked.learning_rate, "plan": asked.plan}
        scale = replace(cls(), **{name: value for name, value in given.items() if value})
        return replace(scale, short=min(scale.short, scale.long))


QUICK = Scale(
    "tiny", ("uniproto", "full"), (0,), 4, 4, ("uniproto", "full"), eval_steps=2, pool=8, length=16
)
PARTS = [
    *(run_name("short", method, 0) for method in METHODS),
    *(run_name("long", method, seed) for seed in SEEDS for method in LONG),
]


def run(setup: Setup) -> None:
    """Train what is asked for; where all is, publish what it came to, after every seed."""
    scale = Scale.asked(setup)
    short = {run_name("short", method, scale.seeds[0]): method for method in scale.methods}
    long = {
        run_name("long", method, seed): (method, seed)
        for seed in scale.seeds
        for method in scale.long_methods
    }
    wanted = setup.parts([*short, *long])
    source = _source(setup)
    for name, method in short.items():
        if name in wanted:
            _train(setup, scale, source, method, scale.seeds[0], scale.short)
    report = ""
    for seed in scale.seeds:
        for name, (method, its_seed) in long.items():
            if its_seed == seed and name in wanted:
                _train(setup, scale, source, method, seed, scale.long)
        if setup.part is None:
            report = _publish(setup, scale, seed, scale.long_methods)
    print(report or f"{', '.join(wanted)}: done. The same command without --part joins all.")
    print(f"\nwritten to {setup.out}")


def _source(setup: Setup) -> dict[str, str]:
    """Where the tokens are, and what to make them from where they are not there yet."""
    made_here = {"tokens": str(setup.out / "tokens")}
    if setup.quick:
        return made_here | {"data": str(_made_corpus(setup.out))}
    if setup.data is not None and (setup.data / "tokens.json").is_file():
        return {"tokens": str(setup.data)}
    if setup.data is None or not (setup.data / CORPUS).is_file():
        raise InputFileError(
            f"The corpus must be in the data folder, as {CORPUS} or as prepared tokens. Got "
            f"{setup.data or 'no folder'} instead. Name it with --data or {DATA_VARIABLE}."
        )
    return made_here | {"data": str(setup.data / CORPUS)}


def _made_corpus(out: Path) -> Path:
    """Sentences at random from a few words: something to learn, and nothing to download."""
    path = out / "corpus.txt"
    draw = np.random.default_rng(0)
    words = ["the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "tree", "and", "then"]
    texts = [" ".join(draw.choice(words, 60)) for _ in range(1000)]
    out.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return path


def _folder(setup: Setup, method: str, seed: int) -> Path:
    return setup.out / "runs" / run_name(method, seed)


def _train(
    setup: Setup, scale: Scale, source: dict[str, str], method: str, seed: int, steps: int
) -> None:
    from uniproto.lm.pretraining.pretrain import PretrainSettings, pretrain

    if any(row["step"] >= steps for row in _curve(setup, method, seed)):
        return  # a long run, even one that was killed, has the rows of the short one it began as
    quiet = setup.quick or setup.progress is False
    if not quiet:
        print(f"{method}, seed {seed}, to step {steps:,}", flush=True)
    pretrain(
        PretrainSettings(
            out=str(_folder(setup, method, seed)),
            size=scale.size,
            method="uniproto" if method == ENTROPIC else method,
            plan="entropic" if method == ENTROPIC else scale.plan,
            learning_rate=scale.learning_rate,
            pool=scale.pool,
            keep=scale.pool // 2,
            length=scale.length,
            steps=steps,
            seed=seed,
            eval_steps=scale.eval_steps,
            save_steps=scale.short,
            quiet=quiet,
            **source,
        )
    )


def _curve(setup: Setup, method: str, seed: int) -> Iterator[dict[str, Any]]:
    for row in read_metrics(_folder(setup, method, seed)):
        if row["val_loss"] is not None:
            yield {
                "step": row["step"],
                "seconds": row["seconds"],
                "tokens": row["tokens"],
                "train_loss": row["train_loss"],
                "log_perplexity": row["val_loss"],
            }


def _publish(setup: Setup, scale: Scale, last_seed: int, long_methods: Sequence[str]) -> str:
    from support.charts import pretraining_curves

    steps = [scale.short, scale.long]
    (setup.out / "pretraining.jsonl").unlink(missing_ok=True)  # recomputed from the runs
    runs = Runs(setup.out, "pretraining", {"quick": setup.quick, "steps": steps})
    first, *others = scale.seeds[: scale.seeds.index(last_seed) + 1]
    trained = [(method, first) for method in scale.methods]
    trained += [(method, seed) for seed in others for method in long_methods]
    curves = {run: list(_curve(setup, *run)) for run in trained}
    for method, seed in trained:
        each = quickest_step([curve for run, curve in curves.items() if run[0] == method])
        timed = [row | {"seconds": row["step"] * each} for row in curves[method, seed]]
        runs.add({"method": method, "seed": seed}, timed)
    # Seeds differ by more than methods do: all methods are compared on the seed that all have.
    short = [row for row in runs.rows if row["step"] <= scale.short and row["seed"] == first]
    long = [row for row in runs.rows if row["method"] in long_methods]
    below = f"{scale.size}, {scale.pool // 2} of {scale.pool} sequences of {scale.length} tokens a "
    below += "step; full: all of them"
    bands = f"{below}; bands: from the lowest to the highest seed"
    charts = {
        "pretraining": pretraining_curves(short, f"{scale.short:,} steps of every method", below),
        "pretraining-long": pretraining_curves(long, f"{scale.long:,} steps, every seed", bands),
    }
    tables = [_table(short, scale.short), _table(long, scale.long)]
    verdicts = [*_verdict(short, scale.short), *_verdict(long, scale.long)]
    report = "\n\n".join([*tables, *verdicts])
    runs.publish(charts, report)
    return report


def quickest_step(curves: Sequence[Sequence[dict[str, Any]]]) -> float:
    """Seconds of a step where a method was quickest, between two validations of any of its runs.

    Steps of a method cost the same, whatever they look at; they take longer only where something
    else used the machine, which must not count against the method.
    """
    return min(
        (later["seconds"] - row["seconds"]) / (later["step"] - row["step"])
        for curve in curves
        for row, later in pairwise(curve)
    )


def after(rows: Sequence[dict[str, Any]], column: str, place: float) -> float:
    """The log-perplexity of a run at a step or a time, on the line between its measurements."""
    ordered = sorted(rows, key=lambda row: row["step"])
    return float(
        np.interp(place, [r[column] for r in ordered], [r["log_perplexity"] for r in ordered])
    )


def shared_time(rows: Sequence[dict[str, Any]]) -> float:
    """The training time that every run has had."""
    return min(max(row["seconds"] for row in run) for run in by(rows, "method", "seed").values())


def _table(rows: Sequence[dict[str, Any]], steps: int) -> str:
    """For every method, over its seeds: after equal steps, after equal time, seconds a step."""
    budget = shared_time(rows)
    ends: dict[str, dict[str, list[float]]] = {}
    for (method, _), run in by(rows, "method", "seed").items():
        of = ends.setdefault(method, {"steps": [], "time": []})
        of["steps"].append(after(run, "step", steps))
        of["time"].append(after(run, "seconds", budget))
    each = {row["method"]: row["seconds"] / row["step"] for row in rows if row["step"]}
    order = sorted(ends, key=lambda method: mean_and_spread(ends[method]["steps"])[0] or 0.0)
    columns = {"method": order}
    for title, name in ((f"after {steps:,} steps", "steps"), (f"after {budget:,.0f} s", "time")):
        columns[title] = number_column([mean_and_spread(ends[m][name]) for m in order], places=4)
    columns["seconds a step"] = [f"{each[method]:.4f}" for method in order]
    return f"validation log-perplexity\n{aligned(columns)}"


def _verdict(rows: Sequence[dict[str, Any]], steps: int) -> list[str]:
    """The paper's claim, and UniPROT compared with as many random choices."""
    budget = shared_time(rows)
    runs = by(rows, "method", "seed")

    def compared_with(other: str) -> str:
        seeds = [seed for method, seed in runs if method == "uniproto" and (other, seed) in runs]
        parts = []
        for title, column, place in (
            (f"after {steps:,} equal steps", "step", steps),
            (f"after equal time, {budget:,.0f} s", "seconds", budget),
        ):
            gaps = [
                after(runs["uniproto", seed], column, place)
                - after(runs[other, seed], column, place)
                for seed in seeds
            ]
            shown = ", ".join(f"{gap:+.4f}" for gap in gaps)
            parts.append(f"{'lower' if max(gaps) < 0 else 'not lower'} {title} ({shown} by seed)")
        return "; ".join(parts)

    if not any(method == "uniproto" for method, _ in runs):
        return [f"UniPROT was not trained for {steps:,} steps."]
    claim = "Claim: choosing half of every pool beats training on all of it. UniPROT's "
    found = [f"{claim}log-perplexity is, compared with that of full: {compared_with(FULL)}."]
    if any(method == "random" for method, _ in runs):
        found.append(f"Compared with that of random halves: {compared_with('random')}.")
    return found


if __name__ == "__main__":
    command_line(run, TITLE)
