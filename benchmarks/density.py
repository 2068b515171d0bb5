"""Density weights: does minority accuracy rise without labels, on which data, and at what price?

Long-tailed targets with balanced sources. The prototypes, with their labels, classify the target by
1-NN in the metric they were chosen in.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import ROOT, MissingDataError, Report

TITLE = "density weights, balanced source, long-tailed target (imbalance 50), 2000 rows each, 1-NN"
_SETS = {
    "mnist": "cosine",
    "cifar10-features": "cosine",
    "usps": "cosine",
    "digits": "cosine",
    "letter": "euclidean",
    "adult": "euclidean",
    "credit": "euclidean",
}
_SIZES = {"digits": (300, 270), "usps": (1000, 1200)}  # what their smallest classes allow
_COUNTS = (50, 200)
_SEEDS_TO_CHOOSE_BY = 3  # the defaults were chosen by these draws …
_SEEDS = 6  # … and checked on the others
_IMBALANCE = 50
_NEIGHBOURS = (5, 10, 20, 30)
_POWERS = (1, 2, 3, 4)
_MEASURES = ("minority", "balanced", "overall")


def run(report: Report, quick: bool) -> None:
    """One row per data set, k and kind of weights, then one per kind of weights over all sets."""
    from uniproto.data import load_dataset
    from uniproto.errors import InputFileError

    folder = os.environ.get("UNIPROTO_DATA") or ROOT.parent / "shared" / "data"
    # {weights: (cases, seeds, 3 measures)}; a case is a data set and a k
    found: dict[str, list[list[NDArray[np.float64]]]] = {}
    for name in ("digits",) if quick else _SETS:
        try:
            data = load_dataset(name, folder)
        except InputFileError as error:
            raise MissingDataError(str(error)) from error
        for k in _COUNTS[:1] if quick else _COUNTS:
            draws = [accuracies(data, k, seed) for seed in range(_SEEDS)]
            for kind in draws[0]:
                every = [draw[kind] for draw in draws]
                found.setdefault(kind, []).append(every)
                means = np.mean(every, axis=0).tolist()
                report.row(
                    f"{name}, k = {k}, {kind}",
                    **dict(zip(_MEASURES, means, strict=True)),
                    all_seeds=[values.tolist() for values in every],
                )
    plain = np.array(found.pop("plain"))
    for kind, values in found.items():
        gains = np.array(values) - plain
        cases = gains.mean(axis=1)
        spread = gains[:, :, 0].std(ddof=1) / gains[:, :, 0].size ** 0.5
        report.row(
            f"all sets, {kind} beside plain",
            **dict(zip(_MEASURES, cases.mean(axis=0).tolist(), strict=True)),
            standard_error=float(spread),
            minority_first_seeds=float(gains[:, :_SEEDS_TO_CHOOSE_BY, 0].mean()),
            minority_other_seeds=float(gains[:, _SEEDS_TO_CHOOSE_BY:, 0].mean()),
            overall_first_seeds=float(gains[:, :_SEEDS_TO_CHOOSE_BY, 2].mean()),
            overall_other_seeds=float(gains[:, _SEEDS_TO_CHOOSE_BY:, 2].mean()),
            cases_where_minority_falls=int((cases[:, 0] < -0.005).sum()),
            worst_minority=float(cases[:, 0].min()),
            worst_overall=float(cases[:, 2].min()),
        )


def accuracies(data: Any, k: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Minority, balanced and overall accuracy for every kind of weights, on one draw."""
    import uniproto
    from uniproto import DensityWeights
    from uniproto.data import balanced_source_and_target
    from uniproto.geometry.blocks import EVERY
    from uniproto.geometry.costs import make_costs

    metric = _SETS[data.name]
    labels = data.train_labels
    classes = int(labels.max()) + 1
    source_size, target_size = _SIZES.get(data.name, (2000, 2000))
    order = np.random.default_rng(seed).permutation(classes)  # which classes are small varies
    source, target = balanced_source_and_target(
        labels,
        source_size // classes,
        imbalance=_IMBALANCE,
        size=target_size,
        order=order.tolist(),
        seed=seed,
    )
    small = order[-max(1, classes // 3) :]  # the smallest third of the classes
    rows, aims = data.train[source].astype(np.float32), data.train[target].astype(np.float32)
    costs = make_costs(rows, aims, metric)
    matrix = costs.block(EVERY)
    weights: dict[str, Any] = {"plain": None, "balanced": _class_weights(labels[target])}
    for q in _NEIGHBOURS:
        for alpha in _POWERS:
            density = DensityWeights(q, alpha)
            weights[f"q={q} alpha={alpha}"] = density.of(costs, device="cpu")
    answers = {}
    for kind, given in weights.items():
        chosen = uniproto.select(
            matrix, k, metric="precomputed", target_weights=given, device="cpu", progress=False
        ).indices
        predicted = labels[source][chosen][matrix[chosen].argmin(axis=0)]
        right = predicted == labels[target]
        recall = np.array([right[labels[target] == label].mean() for label in range(classes)])
        answers[kind] = np.array([recall[small].mean(), recall.mean(), right.mean()])
    return answers


def _class_weights(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    return 1 / np.bincount(labels)[labels]
