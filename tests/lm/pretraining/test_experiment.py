"""What the experiment `pretraining` makes of its runs: which go on, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.runs import Setup
from uniproto.cli.experiment import find_scripts, load_script
from uniproto.lm.pretraining import pretrain as pretraining

experiment = load_script(find_scripts()["pretraining"])


def curve(ends, seconds=1.0, **run):
    """A run measured every 10 steps."""
    steps = range(0, 10 * len(ends), 10)
    return [
        {**run, "step": step, "seconds": step * seconds, "log_perplexity": end}
        for step, end in zip(steps, ends, strict=True)
    ]


def test_a_step_takes_what_it_took_in_the_quickest_stretch():
    disturbed = curve([9.0, 8.0, 7.0], seconds=2.0)
    disturbed[2]["seconds"] = 35.0
    assert experiment.quickest_step([disturbed]) == pytest.approx(1.5)
    assert experiment.quickest_step([disturbed, curve([9.0, 8.0], seconds=1.2)]) == pytest.approx(
        1.2
    )


def test_values_lie_on_the_line_between_measurements():
    rows = curve([9.0, 7.0, 6.0], seconds=0.5)
    assert experiment.after(rows[::-1], "step", 15) == pytest.approx(6.5)
    assert experiment.after(rows, "seconds", 2.5) == pytest.approx(8.0)
    assert experiment.after(rows, "step", 20) == 6.0


def test_the_verdict_says_lower_only_where_every_seed_is():
    def rows(second):
        return [
            *curve([9.0, 5.0], method="uniproto", seed=0),
            *curve([9.0, second], method="uniproto", seed=1),
            *curve([9.0, 6.0], seconds=2.0, method="full", seed=0),
            *curve([9.0, 6.0], seconds=2.0, method="full", seed=1),
        ]

    (said,) = experiment._verdict(rows(5.5), 10)
    assert "lower after 10 equal steps (-1.0000, -0.5000 by seed)" in said
    assert "not lower" not in said
    (said,) = experiment._verdict(rows(6.5), 10)
    assert "not lower after 10 equal steps (-1.0000, +0.5000 by seed)" in said
    assert "; lower after equal time, 10 s (-2.5000, -1.0000 by seed)" in said
    beside = [*rows(5.5), *curve([9.0, 5.0], method="random", seed=0)]
    said = experiment._verdict(beside, 10)[1]
    assert "random halves: not lower after 10 equal steps (+0.0000 by seed)" in said
    assert experiment._verdict(curve([9.0, 6.0], method="full", seed=0), 10) == [
        "UniPROT was not trained for 10 steps."
    ]


def setup_with(out, lengths):
    """A folder of runs, each validated every 10 steps until it was stopped."""
    for (method, seed), steps in lengths.items():
        folder = out / "runs" / f"{method}_{seed}"
        folder.mkdir(parents=True)
        lines = [
            # The second seed is easier than the first, for every method.
            {"step": step, "train_loss": 1.0, "seconds": step * 0.1, "tokens": step}
            | {"val_loss": 9.0 - step / 100 - seed}
            for step in range(0, steps + 1, 10)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return Setup(None, out, quick=True)


SCALE = experiment.Scale(
    "tiny", ("uniproto", "maxloss", "full"), (0, 1), 20, 50, ("uniproto", "full"), 10, 8, 16
)


def test_a_long_run_that_was_killed_goes_on_as_a_long_one(tmp_path: Path, monkeypatch):
    """Its short part is done; asked for that alone, the run would be refused as another one."""
    asked = []
    monkeypatch.setattr(pretraining, "pretrain", lambda settings: asked.append(settings.steps))
    setup = setup_with(tmp_path, {("full", 0): 40})
    for steps in (SCALE.short, SCALE.long):
        experiment._train(setup, SCALE, {"tokens": "tokens"}, "full", 0, steps)
    assert asked == [SCALE.long]


@pytest.mark.slow
def test_methods_are_compared_on_the_seeds_they_share(tmp_path: Path):
    lengths = {("uniproto", 0): 50, ("maxloss", 0): 20, ("full", 0): 50}
    setup = setup_with(tmp_path, {**lengths, ("uniproto", 1): 50, ("full", 1): 50})
    report = experiment._publish(setup, SCALE, last_seed=1, long_methods=["uniproto", "full"])
    short, long, *_ = report.split("\n\n")
    for method in SCALE.methods:  # all are equally good on the first seed
        (row,) = [line.split() for line in short.splitlines() if line.startswith(method)]
        assert row[1] == "8.8000"
    assert "maxloss" not in long
    assert "8.0000" in long  # the mean of 8.5 and 7.5
    assert (tmp_path / "pretraining-long.png").exists()
