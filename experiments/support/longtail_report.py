"""Tables and charts of `experiments/longtail.py`, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from support.charts import differences_chart, seed_bands_chart
from support.statistics import ACCURACIES, by, difference, mean_and_interval, not_lowest
from uniproto.comparing.results import aligned

TITLES = {  # of the panels
    "curves-mnist-0-5": "MNIST, 0 and 5 at 5 % each",
    "curves-mnist-0-7": "MNIST, 0 and 7 at 3 % each",
    "curves-cifar-features": "CIFAR-10-LT 1:100, features",
    "curves-cifar-pixels": "CIFAR-10-LT 1:100, pixels",
    "kernels-mnist-0-5": "MNIST, 0 and 5 at 5 % each",
    "kernels-mnist-0-7": "MNIST, 0 and 7 at 3 % each",
    "kernels-cifar-features": "CIFAR-10-LT 1:100, features",
    "kernels-mnist-0-5-unit": "MNIST, 0 and 5, unit rows",
    "kernels-mnist-0-7-unit": "MNIST, 0 and 7, unit rows",
    "kernels-cifar-features-unit": "CIFAR-10-LT, unit rows",
    "factors-mnist-pixels": "MNIST, pixels",
    "factors-mnist-pca": "MNIST, PCA",
    "factors-cifar-features": "CIFAR-10, features",
    "factors-cifar-pixels": "CIFAR-10, pixels",
    "factors-cifar-pca": "CIFAR-10 pixels, PCA",
}


def longtail_reports(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Every table of docs/longtail.md by its name, from the rows of all parts."""
    table = differences(rows)
    return {
        "curves": curves_report(rows),
        "curves, paired": paired_report(table),
        "classes": classes_report(rows),
        "levels": levels_report(table, rows),
        "plans": plans_report(table, rows),
        "prototypes": prototypes_report(rows),
        "kernels": kernels_report(table),
        "skews": skews_report(rows),
        "own best": own_best_report(rows),
        "smallest": smallest_report(rows),
        "lift": lift_report(rows),
        "costs": costs_report(rows),
    }


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
            if not name.startswith(("greedy", "uniproto")):
                continue
            for measure, word in ACCURACIES.items():
                values = [
                    [runs[seed][measure] for seed in sorted(others)] for runs in (ours, others)
                ]
                apart = difference(*values)
                table.append(
                    dict(zip(columns, key, strict=True))
                    | {"method": name, "measure": word}
                    | {"ours": np.mean(values[0]), "kmedoids": np.mean(values[1])}
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
                " / ".join(f"{100 * _mean(runs, name, k):.1f}" for name in ACCURACIES)
                for runs in lines.values()
            ]
        last = counts[-1][0]
        table[f"seconds, k = {last}"] = [
            f"{_mean(runs, 'seconds', last):.3f}" for runs in lines.values()
        ]
        texts.append(f"{part}: minority / balanced / overall accuracy, %\n{aligned(table)}")
    return "\n\n".join(texts)


def costs_report(rows: Sequence[dict[str, Any]]) -> str:
    """Is the default the lowest uniform OT cost of all methods?"""
    costed = [row for row in rows if row["part"].startswith("curves") and row["aim"] == "plain"]
    units = len(by(costed, "part", "k", "seed"))
    above = not_lowest(costed, "uniproto", "part", "k", "seed")
    text = (
        f"Uniform OT cost: the default is the lowest of all methods in "
        f"{units - len(above)} of {units} units (setting, k, draw)."
    )
    for (part, k, seed), name, share in above:
        text += f"\n  not lowest: {part}, k = {k}, seed {seed}: {name} is {share:.2%} lower"
    return text


def paired_report(table: Sequence[dict[str, Any]]) -> str:
    """UniPROT and the default compared with k-medoids on the settings of the paper."""
    found = [
        row
        for row in table
        if row["part"].startswith("curves")
        and (row["aim"], row["measure"]) == ("plain", "minority")
    ]
    lines = by(found, "part", "method")
    shown = {"minority, points (share of draws above)": [f"{part}: {name}" for part, name in lines]}
    for (k,) in by(found, "k"):
        shown[f"k = {k}"] = [
            f"{_starred(row)} ({row['above']:.0%})"
            for rows in lines.values()
            for row in rows
            if row["k"] == k
        ]
    return aligned(shown)


def classes_report(rows: Sequence[dict[str, Any]], k: int = 100) -> str:
    """Accuracy of each class in per cent where the target has a long tail, largest class first."""
    found = [row for row in rows if row["part"] == "curves-cifar-features" and row["k"] == k]
    lines = by(found, "method", "aim")
    table = {
        f"CIFAR-10-LT features, k = {k}": [
            name if aim == "plain" else f"{name}, {aim}" for name, aim in lines
        ]
    }
    for label in range(10 if found else 0):
        table[f"class {label}"] = [
            f"{100 * np.mean([row[f'class_{label}'] for row in runs]):.0f}"
            for runs in lines.values()
        ]
    return aligned(table)


def levels_report(table: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """How the cells of each factor's levels come out."""
    minority = [row for row in table if row["measure"] == "minority"]
    columns = ("part", "skew", "metric", "k", "aim")
    return "\n\n".join(_levels(minority, rows, column) for column in columns)


def plans_report(table: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """The ways to keep the plan between picks, compared with k-medoids."""
    plans = [row for row in rows if row["part"].startswith("plans")]
    apart = {
        (row["part"], row["k"], row["method"]): _starred(row)
        for row in table
        if row["measure"] == "minority"
    }
    lines = by(plans, "part", "k", "method")

    def means(column: str, form: str, scale: float = 100.0) -> list[str]:
        return [
            format(scale * np.mean([row[column] for row in runs]), form) for runs in lines.values()
        ]

    return aligned(
        {
            "plans": [f"{part}, k = {k}: {method}" for part, k, method in lines],
            "minority": means("minority_accuracy", ".1f"),
            "− k-medoids": [apart.get(key, "–") for key in lines],
            "overall": means("accuracy", ".1f"),
            "mass above capacity": [_violation(runs) for runs in lines.values()],
            "seconds": means("seconds", ".2f", 1.0),
        }
    )


def _violation(rows: Sequence[dict[str, Any]]) -> str:
    """The largest share of mass above capacity; only entropic plans have any."""
    found = [row["violation"] for row in rows if row.get("violation") is not None]
    return f"{max(found):.2%}" if found else "–"


def _starred(row: dict[str, Any]) -> str:
    star = "" if row["verdict"] == "open" else "*"
    return f"{_points(row['difference'], row['standard_error'])}{star}"


def _levels(minority: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], column: str) -> str:
    """How the cells come out at every level of one factor, the others pooled."""

    def counts(row: dict[str, Any]) -> bool:
        return row["part"].startswith("factors") and (column == "aim" or row["aim"] == "plain")

    levels = by([row for row in minority if counts(row)], column)
    lines: dict[str, list[str]] = {
        f"by {column}": [str(level) for (level,) in levels],
        "cells": [str(len(group)) for group in levels.values()],
    }
    for verdict in ("above", "open", "below"):
        lines[verdict] = [
            str(sum(row["verdict"] == verdict for row in group)) for group in levels.values()
        ]
    pooled = by([row for row in rows if counts(row)], column)
    for measure, word in ACCURACIES.items():
        lines[word] = [
            _pooled(
                pooled[level],
                measure,
                lambda row: row["method"] == "greedy",
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
        and row["method"] in ("greedy", "kmedoids")
    ]
    lines: dict[str, list[str]] = {"prototypes of minority classes": []}
    lines |= {name: [] for name in ("k", "proportional", "greedy", "kmedoids")}
    for (part, skew, k), group in by(plain, "part", "skew", "k").items():
        lines["prototypes of minority classes"].append(f"{part}, {skew}")
        lines["k"].append(str(k))
        lines["proportional"].append(f"{k * np.mean([row['minority_share'] for row in group]):.1f}")
        for (method,), runs in by(group, "method").items():
            found = np.mean([row["minority_prototypes"] for row in runs])
            lines[method].append(f"{found:.1f}")
    return aligned(lines)


def lift_report(rows: Sequence[dict[str, Any]]) -> str:
    """What weights and budgets change, compared with k-medoids on the unweighted target."""
    compared = [
        row for row in rows if row["part"].startswith("factors") and row["metric"] == "cosine"
    ]
    texts = []
    for column in ("part", "k"):
        lines: dict[str, list[str]] = {
            name: [] for name in ("beside plain k-medoids", column, *ACCURACIES.values())
        }
        for (level,), group in by(compared, column).items():
            for method, aim in by(group, "method", "aim"):
                if (method, aim) == ("kmedoids", "plain"):
                    continue
                lines["beside plain k-medoids"].append(f"{method}, {aim}")
                lines[column].append(str(level))
                for measure, word in ACCURACIES.items():
                    lines[word].append(
                        _pooled(
                            group,
                            measure,
                            _is(method, aim),
                            _is("kmedoids", "plain"),
                        )
                    )
        texts.append(aligned(lines))
    return "Cosine, all skews, points ± standard error\n" + "\n\n".join(texts)


def _is(method: str, aim: str) -> Callable[[dict[str, Any]], bool]:
    return lambda row: (row["method"], row["aim"]) == (method, aim)


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
    shown = {
        ("greedy", "plain"): "UniPROT, as in the paper",
        ("uniproto", "plain"): "UniPROT, our default",
        ("kmedoids", "plain"): "k-medoids",
        ("greedy", "density"): "UniPROT, density weights",
        ("greedy", "balanced"): "UniPROT, class-balanced weights (labels)",
        ("random", "plain"): "random",
    }
    points = []
    for (part, k, method, aim), runs in by(rows, "part", "k", "method", "aim").items():
        for measure in ("minority_accuracy", "accuracy"):
            mean, low, high = mean_and_interval([row[measure] for row in runs])
            points.append(
                {"panel": TITLES.get(part, part), "row": f"{ACCURACIES[measure]} accuracy", "k": k}
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


def kernels_report(table: Sequence[dict[str, Any]]) -> str:
    """UniPROT − k-medoids for every bandwidth, and what both have: points ± standard error."""
    found = [
        row for row in table if row["part"].startswith("kernels") and "skews" not in row["part"]
    ]
    lines: dict[str, list[str]] = {
        "UniPROT − k-medoids (UniPROT, k-medoids)": [
            f"{row['part'].removeprefix('kernels-')}, k = {row['k']}, {row['metric']}"
            for row in found
            if row["measure"] == "minority"
        ]
    }
    for (measure,), rows in by(found, "measure").items():
        lines[measure] = [
            f"{_starred(row)} ({100 * row['ours']:.1f}, {100 * row['kmedoids']:.1f})"
            for row in rows
        ]
    return aligned(lines)


def skews_report(rows: Sequence[dict[str, Any]]) -> str:
    """The same over all skews of a data set together; errors over seeds."""
    lines: dict[str, list[str]] = {"all skews, UniPROT − k-medoids (UniPROT, k-medoids)": []}
    lines |= {word: [] for word in ACCURACIES.values()}
    for (part, metric), group in by(_of_skews(rows), "part", "metric").items():
        lines["all skews, UniPROT − k-medoids (UniPROT, k-medoids)"].append(
            f"{part.removeprefix('kernels-')}, {metric}"
        )
        for measure, word in ACCURACIES.items():
            apart = _pooled(group, measure, _is("greedy", "plain"), _is("kmedoids", "plain"))
            both = [
                f"{100 * np.mean([row[measure] for row in group if row['method'] == name]):.1f}"
                for name in ("greedy", "kmedoids")
            ]
            lines[word].append(f"{apart.strip()} ({', '.join(both)})")
    return aligned(lines)


def _of_skews(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["part"].startswith("kernels") and "skews" in row["part"]]


def own_best_report(rows: Sequence[dict[str, Any]]) -> str:
    """Each method with its best metric, σ and kind of rows, chosen on the first half of the draws.

    Best is what has the highest minority, or the highest balanced accuracy; the difference is
    that of the second half.
    """
    found = [
        row
        | {"question": row["part"].removeprefix("kernels-").removesuffix("-unit")}
        | {"way": f"{row['metric']}{', unit rows' if row['part'].endswith('-unit') else ''}"}
        for row in rows
        if row["part"].startswith("kernels")
    ]
    if not found:
        return ""
    middle = sorted({row["seed"] for row in found})[len({row["seed"] for row in found}) // 2]
    names = ("each with its best", "chosen by", "UniPROT", "k-medoids", *ACCURACIES.values())
    lines: dict[str, list[str]] = {name: [] for name in names}
    for (question, k), group in by(found, "question", "k").items():
        for criterion in ("minority_accuracy", "balanced_accuracy"):
            best = {}
            for (method,), runs in by(group, "method").items():
                ways = by([row for row in runs if row["seed"] < middle], "way")
                (best[method],) = max(
                    ways, key=lambda way: np.mean([row[criterion] for row in ways[way]])
                )
            lines["each with its best"].append(f"{question}, k = {k}")
            lines["chosen by"].append(ACCURACIES[criterion])
            lines["UniPROT"].append(best["greedy"])
            lines["k-medoids"].append(best["kmedoids"])
            judged = {
                method: by(
                    [r for r in group if r["seed"] >= middle and _has(r, method, way)], "seed"
                )
                for method, way in best.items()
            }
            for measure, word in ACCURACIES.items():
                ours, theirs = (
                    [float(np.mean([row[measure] for row in runs])) for runs in judged[m].values()]
                    for m in ("greedy", "kmedoids")
                )
                apart = difference(ours, theirs)
                star = "" if apart.verdict == "open" else "*"
                lines[word].append(f"{_points(apart.mean, apart.error)}{star}")
    return aligned(lines)


def _has(row: dict[str, Any], method: str, way: str) -> bool:
    return row["method"] == method and row["way"] == way


def smallest_report(rows: Sequence[dict[str, Any]]) -> str:
    """How the level on CIFAR-10-LT depends on the kind of rows, the target, and who is small."""
    found = [
        row
        for row in rows
        if row["part"].startswith(("kernels-cifar-features", "kernels-cifar-whole"))
        and row["k"] == 50
    ]
    lines: dict[str, list[str]] = {
        name: []
        for name in ("CIFAR-10-LT 1:100, k = 50", "3 smallest classes", "5 smallest", "overall")
    }
    for (part, metric), group in by(found, "part", "metric").items():
        lines["CIFAR-10-LT 1:100, k = 50"].append(f"{part.removeprefix('kernels-')}, {metric}")
        for count in (3, 5):
            smallest = [f"class_{label}" for label in range(10 - count, 10)]
            cells = [
                [np.mean([row[name] for name in smallest]) for row in group if row["method"] == m]
                for m in ("greedy", "kmedoids")
            ]
            title = "3 smallest classes" if count == 3 else "5 smallest"
            lines[title].append(_both(*cells))
        cells = [
            [row["accuracy"] for row in group if row["method"] == m] for m in ("greedy", "kmedoids")
        ]
        lines["overall"].append(_both(*cells))
    return aligned(lines)


def _both(ours: Sequence[float], theirs: Sequence[float]) -> str:
    apart = difference(ours, theirs)
    levels = f"{100 * np.mean(ours):.1f}, {100 * np.mean(theirs):.1f}"
    return f"{_points(apart.mean, apart.error)} ({levels})"


def kernels_chart(table: Sequence[dict[str, Any]]) -> Any:
    """What UniPROT's minority accuracy is above k-medoids' at every bandwidth."""
    cells = [
        {
            "panel": TITLES.get(row["part"], row["part"]),
            "row": row["measure"],
            "level": row["metric"].removeprefix("rbf ") if "rbf" in row["metric"] else "plain",
            "k": row["k"],
            "mean": row["difference"],
            "error": row["standard_error"],
        }
        for row in table
        if row["part"].startswith("kernels")
        and not any(word in row["part"] for word in ("skews", "whole"))  # panels would be many
        and row["measure"] != "balanced"
    ]
    return differences_chart(
        cells,
        "Accuracy under a Gaussian similarity: UniPROT − k-medoids, paired",
        "points above 0: UniPROT is better; lines: ± two standard errors over the draws; plain: "
        "Euclidean distance, or cosine for unit rows",
        across="σ, share of the median",
    )
