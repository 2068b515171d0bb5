"""How unequal are the weights k-medoids learns? (the paper's Figure 1)

k-medoids gives every target point to its nearest prototype; the mass a prototype collects is its
learned weight. Ranked from the heaviest to the lightest, these weights are set against 1/k, which
every prototype of UniPROT has. The paper adds that prototypes of minority classes tend to get low
weights; the second figure looks at that.

    UNIPROTO_DATA=/path/to/data uniproto experiment weights
"""

import itertools
from typing import Any

import altair as alt
import numpy as np

import uniproto
from uniproto.charts import BLUE, GREEN, ORANGE, dots_and_means, small_multiples, styled
from uniproto.data import balanced_source_and_target, load_dataset
from uniproto.evaluation import weight_skew
from uniproto.experiment import Runs, Setup, command_line
from uniproto.progress import Progress
from uniproto.results import aligned, mean_and_spread

TITLE = "ranked weights that k-medoids learns, against equal ones (Figure 1)"
METHODS = {"kmedoids": BLUE, "uniproto": GREEN}
SHARES = ["of the target", "of the prototypes", "of their weight"]


def run(setup: Setup) -> None:
    # 1. The problems: a balanced source, and a target with or without a minority.
    if setup.quick:
        k, ks, seeds, per_class, size = 20, [10, 20], 2, 20, 200
        problems: dict[str, tuple[str, dict[str, Any]]] = {
            "digits, 0 and 5 at 3 % each": ("digits", {"classes": [0, 5], "share": 0.03}),
        }
    else:
        k, ks, seeds, per_class, size = 50, [20, 50, 100], 5, 200, 2000
        problems = {
            "CIFAR-10, balanced": ("cifar10-features", {"imbalance": 1}),
            "CIFAR-10-LT, imbalance 50": ("cifar10-features", {"imbalance": 50}),
            "MNIST, 0 and 5 at 5 % each": ("mnist", {"classes": [0, 5], "share": 0.05}),
        }

    # 2. Both methods on every draw; one row per prototype.
    settings = {"ks": ks, "seeds": seeds, "per_class": per_class, "size": size, "metric": "cosine"}
    runs = Runs(setup.out, "weights", settings | {"problems": problems, "quick": setup.quick})
    with Progress(setup.progress).stage("weights", len(problems) * seeds) as advance:
        for problem, (name, target_kind) in problems.items():
            data = None
            for seed in range(seeds):
                if not runs.done(problem=problem, seed=seed):
                    data = data or load_dataset(name, setup.data)
                    features, labels = data.train.astype(np.float32), data.train_labels
                    source, target = balanced_source_and_target(
                        labels, per_class, size=size, seed=seed, **target_kind
                    )
                    sizes = np.bincount(labels[target])
                    is_minority = sizes <= sizes.mean() / 2  # by class
                    rows = []
                    for method, count in [("uniproto", k), *itertools.product(["kmedoids"], ks)]:
                        chosen = uniproto.select(
                            features[source], count, features[target], method=method
                        )
                        for rank, place in enumerate(np.argsort(-chosen.weights, kind="stable")):
                            label = labels[source][chosen.indices[place]]
                            rows.append(
                                {
                                    "method": method,
                                    "k": count,
                                    "rank": rank + 1,
                                    "weight": chosen.weights[place],
                                    "label": label,
                                    "minority": is_minority[label],
                                    "minority_of_target": is_minority[labels[target]].mean(),
                                }
                            )
                    runs.add({"problem": problem, "seed": seed}, rows)
                advance(1)

    # 3. What the rows say: how skewed the weights are, and what the minority gets.
    draws = []
    columns = ("problem", "seed", "method", "k")
    units = itertools.groupby(runs.rows, key=lambda row: {name: row[name] for name in columns})
    for unit, rows in units:
        mine = list(rows)
        weights = np.array([row["weight"] for row in mine])
        small = np.array([row["minority"] for row in mine])
        ratio, entropy = weight_skew(weights)
        draws.append(
            unit
            | {
                "heaviest": weights[0] * len(weights),
                "lightest": weights[-1] * len(weights),
                "ratio": ratio,
                "entropy": entropy,
                "of the target": mine[0]["minority_of_target"],
                "of the prototypes": small.mean(),
                "of their weight": weights[small].sum(),
                "per prototype": weights[small].mean() * len(weights) if small.any() else None,
            }
        )

    def mean(problem: str, method: str, name: str, count: int = k) -> float:
        of = {"problem": problem, "method": method, "k": count}
        found = mean_and_spread([draw[name] for draw in draws if of.items() <= draw.items()])[0]
        return np.nan if found is None else found

    # 4. In words.
    pairs = [(problem, count) for problem in problems for count in ks]
    skew = {"k-medoids": [f"{problem}, k = {count}" for problem, count in pairs]}
    for column, form in {
        "heaviest": ".2f",
        "lightest": ".3f",
        "ratio": ".1f",
        "entropy": ".3f",
    }.items():
        skew[column] = [f"{mean(problem, 'kmedoids', column, n):{form}}" for problem, n in pairs]
    tailed = [problem for problem in problems if mean(problem, "kmedoids", "of the target")]
    shown = [(problem, method) for problem in tailed for method in METHODS]
    minority = {f"the minority's share, k = {k}": [f"{where}: {name}" for where, name in shown]}
    for column in SHARES:
        minority[column] = [f"{mean(*pair, column):.1%}" for pair in shown]
    minority["per prototype"] = [f"{mean(*pair, 'per prototype'):.2f}" for pair in shown]
    ratios = [mean(problem, "kmedoids", "ratio", count) for problem, count in pairs]
    verdicts = [
        "Claim: k-medoids learns skewed weights. "
        f"{'Confirmed' if min(ratios) > 2 else 'Not confirmed'}: the heaviest prototype weighs "
        f"{min(ratios):.1f} to {max(ratios):.1f} times as much as the lightest, by problem and k."
    ]
    for problem in tailed:
        of = {"problem": problem, "method": "kmedoids", "k": k}
        each = [draw["per prototype"] for draw in draws if of.items() <= draw.items()]
        low = sum(weight is not None and weight < 1 for weight in each)
        word = "Confirmed" if low == seeds else "Mostly so" if low > seeds / 2 else "Not confirmed"
        verdicts.append(
            f"Claim: prototypes of minority classes get low weights. {word} on {problem}: on "
            f"average such a prototype weighs {mean(problem, 'kmedoids', 'per prototype'):.2f}/k, "
            f"less than 1/k in {low} of {seeds} draws. Of the prototypes themselves k-medoids "
            f"gives the minority {mean(problem, 'kmedoids', 'of the prototypes'):.1%} and UniPROT "
            f"{mean(problem, 'uniproto', 'of the prototypes'):.1%}; it is "
            f"{mean(problem, 'uniproto', 'of the target'):.1%} of the target."
        )
    report = "\n\n".join(
        [
            f"means over {seeds} draws; heaviest, lightest and per prototype in units of 1/k",
            aligned(skew),
            aligned(minority),
            *verdicts,
        ]
    )

    # 5. In pictures: the ranked weights ...
    who = {True: "a prototype of a minority class", False: "of another class"}
    points = [
        row | {"times_k": row["weight"] * k, "who": who[row["minority"]]}
        for row in runs.rows
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
    for problem in problems:
        ratio = mean(problem, "kmedoids", "ratio")
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
    ranked = styled(
        small_multiples(panels, columns=3, shared=["y"]),
        f"The weights k-medoids learns for {k} prototypes",
        f"dots: the prototypes of {seeds} draws, bars: the mean at each rank; chosen from "
        f"{10 * per_class:,} balanced rows for {size:,} targets by cosine distance",
    )

    # ... and what becomes of the minority.
    widest = 1.1 * max(draw["of the prototypes"] for draw in draws if draw["k"] == k)
    panels = []
    for problem in tailed:
        shares = [
            {"method": draw["method"], "what": kind, "share": float(draw[kind])}
            for draw in draws
            if draw["problem"] == problem and draw["k"] == k
            for kind in SHARES[1:]
        ]
        target_share = alt.Chart(
            alt.Data(values=[{"share": mean(problem, "uniproto", "of the target")}])
        )
        panels.append(
            target_share.mark_rule(strokeDash=[5, 4], strokeWidth=2, color="#333333").encode(
                x="share:Q"
            )
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
    shares_chart = styled(
        small_multiples(panels, columns=2, shared=["x"]),
        f"What minority classes get of {k} prototypes",
        f"circles: {seeds} draws, diamonds: their mean; dashed: the minority's share of the target",
    )
    runs.publish({"weights": ranked, "weights-minority": shares_chart}, report)
    print(report)
    print(f"\nwritten to {setup.out}")


if __name__ == "__main__":
    command_line(run, TITLE)
