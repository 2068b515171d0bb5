"""Do equally weighted prototypes serve minority classes better than k-medoids? (Figure 3)

A balanced source, a skewed target of other rows, no labels while choosing. The prototypes then get
their labels and classify the target by 1-NN, in the metric they were chosen in. All methods see the
same draws, so differences are paired. The parts:

- `curves-…`   every method against the number of prototypes, on the paper's own settings;
- `factors-…`  UniPROT beside k-medoids over features, skew, metric, k, target weights and budgets;
- `plans-…`    the ways to keep the plan between picks, entropic ones as in the paper among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import uniproto
from support.runs import Runs, Setup, command_line
from support.statistics import by, difference, mean_and_interval, not_lowest
from uniproto import DensityWeights, UniProto
from uniproto.comparing.accuracy import accuracy, nearest_prototype, weight_skew
from uniproto.comparing.compare import small_problem, warms_up
from uniproto.comparing.results import aligned
from uniproto.data import Dataset, balanced_source_and_target, load_dataset
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import make_costs
from uniproto.methods import FOR_A_TASK, METHODS
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.select import run_method

TITLE = "minority accuracy beside k-medoids and the others: MNIST skews, CIFAR-10-LT (Figure 3)"

POLISH_SECONDS, QUICK_POLISH_SECONDS = 5, 0.3
PCA_DIMENSIONS = 50
SMALL_CLASSES = 3  # of a long tail, these count as the minority
MEASURES = {
    "minority_accuracy": "minority",
    "balanced_accuracy": "balanced",
    "accuracy": "overall",
}


@dataclass(frozen=True)
class Setting:
    """One way to draw a source and a target. `share` goes with MNIST, `imbalance` with CIFAR."""

    data: str
    features: str = "as given"  # or "pca"
    share: float | None = None
    imbalance: float | None = None
    small: tuple[int, ...] | None = None  # None: every seed draws its own small classes
    metric: str = "cosine"
    per_class: int = 200  # of the source
    size: int | None = 2000  # of the target; None: all that the classes have rows for

    @property
    def skew(self) -> str:
        return f"{self.share:.0%}" if self.share is not None else f"1:{self.imbalance:g}"

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "data": self.data,
            "features": self.features,
            "skew": self.skew,
            "metric": self.metric,
        }


@dataclass(frozen=True)
class Part:
    """Settings measured in the same way."""

    measure: Callable[[Draw, int, int], list[dict[str, Any]]]
    settings: tuple[Setting, ...]
    counts: tuple[int, ...]
    seeds: int


@dataclass(frozen=True)
class Draw:
    """What every method of a unit sees."""

    source: NDArray[np.float32]
    target: NDArray[np.float32]
    labels: NDArray[Any]
    target_labels: NDArray[Any]
    minority: list[Any]
    metric: str


def curves(draw: Draw, k: int, seed: int, polish: float = POLISH_SECONDS) -> list[dict[str, Any]]:
    """Every method; UniPROT polished; UniPROT and k-medoids with weights and with budgets."""
    every = {name: METHODS[name]() for name in METHODS if name not in ("fasterpam", *FOR_A_TASK)}
    beside = {name: METHODS[name]() for name in ("uniproto", "kmedoids")}
    asked: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "plain": (every | {"uniproto+polish": UniProto(polish=polish)}, {}),
        "density": (beside, {"target_weights": "density"}),
        "balanced": (beside, {"target_weights": "balanced", "target_labels": draw.target_labels}),
        "budgets": (
            beside,
            {"groups": draw.labels, "target_groups": draw.target_labels, "budgets": "balanced"},
        ),
    }
    rows = []
    for aim, (methods, options) in asked.items():
        problem = Problem(
            draw.source, draw.target, k=k, metric=draw.metric, seed=seed, device="cpu", **options
        )
        for name, method in methods.items():
            chosen = run_method(problem, method, progress=False)
            nearest = nearest_prototype(problem.costs, chosen.indices)
            rows.append(
                {
                    "method": name,
                    "aim": aim,
                    # a weighted target is another one: its cost is not to be compared
                    "cost": None if "target_weights" in options else chosen.cost,
                    "seconds": chosen.timings["pick"],
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
        asked["density"] = {"target_weights": DensityWeights().of(costs, device="cpu")}
        asked["balanced"] = {"target_weights": [1 / sizes[name] for name in draw.target_labels]}
        asked["budgets"] = {
            "groups": draw.labels,
            "target_groups": draw.target_labels,
            "budgets": "balanced",
        }
    return [
        {"method": method, "aim": aim} | _judged(matrix, draw, k, method, options)
        for aim, options in asked.items()
        for method in ("uniproto", "kmedoids")
    ]


def plans(draw: Draw, k: int, seed: int) -> list[dict[str, Any]]:
    """The plans of UniPROT beside k-medoids."""
    matrix = make_costs(draw.source, draw.target, draw.metric).block(EVERY)
    methods = {
        "kmedoids": "kmedoids",
        "uniproto": UniProto(),
        "uniproto, resolve": UniProto(plan="resolve"),
        "uniproto, entropic 0.01": UniProto(plan="entropic", reg=0.01),
        "uniproto, entropic 0.1": UniProto(plan="entropic", reg=0.1),
    }
    return [
        {"method": name, "aim": "plain"} | _judged(matrix, draw, k, method, {})
        for name, method in methods.items()
    ]


def _judged(
    matrix: NDArray[np.float32], draw: Draw, k: int, method: Any, options: dict[str, Any]
) -> dict[str, Any]:
    chosen = uniproto.select(
        matrix, k, metric="precomputed", method=method, device="cpu", progress=False, **options
    )
    nearest = matrix[chosen.indices].argmin(axis=0)
    return {"seconds": chosen.timings["pick"]} | _accuracies(draw, chosen.indices, nearest)


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
    "plans-mnist": Part(plans, (replace(MNIST, share=0.05),), (10, 20), 5),
    "plans-cifar": Part(plans, (replace(CIFAR, imbalance=100.0),), (10, 20), 5),
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
TITLES = {  # of the panels
    "curves-mnist-0-5": "MNIST, 0 and 5 at 5 % each",
    "curves-mnist-0-7": "MNIST, 0 and 7 at 3 % each",
    "curves-cifar-features": "CIFAR-10-LT 1:100, features",
    "curves-cifar-pixels": "CIFAR-10-LT 1:100, pixels",
    "factors-mnist-pixels": "MNIST, pixels",
    "factors-mnist-pca": "MNIST, PCA",
    "factors-cifar-features": "CIFAR-10, features",
    "factors-cifar-pixels": "CIFAR-10, pixels",
    "factors-cifar-pca": "CIFAR-10 pixels, PCA",
}
_DIGITS = Setting("digits", share=0.03, per_class=30, size=300)
QUICK_PARTS = {
    "curves-digits": Part(
        partial(curves, polish=QUICK_POLISH_SECONDS), (replace(_DIGITS, small=(0, 5)),), (10, 20), 2
    ),
    "factors-digits": Part(
        factors, tuple(replace(_DIGITS, metric=metric) for metric in METRICS[:2]), (10,), 2
    ),
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
    joined = [row for name in rows for row in rows[name]]
    table = differences(joined)
    report = "\n\n".join(
        [
            curves_report(joined),
            costs_report(joined),
            differences_report(table, joined),
            prototypes_report(joined),
            lift_report(joined),
            "fasterpam is not here: it needs source and target to be one set (see tabular.py).",
        ]
    )
    drawn = [row for row in joined if row["part"].startswith("curves")]
    others = [row for row in joined if not row["part"].startswith("curves")]
    _publish(setup, "longtail", drawn, curves_chart(drawn), report)
    _publish(setup, "longtail-factors", others)
    _publish(setup, "longtail-differences", table, factors_chart(table))
    print(report)
    print(f"\nwritten to {setup.out}")


def _publish(
    setup: Setup,
    name: str,
    rows: Sequence[dict[str, Any]],
    chart: Any = None,
    report: str = "",
) -> None:
    """Write joined rows, to five digits; they are made anew from the rows of the parts."""
    (setup.out / f"{name}.jsonl").unlink(missing_ok=True)
    runs = Runs(setup.out, name, _settings(setup.quick))
    rounded = [
        {
            column: float(f"{value:.5g}") if isinstance(value, float) else value
            for column, value in row.items()
        }
        for row in rows
    ]
    runs.add({}, rounded)
    runs.publish({} if chart is None else {name: chart}, report)


def _settings(quick: bool) -> dict[str, Any]:
    polish = QUICK_POLISH_SECONDS if quick else POLISH_SECONDS
    return {"quick": quick, "polish_seconds": polish, "pca_dimensions": PCA_DIMENSIONS}


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    """The rows of a part: what is done is read, the rest is run."""
    described = {
        "settings": [asdict(setting) for setting in part.settings],
        "counts": part.counts,
        "seeds": part.seeds,
    }
    runs = Runs(setup.out, f"longtail-{name}", _settings(setup.quick) | described)
    units = [
        (place, k, seed)
        for place in range(len(part.settings))
        for seed in range(part.seeds)
        for k in part.counts
        if not runs.done(setting=place, k=k, seed=seed)
    ]
    with Progress(setup.progress).stage(f"longtail {name}", len(units)) as advance:
        features: dict[tuple[str, str], tuple[Dataset, NDArray[np.float32]]] = {}
        for place, k, seed in units:
            setting = part.settings[place]
            kind = (setting.data, setting.features)
            if kind not in features:
                data = load_dataset(setting.data, setup.data)
                features[kind] = data, _features(data, setting.features)
                _warm_up(draw_from(*features[kind], setting, seed))
            draw = draw_from(*features[kind], setting, seed)
            rows = [setting.columns | row for row in part.measure(draw, k, seed)]
            runs.add({"setting": place, "k": k, "seed": seed}, rows)
            advance(1)
    return ({"part": name} | row for row in runs.rows)


def _warm_up(draw: Draw) -> None:
    """Load every method's compiled code, which is not to be counted as the first unit's time."""
    small = small_problem(Problem(draw.source, draw.target, k=20, device="cpu"))
    for name in set(METHODS) - set(FOR_A_TASK):
        warms_up(small, METHODS[name]())


def _features(data: Dataset, kind: str) -> NDArray[np.float32]:
    rows = data.train.astype(np.float32)
    if kind == "as given":
        return rows
    some = rows[np.random.default_rng(0).permutation(len(rows))[:5000]]
    middle = some.mean(axis=0)
    axes = np.linalg.eigh(np.cov(some - middle, rowvar=False))[1][:, -PCA_DIMENSIONS:]
    return ((rows - middle) @ axes).astype(np.float32)


def draw_from(data: Dataset, rows: NDArray[np.float32], setting: Setting, seed: int) -> Draw:
    """A balanced source and a skewed target of other rows; the seed decides which."""
    labels = data.train_labels
    classes = np.unique(labels)
    random = np.random.default_rng(seed)
    if setting.share is not None:
        small = setting.small or tuple(random.choice(classes, 2, replace=False).tolist())
        how: dict[str, Any] = {"classes": small, "share": setting.share}
    else:
        order = classes.tolist() if setting.small else random.permutation(classes).tolist()
        small = tuple(order[-SMALL_CLASSES:])
        how = {"imbalance": setting.imbalance, "order": order}
    source, target = balanced_source_and_target(
        labels, setting.per_class, size=setting.size, seed=seed, **how
    )
    return Draw(
        rows[source], rows[target], labels[source], labels[target], list(small), setting.metric
    )


def differences(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """UniPROT − k-medoids on the same draws, one row per setting, k, aim and measure."""
    table = []
    columns = ("part", "data", "features", "skew", "metric", "k", "aim")
    for key, group in by(rows, *columns).items():
        found = {
            name: {row["seed"]: row for row in runs}
            for (name,), runs in by(group, "method").items()
        }
        others = found["kmedoids"]
        for name, ours in found.items():
            if not name.startswith("uniproto"):
                continue
            for measure, word in MEASURES.items():
                values = [
                    [runs[seed][measure] for seed in sorted(others)] for runs in (ours, others)
                ]
                apart = difference(*values)
                table.append(
                    dict(zip(columns, key, strict=True))
                    | {"method": name, "measure": word}
                    | {"uniproto": np.mean(values[0]), "kmedoids": np.mean(values[1])}
                    | {"difference": apart.mean, "standard_error": apart.error}
                    | {"draws": apart.draws, "above": apart.above, "equal": apart.equal}
                    | {"verdict": apart.verdict}
                )
    return table


def curves_report(rows: Sequence[dict[str, Any]]) -> str:
    """Minority / balanced / overall accuracy in per cent, and seconds: means over the seeds."""
    texts = []
    for (part,), group in by(rows, "part").items():
        if not part.startswith("curves"):
            continue
        counts = list(by(group, "k"))
        lines = by(group, "method", "aim")
        table = {"": [name if aim == "plain" else f"{name}, {aim}" for name, aim in lines]}
        for (k,) in counts:
            table[f"k = {k}"] = [
                " / ".join(f"{100 * _mean(runs, name, k):.1f}" for name in MEASURES)
                for runs in lines.values()
            ]
        last = counts[-1][0]
        table[f"seconds, k = {last}"] = [
            f"{_mean(runs, 'seconds', last):.3f}" for runs in lines.values()
        ]
        texts.append(f"{part}: minority / balanced / overall accuracy, %\n{aligned(table)}")
    return "\n\n".join(texts)


def costs_report(rows: Sequence[dict[str, Any]]) -> str:
    """Is polished UniPROT the lowest uniform OT cost of all methods?"""
    costed = [row for row in rows if row["part"].startswith("curves") and row["aim"] == "plain"]
    units = len(by(costed, "part", "k", "seed"))
    above = not_lowest(costed, "uniproto+polish", "part", "k", "seed")
    text = (
        f"Uniform OT cost: uniproto+polish is the lowest of all methods in "
        f"{units - len(above)} of {units} units (setting, k, draw)."
    )
    for (part, k, seed), name, share in above:
        text += f"\n  not lowest: {part}, k = {k}, seed {seed}: {name} is {share:.2%} lower"
    return text


def differences_report(table: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """The paired table, and how the cells of each factor's levels come out."""
    minority = [row for row in table if row["measure"] == "minority"]
    shown = {
        "UniPROT − k-medoids": [
            f"{row['part']}, {row['skew']}, {row['metric']}" for row in minority
        ],
        "method": [row["method"] for row in minority],
        "aim": [row["aim"] for row in minority],
        "k": [str(row["k"]) for row in minority],
        "minority": [_points(row["difference"], row["standard_error"]) for row in minority],
        "draws": [str(row["draws"]) for row in minority],
        "above": [f"{row['above']:.0%}" for row in minority],
        "95 %": [row["verdict"] for row in minority],
    }
    texts = [f"Paired differences, points ± standard error\n{aligned(shown)}"]
    texts += [_levels(minority, rows, column) for column in ("part", "skew", "metric", "k", "aim")]
    return "\n\n".join(texts)


def _levels(minority: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], column: str) -> str:
    """How the cells come out at every level of one factor, the others pooled."""

    def counts(row: dict[str, Any]) -> bool:
        return row["part"].startswith("factors") and (column == "aim" or row["aim"] == "plain")

    levels = by(filter(counts, minority), column)
    lines: dict[str, list[str]] = {
        f"by {column}": [str(level) for (level,) in levels],
        "cells": [str(len(group)) for group in levels.values()],
    }
    for verdict in ("above", "open", "below"):
        lines[verdict] = [
            str(sum(row["verdict"] == verdict for row in group)) for group in levels.values()
        ]
    pooled = by(filter(counts, rows), column)
    for measure, word in MEASURES.items():
        lines[word] = [
            _pooled(
                pooled[level],
                measure,
                lambda row: row["method"] == "uniproto",
                lambda row: row["method"] == "kmedoids",
                "aim",
            )
            for level in levels
        ]
    return aligned(lines)


def prototypes_report(rows: Sequence[dict[str, Any]]) -> str:
    """Whether prototypes go to minority classes in proportion to their share of the target."""
    plain = [
        row
        for row in rows
        if row["part"].startswith("factors")
        and row["aim"] == "plain"
        and row["method"] in ("uniproto", "kmedoids")
    ]
    lines: dict[str, list[str]] = {"prototypes of minority classes": []}
    lines |= {name: [] for name in ("k", "proportional", "uniproto", "kmedoids")}
    for (part, skew, k), group in by(plain, "part", "skew", "k").items():
        lines["prototypes of minority classes"].append(f"{part}, {skew}")
        lines["k"].append(str(k))
        lines["proportional"].append(f"{k * np.mean([row['minority_share'] for row in group]):.1f}")
        for (method,), runs in by(group, "method").items():
            found = np.mean([row["minority_prototypes"] for row in runs])
            lines[method].append(f"{found:.1f}")
    return aligned(lines)


def lift_report(rows: Sequence[dict[str, Any]]) -> str:
    """What weights and budgets change, beside k-medoids on the target as it is."""
    compared = [
        row for row in rows if row["part"].startswith("factors") and row["metric"] == "cosine"
    ]
    texts = []
    for column in ("part", "k"):
        lines: dict[str, list[str]] = {
            name: [] for name in ("beside plain k-medoids", column, *MEASURES.values())
        }
        for (level,), group in by(compared, column).items():
            for method, aim in by(group, "method", "aim"):
                if (method, aim) == ("kmedoids", "plain"):
                    continue
                lines["beside plain k-medoids"].append(f"{method}, {aim}")
                lines[column].append(str(level))
                for measure, word in MEASURES.items():
                    lines[word].append(
                        _pooled(
                            group,
                            measure,
                            lambda row, arm=(method, aim): (row["method"], row["aim"]) == arm,
                            lambda row: (row["method"], row["aim"]) == ("kmedoids", "plain"),
                        )
                    )
        texts.append(aligned(lines))
    return "Cosine, all skews, points ± standard error\n" + "\n\n".join(texts)


def _pooled(
    rows: Sequence[dict[str, Any]],
    measure: str,
    ours: Callable[[dict[str, Any]], bool],
    theirs: Callable[[dict[str, Any]], bool],
    *also: str,
) -> str:
    """The mean difference over cells; its error over seeds, as a seed's cells are alike."""
    cell = ("part", "setting", "k", "seed", *also)
    others = {tuple(row[name] for name in cell): row[measure] for row in rows if theirs(row)}
    apart: dict[int, list[float]] = {}
    for row in filter(ours, rows):
        other = others[tuple(row[name] for name in cell)]
        apart.setdefault(row["seed"], []).append(row[measure] - other)
    means = [float(np.mean(values)) for values in apart.values()]
    found = difference(means, [0.0] * len(means))
    star = "" if found.verdict == "open" else "*"
    return f"{_points(found.mean, found.error)}{star:1}"


def curves_chart(rows: Sequence[dict[str, Any]]) -> Any:
    """Accuracy against the number of prototypes, a panel for each setting."""
    from support.charts import seed_bands_chart

    shown = {
        ("uniproto", "plain"): "UniPROT",
        ("uniproto+polish", "plain"): "UniPROT, polished",
        ("kmedoids", "plain"): "k-medoids",
        ("uniproto", "density"): "UniPROT, density weights",
        ("uniproto", "balanced"): "UniPROT, class-balanced weights (labels)",
        ("random", "plain"): "random",
    }
    points = []
    for (part, k, method, aim), runs in by(rows, "part", "k", "method", "aim").items():
        for measure in ("minority_accuracy", "accuracy"):
            mean, low, high = mean_and_interval([row[measure] for row in runs])
            points.append(
                {"panel": TITLES.get(part, part), "row": f"{MEASURES[measure]} accuracy", "k": k}
                | {"line": f"{method}, {aim}", "shown": shown.get((method, aim))}
                | {"mean": mean, "low": max(0.0, low), "high": min(1.0, high)}
            )
    return seed_bands_chart(
        points,
        list(shown.values()),
        "1-NN accuracy against the number of prototypes",
        "bands: 95 % intervals over the draws; grey: all other methods",
    )


def factors_chart(table: Sequence[dict[str, Any]]) -> Any:
    """What UniPROT's minority accuracy is above k-medoids', a panel for each data and metric."""
    from support.charts import differences_chart

    cells = [
        {
            "panel": TITLES.get(row["part"], row["part"]),
            "row": row["metric"],
            "level": row["skew"],
            "k": row["k"],
            "mean": row["difference"],
            "error": row["standard_error"],
        }
        for row in table
        if row["part"].startswith("factors")
        and row["aim"] == "plain"
        and row["measure"] == "minority"
    ]
    return differences_chart(
        cells,
        "Minority accuracy: UniPROT − k-medoids, paired",
        "points above 0: UniPROT is better; lines: ± two standard errors over the draws",
    )


def _mean(rows: Sequence[dict[str, Any]], column: str, k: int) -> float:
    return float(np.mean([row[column] for row in rows if row["k"] == k]))


def _points(mean: float, error: float | None) -> str:
    return f"{100 * mean:+.1f} ± {100 * (error or 0):.1f}"


if __name__ == "__main__":
    command_line(run, TITLE)
