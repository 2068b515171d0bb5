"""How unequal are the weights k-medoids learns? (the paper's Figure 1)

k-medoids gives every target point to its nearest prototype; the mass a prototype collects is its
learned weight. Ranked from the heaviest to the lightest, these weights are set against 1/k, which
every prototype of UniPROT has. The paper adds that prototypes of minority classes tend to get low
weights; the second figure looks at that. It also says that nearest-prototype classification is
better without these weights: here distances are divided by them, so that heavy prototypes reach
farther.

    UNIPROTO_DATA=/path/to/data uniproto experiment weights
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

import uniproto
from support.charts import dots_and_means
from support.datasets import load_dataset
from support.draws import balanced_source_and_target
from support.published import Dataset
from support.runs import Runs, Setup, command_line
from support.statistics import by
from uniproto.comparing.accuracy import accuracy, nearest_prototype, weight_skew
from uniproto.comparing.results import aligned
from uniproto.report.charts import BLUE, GREEN, ORANGE, small_multiples, styled
from uniproto.report.words import mean_and_spread
from uniproto.runtime.progress import Progress

TITLE = "ranked weights that k-medoids learns, against equal ones (Figure 1)"
METHODS = {"kmedoids": BLUE, "uniproto": GREEN}
SHARES = ["of the target", "of the prototypes", "of their weight"]


@dataclass(frozen=True)
class Sizes:
    """How much is run: balanced sources, and targets with or without a minority."""

    k: int  # of the minority's table and of the figures
    ks: list[int]  # of k-medoids' weights
    seeds: int
    per_class: int  # of the source
    size: int  # of the target
    problems: dict[str, tuple[str, dict[str, Any]]]  # the data set, and how the target is drawn


QUICK = Sizes(
    k=20,
    ks=[10, 20],
    seeds=2,
    per_class=20,
    size=200,
    problems={"digits, 0 and 5 at 3 % each": ("digits", {"classes": [0, 5], "share": 0.03})},
)
PAPER = Sizes(
    k=50,
    ks=[20, 50, 100],
    seeds=5,
    per_class=200,
    size=2000,
    problems={
        "CIFAR-10, balanced": ("cifar10-features", {"imbalance": 1}),
        "CIFAR-10-LT, imbalance 50": ("cifar10-features", {"imbalance": 50}),
        "MNIST, 0 and 5 at 5 % each": ("mnist", {"classes": [0, 5], "share": 0.05}),
    },
)


def run(setup: Setup) -> None:
    """Both methods on every draw; tables, verdicts and figures of their weights."""
    sizes = QUICK if setup.quick else PAPER
    settings = {name: getattr(sizes, name) for name in ("ks", "seeds", "per_class", "size")}
    settings |= {"metric": "cosine", "problems": sizes.problems, "quick": setup.quick}
    runs = Runs(setup.out, "weights", settings)
    with Progress(setup.progress).stage("weights", len(sizes.problems) * sizes.seeds) as advance:
        for problem, (name, target_kind) in sizes.problems.items():
            data = None
            for seed in range(sizes.seeds):
                if not runs.done(problem=problem, seed=seed):
                    data = data or load_dataset(name, setup.data)
                    rows = measure(data, sizes, seed, target_kind)
                    runs.add({"problem": problem, "seed": seed}, rows)
                advance(1)
    draws = skews(runs.rows)
    report = "\n\n".join(
        [
            f"means over {sizes.seeds} draws; heaviest, lightest and per prototype in units of 1/k",
            skew_table(draws, sizes),
            minority_table(draws, sizes),
            accuracy_table(draws, sizes),
            skew_verdict(draws, sizes),
            *minority_verdicts(draws, sizes),
            accuracy_verdict(draws, sizes),
        ]
    )
    charts = {
        "weights": ranked_chart(runs.rows, draws, sizes),
        "weights-minority": minority_chart(draws, sizes),
    }
    runs.publish(charts, report)
    print(report)
    print(f"\nwritten to {setup.out}")


def measure(
    data: Dataset, sizes: Sizes, seed: int, target_kind: dict[str, Any]
) -> list[dict[str, Any]]:
    """Both methods on one draw; one row per prototype."""
    features, labels = data.train.astype(np.float32), data.train_labels
    source, target = balanced_source_and_target(
        labels, sizes.per_class, size=sizes.size, seed=seed, **target_kind
    )
    counts = np.bincount(labels[target])
    is_minority = counts <= counts.mean() / 2  # by class
    rows = []
    greedy = uniproto.Greedy()  # as in the paper
    for method, k in [("uniproto", sizes.k), *(("kmedoids", k) for k in sizes.ks)]:
        how = greedy if method == "uniproto" else method
        problem = uniproto.Problem(features[source], features[target])
        chosen = uniproto.select(problem, k, method=how)
        judged = accuracies(problem, chosen, labels[source], labels[target], is_minority)
        for rank, place in enumerate(np.argsort(-chosen.weights, kind="stable")):
            label = labels[source][chosen.indices[place]]
            rows.append(
                {
                    "method": method,
                    "k": k,
                    "rank": rank + 1,
                    "weight": chosen.weights[place],
                    "label": label,
                    "minority": is_minority[label],
                    "minority_of_target": is_minority[labels[target]].mean(),
                }
                | judged
            )
    return rows


def accuracies(
    problem: uniproto.Problem,
    chosen: uniproto.Selection,
    labels: np.ndarray,
    truth: np.ndarray,
    is_minority: np.ndarray,
) -> dict[str, float | None]:
    """1-NN accuracy by distances as they are, and by distances divided by the weights."""
    distances = problem.costs.exact_block(chosen.indices, slice(None))
    weighted = (distances / chosen.weights[:, None]).argmin(axis=0)
    minority = np.unique(labels[is_minority[labels]])
    found = {}
    for name, nearest in (
        ("without", nearest_prototype(problem.costs, chosen.indices)),
        ("with", weighted),
    ):
        one = accuracy(labels[chosen.indices][nearest], truth, minority)
        found |= {f"accuracy {name} weights": one.overall, f"minority {name} weights": one.minority}
    return found


def skews(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every draw, method and k: how skewed the weights are, and what the minority gets."""
    draws = []
    columns = ("problem", "seed", "method", "k")
    for key, mine in by(rows, *columns).items():
        weights = np.array([row["weight"] for row in mine])
        small = np.array([row["minority"] for row in mine])
        ratio, entropy = weight_skew(weights)
        draws.append(
            dict(zip(columns, key, strict=True))
            | {
                "heaviest": weights[0] * len(weights),
                "lightest": weights[-1] * len(weights),
                "ratio": ratio,
                "entropy": entropy,
                "of the target": mine[0]["minority_of_target"],
                "of the prototypes": small.mean(),
                "of their weight": weights[small].sum(),
                "per prototype": weights[small].mean() * len(weights) if small.any() else None,
                "lost": mine[0]["accuracy without weights"] - mine[0]["accuracy with weights"],
                "lost by the minority": _difference(
                    mine[0]["minority without weights"], mine[0]["minority with weights"]
                ),
            }
        )
    return draws


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _of(
    draws: list[dict[str, Any]], column: str, problem: str, method: str, k: int
) -> list[float | None]:
    wanted = {"problem": problem, "method": method, "k": k}
    return [draw[column] for draw in draws if wanted.items() <= draw.items()]


def _mean(draws: list[dict[str, Any]], column: str, problem: str, method: str, k: int) -> float:
    found = mean_and_spread(_of(draws, column, problem, method, k))[0]
    return np.nan if found is None else found


def _tailed(draws: list[dict[str, Any]], sizes: Sizes) -> list[str]:
    """The problems whose target has a minority."""
    return [
        problem
        for problem in sizes.problems
        if _mean(draws, "of the target", problem, "kmedoids", sizes.k)
    ]


def skew_table(draws: list[dict[str, Any]], sizes: Sizes) -> str:
    """k-medoids' heaviest and lightest weights on every problem, for every k."""
    pairs = list(itertools.product(sizes.problems, sizes.ks))
    table = {"k-medoids": [f"{problem}, k = {k}" for problem, k in pairs]}
    forms = {"heaviest": ".2f", "lightest": ".3f", "ratio": ".1f", "entropy": ".3f"}
    for column, form in forms.items():
        table[column] = [
            format(_mean(draws, column, problem, "kmedoids", k), form) for problem, k in pairs
        ]
    return aligned(table)


def minority_table(draws: list[dict[str, Any]], sizes: Sizes) -> str:
    """What both methods give the minority, where there is one."""
    pairs = list(itertools.product(_tailed(draws, sizes), METHODS))
    table = {
        f"the minority's share, k = {sizes.k}": [
            f"{problem}: {method}" for problem, method in pairs
        ]
    }
    for column, form in {**dict.fromkeys(SHARES, ".1%"), "per prototype": ".2f"}.items():
        table[column] = [format(_mean(draws, column, *pair, sizes.k), form) for pair in pairs]
    return aligned(table)


def accuracy_table(draws: list[dict[str, Any]], sizes: Sizes) -> str:
    """Points of 1-NN accuracy that k-medoids loses where its weights divide the distances."""
    pairs = list(itertools.product(sizes.problems, sizes.ks))
    table = {"points lost by the weights": [f"{problem}, k = {k}" for problem, k in pairs]}
    for column in ("lost", "lost by the minority"):
        found = [mean_and_spread(_of(draws, column, p, "kmedoids", k)) for p, k in pairs]
        table["all classes" if column == "lost" else "minority"] = [
            "–" if mean is None else f"{100 * mean:+.1f} ± {100 * (spread or 0):.1f}"
            for mean, spread in found
        ]
    return aligned(table)


def accuracy_verdict(draws: list[dict[str, Any]], sizes: Sizes) -> str:
    """The claim that classification is better without the weights."""
    lost = [
        _of(draws, "lost", problem, "kmedoids", k) for problem in sizes.problems for k in sizes.ks
    ]
    better = sum(each is not None and each > 0 for draw in lost for each in draw)
    count = sum(len(draw) for draw in lost)
    word = "Confirmed" if better > 0.9 * count else "Depends" if better else "Not confirmed"
    return (
        f"Claim: 1-NN is better without the weights of k-medoids. {word}: it is in {better} of "
        f"{count} draws, by problem and k."
    )


def skew_verdict(draws: list[dict[str, Any]], sizes: Sizes) -> str:
    """The claim that k-medoids' weights are unequal."""
    ratios = [
        _mean(draws, "ratio", problem, "kmedoids", k)
        for problem in sizes.problems
        for k in sizes.ks
    ]
    return (
        "Claim: k-medoids learns skewed weights. "
        f"{'Confirmed' if min(ratios) > 2 else 'Not confirmed'}: the heaviest prototype weighs "
        f"{min(ratios):.1f} to {max(ratios):.1f} times as much as the lightest, by problem and k."
    )


def minority_verdicts(draws: list[dict[str, Any]], sizes: Sizes) -> Iterator[str]:
    """The claim that the minority's prototypes are the light ones."""
    seeds = sizes.seeds
    for problem in _tailed(draws, sizes):
        medoids, ours = (
            {
                column: _mean(draws, column, problem, method, sizes.k)
                for column in [*SHARES, "per prototype"]
            }
            for method in METHODS
        )
        each = _of(draws, "per prototype", problem, "kmedoids", sizes.k)
        low = sum(weight is not None and weight < 1 for weight in each)
        word = "Confirmed" if low == seeds else "Mostly so" if low > seeds / 2 else "Not confirmed"
        yield (
            f"Claim: prototypes of minority classes get low weights. {word} on {problem}: on "
            f"average such a prototype weighs {medoids['per prototype']:.2f}/k, "
            f"less than 1/k in {low} of {seeds} draws. Of the prototypes themselves k-medoids "
            f"gives the minority {medoids['of the prototypes']:.1%} and UniPROT "
            f"{ours['of the prototypes']:.1%}; it is {ours['of the target']:.1%} of the target."
        )


def ranked_chart(
    rows: list[dict[str, Any]], draws: list[dict[str, Any]], sizes: Sizes
) -> alt.TopLevelMixin:
    """k-medoids' weights by rank, and 1/k."""
    k = sizes.k
    who = {True: "a prototype of a minority class", False: "of another class"}
    points = [
        row | {"times_k": row["weight"] * k, "who": who[row["minority"]]}
        for row in rows
        if row["method"] == "kmedoids" and row["k"] == k
    ]
    x = alt.X("rank:Q", title="rank", scale=alt.Scale(domain=[0, k + 1], nice=False))
    y = alt.Y("times_k:Q", title="learned weight, in units of 1/k")
    mean_y = alt.Y("mean(times_k):Q", title="learned weight, in units of 1/k")
    colour = alt.Color(
        "who:N",
        title=None,
        scale=alt.Scale(domain=list(who.values()), range=[ORANGE, BLUE]),
        legend=alt.Legend(orient="bottom", symbolOpacity=1, symbolSize=120, labelLimit=300),
    )
    equal = alt.Chart(alt.Data(values=[{"times_k": 1, "words": "UniPROT: 1/k each"}]))
    panels = []
    for problem in sizes.problems:
        ratio = _mean(draws, "ratio", problem, "kmedoids", k)
        dots = alt.Chart(alt.Data(values=[dot for dot in points if dot["problem"] == problem]))
        panels.append(
            alt.layer(
                dots.mark_bar(color="#dde8f0", width=270 / k).encode(x=x, y=mean_y),
                equal.mark_rule(color=GREEN, strokeWidth=2.5).encode(y=y),
                dots.mark_circle(size=30, opacity=0.8).encode(
                    x=x, y=y, color=colour, tooltip=["seed:Q", "rank:Q", "label:N", "times_k:Q"]
                ),
                equal.mark_text(
                    color=GREEN, align="right", dy=-9, fontSize=13, fontWeight="bold"
                ).encode(x=alt.value(316), y=y, text="words:N"),
            ).properties(
                width=320, height=270, title=f"{problem}: largest / smallest = {ratio:.1f}"
            )
        )
    return styled(
        small_multiples(panels, columns=3, shared=["y"]),
        f"The weights k-medoids learns for {k} prototypes",
        f"dots: the prototypes of {sizes.seeds} draws, bars: the mean at each rank; chosen from "
        f"{10 * sizes.per_class:,} balanced rows for {sizes.size:,} targets by cosine distance",
    )


def minority_chart(draws: list[dict[str, Any]], sizes: Sizes) -> alt.TopLevelMixin:
    """The minority's share of the prototypes and of their weight, and its share of the target."""
    draws = [draw for draw in draws if draw["k"] == sizes.k]
    widest = 1.1 * max(draw["of the prototypes"] for draw in draws)
    panels = []
    for problem in _tailed(draws, sizes):
        shares = [
            {"method": draw["method"], "what": kind, "share": float(draw[kind])}
            for draw in draws
            if draw["problem"] == problem
            for kind in SHARES[1:]
        ]
        of_target = _mean(draws, "of the target", problem, "uniproto", sizes.k)
        dashed = alt.Chart(alt.Data(values=[{"share": of_target}])).mark_rule(
            strokeDash=[5, 4], strokeWidth=2, color="#333333"
        )
        panels.append(
            dashed.encode(x="share:Q")
            + dots_and_means(
                shares,
                x=alt.X(
                    "share:Q",
                    title="the minority's share",
                    axis=alt.Axis(format="%"),
                    scale=alt.Scale(domain=[0, widest], nice=True),
                ),
                y=alt.Y(
                    "what:N", sort=SHARES, title=None, axis=alt.Axis(ticks=False, labelLimit=200)
                ),
                series="method",
                colours=METHODS,
                title=problem,
                height=130,
            )
        )
    return styled(
        small_multiples(panels, columns=2, shared=["x"]),
        f"What minority classes get of {sizes.k} prototypes",
        f"circles: {sizes.seeds} draws, diamonds: their mean; dashed: the minority's share of the "
        "target",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
