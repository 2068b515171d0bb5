"""All methods on USPS, Letter, Adult and Credit: cost, 1-NN accuracy, weights and time.

Every data set in two ways: `summary`, where the rows drawn are both source and target (FasterPAM
can take part there), and `longtail`, a balanced source and a long-tailed target of other rows. All
methods see the same draws; the prototypes classify the target by 1-NN in the metric they were
chosen in. `greedy` is the algorithm of the paper, `uniproto` our search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.datasets import load_dataset
from support.draws import balanced_source_and_target
from support.joined import publish_joined, run_units, warm_up
from support.published import Dataset
from support.runs import Setup, command_line
from support.statistics import ACCURACIES, STARS, by, difference, mean_and_interval, not_lowest
from uniproto import Compute
from uniproto.comparing.accuracy import accuracy, nearest_prototype, weight_skew
from uniproto.comparing.results import aligned
from uniproto.methods import FOR_A_TASK, METHODS
from uniproto.problem.problem import Problem
from uniproto.select import run_method

TITLE = "all methods on USPS, Letter, Adult and Credit: cost, accuracy, weights, time"


@dataclass(frozen=True)
class Part:
    """One data set in one of the two ways; its minority is the smallest third of the classes."""

    data: str
    metric: str
    longtail: bool
    imbalance: float = 10.0  # of the long-tailed target
    rows: int = 1000  # of the source, and of the target
    counts: tuple[int, ...] = (10, 50, 200)
    seeds: int = 5


_SETS = (
    ("usps", "cosine"),
    ("letter", "euclidean"),
    ("adult", "euclidean"),
    ("credit", "euclidean"),
)
PARTS = {
    f"{data}-{'longtail' if longtail else 'summary'}": Part(data, metric, longtail)
    for data, metric in _SETS
    for longtail in (False, True)
}
# As many rows as the smallest class allows, whichever place in the tail it draws.
_FULL_ROWS = {
    "usps": (7000, 1500),
    "letter": (16_000, 3900),
    "adult": (30_000, 5000),
    "credit": (24_000, 3400),
}
FULL_PARTS = {
    name: replace(part, rows=_FULL_ROWS[part.data][part.longtail]) for name, part in PARTS.items()
}
QUICK_PARTS = {
    f"digits-{'longtail' if longtail else 'summary'}": Part(
        "digits", "cosine", longtail, rows=200, counts=(10, 30), seeds=2
    )
    for longtail in (False, True)
}


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, join and publish their results."""
    parts = QUICK_PARTS if setup.quick else FULL_PARTS if setup.full else PARTS
    done = setup.parts(list(parts))
    rows = [row for name in done for row in _run_part(setup, name, parts[name])]
    if not setup.waits_for_others(done):
        publish_joined(setup, "tabular", rows, _report, _charts, ["part"])


def _report(rows: Sequence[dict[str, Any]]) -> str:
    return "\n\n".join([tables(rows), costs_report(rows), differences_report(rows)])


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    def load() -> Dataset:
        data = load_dataset(part.data, setup.data)
        warm_up(data.train[:500])
        return data

    rows = run_units(
        setup,
        f"tabular-{name}",
        asdict(part),
        [{"k": k, "seed": seed} for seed in range(part.seeds) for k in part.counts],
        load,
        lambda data, k, seed: measure(data, part, k, seed),
    )
    return ({"part": name} | row for row in rows)


def measure(data: Dataset, part: Part, k: int, seed: int) -> list[dict[str, Any]]:
    """Every method that can run, on one draw."""
    labels = data.train_labels
    classes = np.unique(labels)
    random = np.random.default_rng(seed)
    methods = {name: method() for name, method in METHODS.items() if name not in FOR_A_TASK}
    if part.longtail:
        del methods["fasterpam"]  # needs source and target to be one set
        order = random.permutation(classes).tolist()
        source, target = balanced_source_and_target(
            labels,
            part.rows // len(classes),
            imbalance=part.imbalance,
            size=part.rows,
            order=order,
            seed=seed,
        )
        aim = data.train[target]
    else:
        source = target = np.sort(random.choice(len(labels), part.rows, replace=False))
        aim = None
    small = _small_classes(labels[target], max(1, len(classes) // 3))
    problem = Problem(
        data.train[source], aim, compute=Compute(device="cpu"), metric=part.metric, seed=seed
    ).with_k(k)
    rows = []
    for name, method in methods.items():
        chosen = run_method(problem, method, progress=False)
        nearest = nearest_prototype(problem.costs, chosen.indices)
        found = accuracy(labels[source][chosen.indices][nearest], labels[target], small)
        ratio, entropy = weight_skew(chosen.weights)
        rows.append(
            {
                "method": name,
                "cost": chosen.cost,
                "seconds": chosen.details.timings["pick"],
                "weight_ratio": ratio,
                "weight_entropy": entropy,
                "minority_accuracy": found.minority,
                "balanced_accuracy": found.balanced,
                "accuracy": found.overall,
            }
        )
    return rows


def _small_classes(labels: NDArray[Any], count: int) -> list[Any]:
    names, sizes = np.unique(labels, return_counts=True)
    return names[np.argsort(sizes, kind="stable")[:count]].tolist()


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the draws, one table per part and k, the lowest cost first."""
    texts = []
    for (part, k), group in by(rows, "part", "k").items():
        runs = by(group, "method")
        order = sorted(runs, key=lambda name: _mean(runs[name], "cost"))
        shown = {
            f"{part}, k = {k}": [name for (name,) in order],
            "cost": [f"{_mean(runs[name], 'cost'):.4f}" for name in order],
            "weight ratio": [f"{_mean(runs[name], 'weight_ratio'):.1f}" for name in order],
            "entropy": [f"{_mean(runs[name], 'weight_entropy'):.3f}" for name in order],
            "seconds": [f"{_mean(runs[name], 'seconds'):.3f}" for name in order],
        }
        for measure_name in ACCURACIES:
            shown[measure_name.removesuffix("_accuracy")] = [
                f"{100 * _mean(runs[name], measure_name):.1f}" for name in order
            ]
        texts.append(aligned(shown))
    return "\n\n".join(texts)


def costs_report(rows: Sequence[dict[str, Any]]) -> str:
    """Is the default the lowest uniform OT cost of all methods, on every data set?"""
    lines = ["Uniform OT cost: is the default the lowest of all methods?"]
    for (part,), group in by(rows, "part").items():
        units = len(by(group, "k", "seed"))
        above = not_lowest(group, "uniproto", "k", "seed")
        lines.append(f"  {part}: in {units - len(above)} of {units} units (k, draw)")
        for (k, seed), name, share in above:
            lines.append(f"    not at k = {k}, seed {seed}: {name} is {share:.2%} lower")
    return "\n".join(lines)


def differences_report(rows: Sequence[dict[str, Any]]) -> str:
    """UniPROT − k-medoids on the same draws: cost in per cent, accuracies in points."""
    lines: dict[str, list[str]] = {"greedy − kmedoids": [], "k": [], "draws": [], "cost, %": []}
    lines |= {name.removesuffix("_accuracy"): [] for name in ACCURACIES}
    for (part, k), group in by(rows, "part", "k").items():
        ours, others = (
            sorted((row for row in group if row["method"] == name), key=lambda row: row["seed"])
            for name in ("greedy", "kmedoids")
        )
        lines["greedy − kmedoids"].append(part)
        lines["k"].append(str(k))
        lines["draws"].append(str(len(ours)))
        costs = [mine["cost"] / other["cost"] for mine, other in zip(ours, others, strict=True)]
        lines["cost, %"].append(difference(costs, [1.0] * len(costs)).starred(100, 1))
        for name in ACCURACIES:
            apart = difference([row[name] for row in ours], [row[name] for row in others])
            lines[name.removesuffix("_accuracy")].append(apart.starred(100, 1))
    return f"Paired differences ± standard error\n{aligned(lines)}\n{STARS}"


def _charts(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    from support.charts import seed_bands_chart

    shown = {
        "greedy": "UniPROT, as in the paper",
        "uniproto": "UniPROT, our default",
        "kmedoids": "k-medoids",
        "fasterpam": "FasterPAM",
        "kmeans": "k-means, nearest",
        "random": "random",
    }
    charts = {}
    for way in ("summary", "longtail"):
        points = []
        for (part, k, method), runs in by(rows, "part", "k", "method").items():
            if not part.endswith(way):
                continue
            best = {
                row["seed"]: row["cost"]
                for row in rows
                if (row["part"], row["k"], row["method"]) == (part, k, "uniproto")
            }
            values = {
                "cost, over default": [row["cost"] / best[row["seed"]] for row in runs],
                "minority accuracy": [row["minority_accuracy"] for row in runs],
                "overall accuracy": [row["accuracy"] for row in runs],
            }
            for word, measured in values.items():
                mean, low, high = mean_and_interval(measured)
                ceiling = np.inf if word.startswith("cost") else 1.0  # of a share
                points.append(
                    {"panel": part.removesuffix(f"-{way}"), "row": word, "k": k}
                    | {"line": method, "shown": shown.get(method)}
                    | {"mean": mean, "low": max(0.0, low), "high": min(ceiling, high)}
                )
        charts[f"tabular-{way}"] = seed_bands_chart(
            points,
            list(shown.values()),
            "Source = target" if way == "summary" else "Balanced source, long-tailed target",
            "bands: 95 % intervals over the draws; grey: all other methods",
        )
    return charts


def _mean(rows: Sequence[dict[str, Any]], column: str) -> float:
    return float(np.mean([row[column] for row in rows]))


if __name__ == "__main__":
    command_line(run, TITLE)
