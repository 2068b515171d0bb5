"""Density weights: does minority accuracy rise without labels, on which data, at what price?

A balanced source and, of other rows, a target whose classes shrink exponentially (imbalance 50;
every draw has its own order of classes). The prototypes, with their labels, classify the target by
1-NN in the metric they were chosen in. `Density(q, alpha)` weighs target j by its distance
to its q-th nearest other target, to the power α; compared with no weights and weights that give
every class the same mass, which need labels.

The rule, fixed beforehand: of all q and α, the largest minority gain that loses at most a point of
overall accuracy on average, chosen on the first half of the draws and judged on the second.

    UNIPROTO_DATA=/path/to/data uniproto experiment density
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import numpy as np

import uniproto
from support.datasets import load_dataset
from support.draws import balanced_source_and_target
from support.joined import publish_joined, run_units
from support.published import Dataset
from support.runs import Setup, command_line, rounded
from support.statistics import ACCURACIES, by, difference
from uniproto import Density
from uniproto.comparing.accuracy import accuracy
from uniproto.comparing.results import aligned
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import make_costs
from uniproto.report.charts import styled

TITLE = "density weights, class-balanced weights and none, on seven long-tailed data sets"
IMBALANCE = 50
DRAWS = 6  # the defaults are chosen on the first half
NEIGHBOURS, POWERS = (5, 10, 20, 30), (1, 2, 3, 4)
MOST_LOST = 0.01  # of overall accuracy, by the rule


@dataclass(frozen=True)
class Part:
    """A data set, its metric, and how many rows of source and target there are."""

    data: str
    metric: str = "cosine"
    source: int = 2000
    target: int = 2000
    counts: tuple[int, ...] = (50, 200)
    draws: int = DRAWS


PARTS = {
    part.data: part
    for part in (
        Part("mnist"),
        Part("cifar10-features"),
        Part("usps", source=1000, target=1200),  # what its smallest class allows, as for digits
        Part("digits", source=300, target=270),
        Part("letter", "euclidean"),
        Part("adult", "euclidean"),
        Part("credit", "euclidean"),
    )
}
QUICK_PARTS = {"digits": Part("digits", source=300, target=270, counts=(50,), draws=2)}


def run(setup: Setup) -> None:
    """Every data set; then what weights change, and which the rule chooses."""
    parts = QUICK_PARTS if setup.quick else PARTS
    done = setup.parts(list(parts))
    rows = [rounded(row) for name in done for row in _run_part(setup, parts[name])]
    if not setup.waits_for_others(done):
        publish_joined(setup, "density", rows, _report, density_chart, ["data"])


def _report(rows: Sequence[dict[str, Any]]) -> str:
    return "\n\n".join(density_reports(rows).values())


def _run_part(setup: Setup, part: Part) -> Iterator[dict[str, Any]]:
    rows = run_units(
        setup,
        f"density-{part.data}",
        asdict(part),
        [{"k": k, "seed": seed} for k in part.counts for seed in range(part.draws)],
        lambda: load_dataset(part.data, setup.data),
        lambda data, k, seed: measure(data, part, k, seed),
    )
    return ({"data": part.data} | row for row in rows)


def measure(data: Dataset, part: Part, k: int, seed: int) -> Iterator[dict[str, Any]]:
    """One draw: UniPROT with every kind of weights, by 1-NN."""
    labels = data.train_labels
    classes = np.unique(labels)
    order = np.random.default_rng(seed).permutation(classes).tolist()
    source, target = balanced_source_and_target(
        labels,
        part.source // len(classes),
        imbalance=IMBALANCE,
        size=part.target,
        order=order,
        seed=seed,
    )
    small = order[-max(1, len(classes) // 3) :]  # the smallest third of the classes
    rows, aims = data.train[source].astype(np.float32), data.train[target].astype(np.float32)
    costs = make_costs(rows, aims, part.metric)
    matrix = costs.block(EVERY)
    of_class = np.bincount(labels[target])
    weights: dict[str, Any] = {"none": None, "class-balanced": 1 / of_class[labels[target]]}
    for q in NEIGHBOURS:
        for alpha in POWERS:
            weights[f"q {q}, α {alpha}"] = Density(q, alpha).of(costs, device="cpu")
    for kind, given in weights.items():
        chosen = uniproto.select(
            matrix,
            k,
            metric="precomputed",
            target_weights=given,
            method=uniproto.Greedy(),  # as in the paper
            compute=uniproto.Compute(device="cpu"),
            progress=False,
        ).indices
        predicted = labels[source][chosen][matrix[chosen].argmin(axis=0)]
        found = accuracy(predicted, labels[target], small)
        yield {
            "weights": kind,
            "minority_accuracy": found.minority,
            "balanced_accuracy": found.balanced,
            "accuracy": found.overall,
        }


def density_reports(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Every table of docs/density-weights.md by its name."""
    return {"beside": beside_table(rows), "rule": rule_report(rows), "sets": sets_table(rows)}


def _gains(rows: Sequence[dict[str, Any]], kind: str, measure_name: str) -> list[dict[str, Any]]:
    """What a kind of weights changes compared with none, draw by draw."""
    cell = ("data", "k", "seed")
    plain = {tuple(r[c] for c in cell): r[measure_name] for r in rows if r["weights"] == "none"}
    return [
        {name: row[name] for name in cell}
        | {"gain": row[measure_name] - plain[tuple(row[name] for name in cell)]}
        for row in rows
        if row["weights"] == kind
    ]


def _kinds(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [kind for (kind,) in by(rows, "weights") if kind != "none"]


def _first_half(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], ...]:
    middle = len({row["seed"] for row in rows}) // 2
    return ([r for r in rows if r["seed"] < middle], [r for r in rows if r["seed"] >= middle])


def _mean(gains: Sequence[dict[str, Any]]) -> float:
    return float(np.mean([row["gain"] for row in gains]))


def _points(gains: Sequence[dict[str, Any]]) -> str:
    """Mean ± standard error over data sets, whose draws are alike."""
    values = [_mean(group) for group in by(gains, "data").values()]
    found = difference(values, [0.0] * len(values))
    return f"{100 * _mean(gains):+.1f} ± {100 * (found.error or 0.0):.1f}"


def beside_table(rows: Sequence[dict[str, Any]]) -> str:
    """Every kind of weights compared with none, over all data sets and k."""
    kinds = _kinds(rows)
    table: dict[str, list[str]] = {"beside no weights": kinds}
    for measure_name, word in ACCURACIES.items():
        table[word] = [_points(_gains(rows, kind, measure_name)) for kind in kinds]
    halves = dict(zip(("first draws", "other draws"), _first_half(rows), strict=True))
    for measure_name in ("minority_accuracy", "accuracy"):
        for title, half in halves.items():
            table[f"{ACCURACIES[measure_name]}, {title}"] = [
                f"{100 * _mean(_gains(half, kind, measure_name)):+.1f}" for kind in kinds
            ]
    minority, overall = (
        {kind: [_mean(g) for g in by(_gains(rows, kind, name), "data", "k").values()]
         for kind in kinds}
        for name in ("minority_accuracy", "accuracy")
    )  # fmt: skip
    table["minority falls"] = [
        f"{sum(value < -0.005 for value in minority[kind])} of {len(minority[kind])}"
        for kind in kinds
    ]
    table["worst minority"] = [f"{100 * min(minority[kind]):+.1f}" for kind in kinds]
    table["worst overall"] = [f"{100 * min(overall[kind]):+.1f}" for kind in kinds]
    return aligned(table)


def chosen_by_rule(rows: Sequence[dict[str, Any]]) -> str:
    """The density weights with the largest minority gain of those that lose little overall."""
    allowed = [
        kind
        for kind in _kinds(rows)
        if kind != "class-balanced" and _mean(_gains(rows, kind, "accuracy")) >= -MOST_LOST
    ]
    return max(allowed, key=lambda kind: _mean(_gains(rows, kind, "minority_accuracy")))


def rule_report(rows: Sequence[dict[str, Any]]) -> str:
    """What the rule chooses on the first draws, and what it gains on the others."""
    first, others = _first_half(rows)
    kind = chosen_by_rule(first)
    gained = [f"{word} {_points(_gains(others, kind, name))}" for name, word in ACCURACIES.items()]
    return (
        f"The rule chooses {kind} on the first draws; on the others it gains {', '.join(gained)}. "
        f"There it would choose {chosen_by_rule(others)}, on all draws {chosen_by_rule(rows)}."
    )


def sets_table(rows: Sequence[dict[str, Any]]) -> str:
    """Minority / balanced / overall accuracy in per cent, by data set and k."""
    cases = by(rows, "data", "k")
    table = {"%": [f"{data}, k = {k}" for data, k in cases]}
    for kind in ("none", "class-balanced", "q 5, α 2", "q 10, α 2", "q 30, α 4"):
        table[kind] = [
            " / ".join(
                f"{100 * np.mean([r[name] for r in case if r['weights'] == kind]):.1f}"
                for name in ACCURACIES
            )
            for case in cases.values()
        ]
    return aligned(table)


def density_chart(rows: Sequence[dict[str, Any]]) -> Any:
    """Minority against overall gain of every q and α."""
    points = []
    for kind in _kinds(rows):
        gains = {name: _mean(_gains(rows, kind, name)) for name in ACCURACIES}
        words = kind.split(", ")
        points.append(
            {"minority": gains["minority_accuracy"], "overall": gains["accuracy"], "kind": kind}
            | {"neighbours": words[0], "power": words[-1]}
        )
    chart = (
        alt.Chart(alt.Data(values=[p for p in points if p["kind"] != "class-balanced"]))
        .mark_point(filled=True, size=90)
        .encode(
            x=alt.X("overall:Q", title="overall accuracy, gain", axis=alt.Axis(format="+.1%")),
            y=alt.Y("minority:Q", title="minority accuracy, gain", axis=alt.Axis(format="+.0%")),
            color=alt.Color("power:N", title=None),
            shape=alt.Shape("neighbours:N", title=None, sort=[f"q {q}" for q in NEIGHBOURS]),
        )
        .properties(width=420, height=280)
    )
    return styled(
        chart,
        "Density weights compared with none",
        "means over data sets, k and draws; up and right is better",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
