"""Do equally weighted prototypes serve minority classes better than k-medoids? (Figure 3)

A balanced source, a skewed target of other rows, no labels while choosing. The prototypes then get
their labels and classify the target by 1-NN, in the metric they were chosen in. All methods see the
same draws, so differences are paired. The parts:

- `curves-…`   every method against the number of prototypes, on the paper's own settings;
- `factors-…`  UniPROT and k-medoids over features, skew, metric, k, target weights and budgets;
- `kernels-…`  both under a Gaussian similarity, over its bandwidth, and without one, for rows as
               given (by Euclidean distance) and of length 1 (`-unit`, by cosine). The best setting
               of each is chosen on the first half of the draws and judged on the second;
- `plans-…`    the ways to keep the plan between picks, entropic ones as in the paper among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import uniproto
from support.datasets import load_dataset
from support.joined import run_units, warm_up
from support.longtail import PCA_DIMENSIONS, Draw, Setting, draw_from, features_of
from support.longtail_report import (
    curves_chart,
    differences,
    factors_chart,
    kernels_chart,
    longtail_reports,
)
from support.published import Dataset
from support.runs import Runs, Setup, command_line, rounded
from uniproto import Density, Entropic, Greedy
from uniproto.comparing.accuracy import accuracy, nearest_prototype, weight_skew
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import make_costs
from uniproto.methods import FOR_A_TASK, METHODS
from uniproto.problem.problem import Problem
from uniproto.select import run_method

TITLE = "minority accuracy of UniPROT, k-medoids and others: MNIST skews, CIFAR-10-LT (Figure 3)"

BANDWIDTHS = (1.0, 0.5, 0.35, 0.25, 0.15)  # shares of the median distance


@dataclass(frozen=True)
class Part:
    """Settings measured in the same way."""

    measure: Callable[[Draw, int, int], list[dict[str, Any]]]
    settings: tuple[Setting, ...]
    counts: tuple[int, ...]
    seeds: int


def curves(draw: Draw, k: int, seed: int) -> list[dict[str, Any]]:
    """Every method, the default among them; UniPROT and k-medoids with weights and with budgets."""
    every = {name: METHODS[name]() for name in METHODS if name not in ("fasterpam", *FOR_A_TASK)}
    baselines = {name: every[name] for name in ("greedy", "kmedoids")}
    asked: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "plain": (every, {}),
        "density": (baselines, {"target_weights": uniproto.Density()}),
        "balanced": (baselines, {"target_weights": uniproto.Balanced(draw.target_labels)}),
        "budgets": (
            baselines,
            {"groups": uniproto.Groups(draw.labels, target=draw.target_labels, budgets="balanced")},
        ),
    }
    rows = []
    for aim, (methods, options) in asked.items():
        problem = Problem(
            draw.source,
            draw.target,
            compute=uniproto.Compute(device="cpu"),
            metric=draw.metric,
            seed=seed,
            **options,
        ).with_k(k)
        for name, method in methods.items():
            chosen = run_method(problem, method, progress=False)
            nearest = nearest_prototype(problem.costs, chosen.indices)
            rows.append(
                {
                    "method": name,
                    "aim": aim,
                    # a weighted target is another one: its cost is not to be compared
                    "cost": None if "target_weights" in options else chosen.cost,
                    "seconds": chosen.details.timings["pick"],
                    "weight_ratio": weight_skew(chosen.weights)[0],
                }
                | _accuracies(draw, chosen.indices, nearest, by_class=True)
            )
    return rows


def factors(draw: Draw, k: int, seed: int) -> list[dict[str, Any]]:
    """UniPROT and k-medoids, plain, and (cosine only) with weights and with budgets."""
    costs = make_costs(draw.source, draw.target, draw.metric)
    matrix = costs.block(EVERY)
    asked: dict[str, dict[str, Any]] = {"plain": {}}
    if draw.metric == "cosine":
        sizes = dict(zip(*np.unique(draw.target_labels, return_counts=True), strict=True))
        asked["density"] = {"target_weights": Density().of(costs, device="cpu")}
        asked["balanced"] = {"target_weights": [1 / sizes[name] for name in draw.target_labels]}
        groups = uniproto.Groups(draw.labels, target=draw.target_labels, budgets="balanced")
        asked["budgets"] = {"groups": groups}
    return [
        {"method": method, "aim": aim} | _judged(matrix, draw, k, method, options)
        for aim, options in asked.items()
        for method in ("greedy", "kmedoids")
    ]


def kernels(draw: Draw, k: int, seed: int) -> list[dict[str, Any]]:
    """UniPROT and k-medoids in the plain metric, and under 1 − exp(−d²/2σ²) for every σ."""
    near = make_costs(draw.source, draw.target, draw.metric).block(EVERY)
    distances = make_costs(draw.source, draw.target, "euclidean").block(EVERY)
    median = make_costs(draw.source, draw.target, "rbf", "1 median").bandwidth
    rows = []
    for share in (None, *BANDWIDTHS):
        if share is None:
            matrix, metric = near, draw.metric
        else:
            matrix, metric = -np.expm1(-((distances / (share * median)) ** 2) / 2), f"rbf {share:g}"
        for method in ("greedy", "kmedoids"):
            named = {"method": method, "aim": "plain", "metric": metric}
            rows.append(named | _judged(matrix, draw, k, method, {}, near, by_class=True))
    return rows


def plans(draw: Draw, k: int, seed: int) -> list[dict[str, Any]]:
    """The plans of UniPROT compared with k-medoids."""
    matrix = make_costs(draw.source, draw.target, draw.metric).block(EVERY)
    methods = {
        "kmedoids": "kmedoids",
        "greedy": Greedy(),
        "greedy, resolve": Greedy(plan="resolve"),
        "greedy, entropic 0.01": Greedy(plan=Entropic(reg=0.01)),
        "greedy, entropic 0.1": Greedy(plan=Entropic(reg=0.1)),
    }
    return [
        {"method": name, "aim": "plain"} | _judged(matrix, draw, k, method, {})
        for name, method in methods.items()
    ]


def _judged(
    matrix: NDArray[np.float32],
    draw: Draw,
    k: int,
    method: Any,
    options: dict[str, Any],
    near: NDArray[np.float32] | None = None,
    by_class: bool = False,
) -> dict[str, Any]:
    """A selection by a matrix of costs, judged by 1-NN in it, or in the costs it is made of."""
    chosen = uniproto.select(
        matrix,
        k,
        metric="precomputed",
        method=method,
        compute=uniproto.Compute(device="cpu"),
        progress=False,
        **options,
    )
    nearest = (matrix if near is None else near)[chosen.indices].argmin(axis=0)
    row = {"seconds": chosen.details.timings["pick"]}
    if "marginal_violation" in chosen.details.notes:  # an entropic plan
        row["violation"] = chosen.details.notes["marginal_violation"]
    return row | _accuracies(draw, chosen.indices, nearest, by_class)


def _accuracies(
    draw: Draw, chosen: NDArray[np.int64], nearest: NDArray[np.intp], by_class: bool = False
) -> dict[str, Any]:
    labels = draw.labels[chosen]
    found = accuracy(labels[nearest], draw.target_labels, draw.minority)
    per_class = {f"class_{label}": share for label, share in found.per_class.items()}
    return {
        "minority_accuracy": found.minority,
        "balanced_accuracy": found.balanced,
        "accuracy": found.overall,
        "minority_prototypes": int(np.isin(labels, draw.minority).sum()),
        "minority_share": float(np.isin(draw.target_labels, draw.minority).mean()),
    } | (per_class if by_class else {})


COUNTS = (10, 20, 50, 100, 200)
FEW_COUNTS = (10, 50, 200)
SHARES = (0.01, 0.03, 0.05, 0.10)
IMBALANCES = (10.0, 50.0, 100.0)
METRICS = ("cosine", "euclidean", "sqeuclidean")
MNIST = Setting("mnist")
CIFAR = Setting("cifar10-features")
PIXELS = Setting("cifar10", per_class=150, size=None)  # of 500 rows per class
LAST = (7, 8, 9)  # the customary tail of CIFAR-10
KERNEL_DRAWS = 20  # ten to choose the best setting of each method, ten to judge it


def _mnist(features: str) -> tuple[Setting, ...]:
    return tuple(
        replace(MNIST, features=features, share=share, metric=metric)
        for share in SHARES
        for metric in METRICS
    )


def _cifar(like: Setting, features: str) -> tuple[Setting, ...]:
    return tuple(
        replace(like, features=features, imbalance=imbalance, metric=metric)
        for imbalance in IMBALANCES
        for metric in METRICS
    )


def _kernels(name: str, settings: tuple[Setting, ...], counts: tuple[int, ...]) -> dict[str, Part]:
    """A part with rows as given and one with rows of length 1, each in its plain metric."""
    kinds = {"": ("as given", "euclidean"), "-unit": ("unit", "cosine")}
    return {
        f"kernels-{name}{ending}": Part(
            kernels,
            tuple(replace(one, features=features, metric=metric) for one in settings),
            counts,
            KERNEL_DRAWS,
        )
        for ending, (features, metric) in kinds.items()
    }


PARTS = {
    "curves-mnist-0-5": Part(curves, (replace(MNIST, share=0.05, small=(0, 5)),), COUNTS, 5),
    "curves-mnist-0-7": Part(curves, (replace(MNIST, share=0.03, small=(0, 7)),), COUNTS, 5),
    "curves-cifar-features": Part(
        curves, (replace(CIFAR, imbalance=100.0, small=LAST),), COUNTS, 5
    ),
    "curves-cifar-pixels": Part(curves, (replace(PIXELS, imbalance=100.0, small=LAST),), COUNTS, 5),
    "factors-mnist-pixels": Part(factors, _mnist("as given"), FEW_COUNTS, 10),
    "factors-mnist-pca": Part(factors, _mnist("pca"), FEW_COUNTS, 10),
    "factors-cifar-features": Part(factors, _cifar(CIFAR, "as given"), FEW_COUNTS, 10),
    "factors-cifar-pixels": Part(factors, _cifar(PIXELS, "as given"), FEW_COUNTS, 10),
    "factors-cifar-pca": Part(factors, _cifar(PIXELS, "pca"), FEW_COUNTS, 10),
    **_kernels("mnist-0-5", (replace(MNIST, share=0.05, small=(0, 5)),), (50, 200)),
    **_kernels("mnist-0-7", (replace(MNIST, share=0.03, small=(0, 7)),), (50, 200)),
    **_kernels("cifar-features", (replace(CIFAR, imbalance=100.0, small=LAST),), (50, 200)),
    **_kernels("cifar-whole", (replace(CIFAR, imbalance=100.0, small=LAST, size=None),), (50,)),
    **_kernels("mnist-skews", tuple(replace(MNIST, share=share) for share in SHARES), (50,)),
    **_kernels("cifar-skews", tuple(replace(CIFAR, imbalance=skew) for skew in IMBALANCES), (50,)),
    "plans-mnist": Part(plans, (replace(MNIST, share=0.05),), (10, 20), 10),
    "plans-cifar": Part(plans, (replace(CIFAR, imbalance=100.0),), (10, 20), 10),
}
# What two cores have no time for; the pixels of CIFAR-10 are a subset and stay as they are.
_FULL_SIZES: dict[str, dict[str, Any]] = {
    "mnist": {"per_class": 2000, "size": 20_000},
    "cifar10-features": {"per_class": 1500, "size": None},
    "cifar10": {},
}
FULL_PARTS = {
    name: replace(
        part, settings=tuple(replace(one, **_FULL_SIZES[one.data]) for one in part.settings)
    )
    for name, part in PARTS.items()
    if part.measure is not plans  # whose entropic plans take hours at any larger size
}
_DIGITS = Setting("digits", share=0.03, per_class=30, size=300)
QUICK_PARTS = {
    "curves-digits": Part(curves, (replace(_DIGITS, small=(0, 5)),), (10, 20), 2),
    "factors-digits": Part(
        factors, tuple(replace(_DIGITS, metric=metric) for metric in METRICS[:2]), (10,), 2
    ),
    "kernels-digits": Part(kernels, (replace(_DIGITS, metric="euclidean"),), (10,), 4),
    "kernels-digits-unit": Part(kernels, (replace(_DIGITS, features="unit"),), (10,), 4),
    "plans-digits": Part(plans, (_DIGITS,), (10,), 1),
}


def run(setup: Setup) -> None:
    """Run the parts of `setup`; once all have run, join and publish their results."""
    parts = QUICK_PARTS if setup.quick else FULL_PARTS if setup.full else PARTS
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in setup.parts(list(parts)):
        rows[name] = list(_run_part(setup, name, parts[name]))
    if setup.waits_for_others(rows):
        return
    joined = [rounded(row) for name in rows for row in rows[name]]  # as saved
    table = [rounded(row) for row in differences(joined)]
    report = "\n\n".join(longtail_reports(joined).values())
    drawn = [row for row in joined if row["part"].startswith("curves")]
    of_kernels = [row for row in joined if row["part"].startswith("kernels")]
    others = [row for row in joined if row["part"].startswith(("factors", "plans"))]
    _publish(setup, "longtail", drawn, curves_chart(drawn), report)
    _publish(setup, "longtail-factors", others)
    _publish(setup, "longtail-differences", table, factors_chart(table))
    _publish(setup, "longtail-kernels", of_kernels, kernels_chart(table))
    print(report)
    print(f"\nwritten to {setup.out}")


def _publish(
    setup: Setup,
    name: str,
    rows: Sequence[dict[str, Any]],
    chart: Any = None,
    report: str = "",
) -> None:
    """Write joined rows, which are computed from the rows of the parts."""
    (setup.out / f"{name}.jsonl").unlink(missing_ok=True)
    runs = Runs(setup.out, name, {"quick": setup.quick, "pca_dimensions": PCA_DIMENSIONS})
    runs.add({}, rows)
    runs.publish({} if chart is None else {name: chart}, report)


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    features: dict[tuple[str, str], tuple[Dataset, NDArray[np.float32]]] = {}

    def of_unit(_: None, setting: int, k: int, seed: int) -> list[dict[str, Any]]:
        asked = part.settings[setting]
        kind = (asked.data, asked.features)
        known = kind in features
        if not known:
            data = load_dataset(asked.data, setup.data)
            features[kind] = data, features_of(data, asked.features)
        draw = draw_from(*features[kind], asked, seed)
        if not known:
            warm_up(draw.source, draw.target)
        return [asked.columns | row for row in part.measure(draw, k, seed)]

    rows = run_units(
        setup,
        f"longtail-{name}",
        {
            "pca_dimensions": PCA_DIMENSIONS,
            "settings": [asdict(setting) for setting in part.settings],
            "counts": part.counts,
            "seeds": part.seeds,
        },
        [
            {"setting": place, "k": k, "seed": seed}
            for place in range(len(part.settings))
            for seed in range(part.seeds)
            for k in part.counts
        ],
        lambda: None,
        of_unit,
    )
    return ({"part": name} | row for row in rows)


if __name__ == "__main__":
    command_line(run, TITLE)
