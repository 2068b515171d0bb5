"""Why greedy picks serve small classes better than the optimum under a narrow similarity.

The draws of `longtail` (a balanced source, a skewed target of other rows) at k = 50: the paper's
greedy algorithm, the default search, whose cost is lower, and k-medoids, with cosine costs and with
the Gaussian similarity of the default bandwidth; and what helps small classes: density weights,
class-balanced weights. Measured: the transport cost of equally weighted prototypes, 1-NN accuracy,
and where the prototypes are. The part `proven` has draws so small that the lowest cost is proven.

    UNIPROTO_DATA=/path/to/data uniproto experiment tail
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import altair as alt
import numpy as np

import uniproto
from support.charts import dots_and_means
from support.datasets import load_dataset
from support.joined import publish_joined, run_units
from support.longtail import Setting, draw_from, features_of
from support.runs import Setup, command_line, rounded
from support.statistics import ACCURACIES, by, difference
from uniproto.comparing.accuracy import accuracy
from uniproto.comparing.results import aligned
from uniproto.report.charts import BLUE, GREY, ORANGE, loose_scale, small_multiples, styled

TITLE = "small classes: greedy picks, the lowest cost, and weights"
WAYS = {  # metric, method, weights
    "greedy, rbf": ("rbf", "greedy", None),
    "uniproto, rbf": ("rbf", "uniproto", None),
    "kmedoids, rbf": ("rbf", "kmedoids", None),
    "greedy, cosine": ("cosine", "greedy", None),
    "uniproto, cosine": ("cosine", "uniproto", None),
    "kmedoids, cosine": ("cosine", "kmedoids", None),
    "uniproto, cosine, density": ("cosine", "uniproto", "density"),
    "uniproto, cosine, balanced": ("cosine", "uniproto", "balanced"),
    "uniproto, rbf, balanced": ("rbf", "uniproto", "balanced"),
}
REFERENCE, DEFAULT = "kmedoids, rbf", "uniproto, cosine"


@dataclass(frozen=True)
class Part:
    """Draws of one kind, how many rows are chosen, and by which ways."""

    setting: Setting
    k: int = 50
    draws: int = 6
    ways: tuple[str, ...] = tuple(WAYS)


_MNIST = Setting("mnist", share=0.05, small=(0, 5))
PARTS = {
    "mnist": Part(_MNIST),
    "cifar": Part(Setting("cifar10-features", imbalance=100, small=(7, 8, 9))),
    "proven": Part(
        replace(_MNIST, per_class=8, size=200), k=6, draws=12, ways=("greedy, rbf", "uniproto, rbf")
    ),
}
QUICK_PARTS = {
    "digits": Part(Setting("digits", share=0.05, small=(0, 5), per_class=8, size=120), k=6, draws=2)
}


def run(setup: Setup) -> None:
    """Every part; then the tables of all of them."""
    parts = QUICK_PARTS if setup.quick else PARTS
    done = setup.parts(list(parts))
    rows = [row for name in done for row in _run_part(setup, name, parts[name])]
    if setup.waits_for_others(done):
        return
    publish_joined(
        setup, "tail", rows, lambda found: "\n\n".join(tail_reports(found).values()), _chart
    )


def _run_part(setup: Setup, name: str, part: Part) -> Iterator[dict[str, Any]]:
    def load() -> tuple[Any, Any]:
        data = load_dataset(part.setting.data, setup.data)
        return data, features_of(data, part.setting.features)

    def of_seed(loaded: tuple[Any, Any], seed: int) -> Iterator[dict[str, Any]]:
        return map(rounded, measure(draw_from(*loaded, part.setting, seed), part))

    seeds = [{"seed": seed} for seed in range(part.draws)]
    rows = run_units(setup, f"tail-{name}", asdict(part), seeds, load, of_seed)
    return ({"run": name, "k": part.k} | row for row in rows)


def measure(draw: Any, part: Part) -> Iterator[dict[str, Any]]:
    """One draw by every way: cost, accuracy, and prototypes by the density of their class."""
    own = np.isin(draw.labels, draw.minority)
    plain = {
        metric: uniproto.Problem(draw.source, draw.target, metric=metric)
        for metric in dict.fromkeys(WAYS[way][0] for way in part.ways)
    }
    kinds: dict[str, Any] = {
        "density": uniproto.Density(),
        "balanced": uniproto.Balanced(draw.target_labels.tolist()),
    }
    share = np.isin(draw.target_labels, draw.minority).mean()
    for way in part.ways:
        metric, method, weights = WAYS[way]
        problem = plain[metric]
        if weights is not None:
            problem = uniproto.Problem(
                draw.source, draw.target, metric=metric, target_weights=kinds[weights]
            )
        found = uniproto.select(problem, part.k, method=method, progress=False)
        costs = problem.costs.block(np.asarray(found.indices))
        right = accuracy(
            draw.labels[found.indices][costs.argmin(axis=0)], draw.target_labels, draw.minority
        )
        fullest = np.bincount(draw.labels[found.indices]).max()
        yield {
            "way": way,
            "cost": uniproto.cost(plain[metric], found.indices),
            "proven": found.details.proof is not None,
            "minority_accuracy": right.minority,
            "balanced_accuracy": right.balanced,
            "accuracy": right.overall,
            "minority_prototypes": int(own[found.indices].sum()),
            "minority_mass": float(share * part.k),
            "largest_class": int(fullest),
            "classes": len(np.unique(draw.labels[found.indices])),
        }


def tail_reports(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The tables of docs/longtail.md about greedy picks and the optimum."""
    usual = [row for row in rows if row["run"] != "proven"]
    proven = [row for row in rows if row["run"] == "proven"]
    found = {f"{name}": _table(some) for (name,), some in by(usual, "run").items()}
    found["apart"] = _apart(rows)
    found["default"] = _less_default(usual)
    return found | ({"proven": _proven(proven)} if proven else {})


def _apart(rows: Sequence[dict[str, Any]]) -> str:
    """Greedy picks less the default search, draw by draw, under the Gaussian similarity."""
    title = "greedy − uniproto, rbf"
    table: dict[str, list[str]] = {title: [], "draws": [], "cost": []}
    for (name,), some in by(rows, "run").items():
        ways = by(some, "way")
        ours, theirs = ways[("greedy, rbf",)], ways[("uniproto, rbf",)]
        table[title].append(f"{name}, k = {some[0]['k']}")
        table["draws"].append(str(len(ours)))
        costs = [a["cost"] / b["cost"] - 1 for a, b in zip(ours, theirs, strict=True)]
        table["cost"].append(f"{100 * np.mean(costs):+.2f} %")
        for column, word in ACCURACIES.items():
            each = difference([row[column] for row in ours], [row[column] for row in theirs])
            table.setdefault(word, []).append(each.starred(100, 1))
    return aligned(table)


def _less_default(rows: Sequence[dict[str, Any]]) -> str:
    """What to take when small classes matter: each way less the default with cosine costs."""
    title = f"way − {DEFAULT}"
    table: dict[str, list[str]] = {title: []}
    for (name,), some in by(rows, "run").items():
        ways = by(some, "way")
        for (way,), ours in ways.items():
            if way == DEFAULT or (DEFAULT,) not in ways:
                continue
            table[title].append(f"{name}: {way}")
            for column, word in ACCURACIES.items():
                theirs = [row[column] for row in ways[(DEFAULT,)]]
                apart = difference([row[column] for row in ours], theirs)
                table.setdefault(word, []).append(apart.starred(100, 1))
    return aligned(table)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the draws, and minority accuracy compared with that of k-medoids."""
    ways = by(rows, "way")
    reference = [row["minority_accuracy"] for row in ways[(REFERENCE,)]]
    name, mass = rows[0]["run"], rows[0]["minority_mass"]
    table: dict[str, list[str]] = {f"{name}, k = {rows[0]['k']}": [way for (way,) in ways]}
    table["cost"] = [f"{np.mean([row['cost'] for row in some]):.4f}" for some in ways.values()]
    for measure_name, word in ACCURACIES.items():
        table[word] = [
            f"{100 * np.mean([row[measure_name] for row in some]):.1f}" for some in ways.values()
        ]
    table["minority − kmedoids, rbf"] = [
        difference([row["minority_accuracy"] for row in some], reference).starred(100, 1)
        for some in ways.values()
    ]
    for column, word in {
        "minority_prototypes": f"minority (mass: {mass:.1f})",
        "largest_class": "fullest class",
        "classes": "classes",
    }.items():
        table[word] = [f"{np.mean([row[column] for row in some]):.1f}" for some in ways.values()]
    return aligned(table)


def _proven(rows: Sequence[dict[str, Any]]) -> str:
    """Greedy picks and the lowest cost, where it is proven."""
    sure = {row["seed"] for row in rows if row["proven"]}
    ways = by([row for row in rows if row["seed"] in sure], "way")
    first = rows[0]
    table: dict[str, list[str]] = {
        f"{len(sure)} draws with proof, k = {first['k']}": [way for (way,) in ways]
    }
    table["cost"] = [f"{np.mean([row['cost'] for row in some]):.4f}" for some in ways.values()]
    for column, word in ACCURACIES.items():
        table[word] = [f"{100 * np.mean([r[column] for r in some]):.1f}" for some in ways.values()]
    for column, word in {"largest_class": "fullest class", "classes": "classes"}.items():
        table[word] = [f"{np.mean([row[column] for row in some]):.1f}" for some in ways.values()]
    return aligned(table)


def _chart(rows: Sequence[dict[str, Any]]) -> Any:
    colours = {"greedy": ORANGE, "uniproto": BLUE, "kmedoids": GREY}
    shown = [row | {"method": row["way"].partition(",")[0]} for row in rows]
    panels = [
        dots_and_means(
            some,
            x=alt.X(
                "minority_accuracy:Q",
                title="minority accuracy",
                axis=alt.Axis(format="%"),
                scale=loose_scale(alt),
            ),
            y=alt.Y("way:N", title=None, sort=None, axis=alt.Axis(ticks=False, labelLimit=260)),
            series="method",
            colours=colours,
            title=name,
        )
        for (name,), some in by(shown, "run").items()
        if name != "proven"
    ]
    return styled(
        small_multiples(panels, columns=2),
        "Small classes: greedy picks, the lowest cost, and weights",
        "circles: draws, diamonds: their mean",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
