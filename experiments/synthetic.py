"""Which points does each method choose, and what weights does it give them? A look at 2-D data.

Three mixtures with unequal parts, made here from fixed seeds (the paper mentions synthetic
distributions and does not define them). Every method chooses k of the points for all of them. The
area of a prototype is the weight its method learned; methods without weights of their own have
equal areas. Costs are optimal-transport costs with equal weights, as everywhere; the last column
of the table says what the same points would cost if weights were free.

    uniproto experiment synthetic
"""

import math

import altair as alt
import numpy as np

import uniproto
from uniproto import MissingExtraError, UniProto
from uniproto.charts import BLUE, GREEN, ORANGE, PINK, small_multiples, styled
from uniproto.evaluation import weight_skew
from uniproto.experiment import Runs, Setup, command_line
from uniproto.progress import Progress
from uniproto.results import aligned, mean_and_spread, number_column

TITLE = "every method's prototypes and weights on imbalanced 2-D mixtures"
METHODS = {
    "uniproto": UniProto(),
    "uniproto+polish": UniProto(polish=True),
    "kmedoids": "kmedoids",
    "facility_location": "facility_location",
    "fasterpam": "fasterpam",
    "kmeans": "kmeans",
    "mmd_critic": "mmd_critic",
    "protodash": "protodash",
    "kcenter": "kcenter",
    "random": "random",
}
COLOURS = {"largest": BLUE, "second": GREEN, "third": PINK, "smallest": ORANGE}


def mixture(name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (count, 2) and the part each belongs to, from the largest (0) to the smallest."""
    draw = np.random.default_rng(7)
    if name == "clusters":  # four clouds of equal width: 70, 18, 9 and 3 %
        shares = [0.70, 0.18, 0.09, 0.03]
        centres = np.array([[0.0, 0.0], [4.0, 1.5], [1.0, 4.5], [5.0, 5.0]])
        part = np.repeat(np.arange(4), np.round(np.array(shares) * count).astype(int))
        return centres[part] + draw.normal(0, 0.7, (len(part), 2)), part
    if name == "moons":  # two half circles around each other: 92 and 8 %
        part = np.repeat([0, 1], [round(0.92 * count), count - round(0.92 * count)])
        angle = draw.uniform(0, math.pi, count) + math.pi * part
        points = np.column_stack([np.cos(angle) + part, np.sin(angle) + 0.5 * part])
        return 3 * points + draw.normal(0, 0.3, (count, 2)), part
    # a dense core with 80 % of the points, and a wide halo around it with 20 %
    part = np.repeat([0, 1], [round(0.8 * count), count - round(0.8 * count)])
    return draw.normal(0, np.where(part, 3.5, 0.9)[:, None], (count, 2)), part


MIXTURES = {
    "clusters": "four clouds: 70, 18, 9 and 3 % of the points",
    "moons": "two half moons: 92 and 8 %",
    "halo": "a dense core, 80 %, in a wide halo, 20 %",
}


def run(setup: Setup) -> None:
    # 1. Every method on every mixture; one row per prototype.
    count, k, seeds = (100, 8, 2) if setup.quick else (500, 20, 5)
    settings = {"count": count, "k": k, "seeds": seeds, "metric": "euclidean"}
    runs = Runs(setup.out, "synthetic", settings | {"quick": setup.quick})
    missing = {}
    with Progress(setup.progress).stage("synthetic", len(MIXTURES) * len(METHODS)) as advance:
        for name in MIXTURES:
            points, part = mixture(name, count)
            for label, method in METHODS.items():
                draws = (
                    range(seeds) if label in ("random", "kmeans", "fasterpam", "kcenter") else [0]
                )
                for seed in draws:
                    if runs.done(mixture=name, method=label, seed=seed):
                        continue
                    try:
                        chosen = uniproto.select(
                            points, k, method=method, metric="euclidean", seed=seed
                        )
                    except MissingExtraError as error:
                        missing[label] = str(error)
                        break
                    away = np.linalg.norm(points[chosen.indices, None] - points[None], axis=2)
                    ratio, _ = weight_skew(chosen.weights)
                    rows = [
                        {
                            "x": points[row, 0].round(4),
                            "y": points[row, 1].round(4),
                            "part": part[row],
                            "weight": weight,
                            "cost": chosen.cost,
                            "free_cost": away.min(axis=0).mean(),
                            "weight_ratio": ratio if math.isfinite(ratio) else None,
                        }
                        for row, weight in zip(chosen.indices, chosen.weights, strict=True)
                    ]
                    runs.add({"mixture": name, "method": label, "seed": seed}, rows)
                advance(1)

    # 2. In words: costs, weights, and what the smallest part gets.
    ran = [label for label in METHODS if label not in missing]
    report = [f"k = {k} of {count} points, Euclidean costs; ± over {seeds} seeds where drawn"]
    costs: dict[tuple[str, str], float] = {}
    for name, words in MIXTURES.items():
        points, part = mixture(name, count)
        rows = [row for row in runs.rows if row["mixture"] == name]
        units = {
            label: [
                [row for row in rows if row["method"] == label and row["seed"] == seed]
                for seed in sorted({row["seed"] for row in rows if row["method"] == label})
            ]
            for label in ran
        }
        for label in ran:
            costs[name, label] = np.mean([unit[0]["cost"] for unit in units[label]]).item()
        order = sorted(ran, key=lambda label: costs[name, label])
        small = {
            label: [
                [row["weight"] for row in unit if row["part"] == part.max()]
                for unit in units[label]
            ]
            for label in ran
        }
        table = {
            name: order,
            "cost": number_column(
                [mean_and_spread([unit[0]["cost"] for unit in units[label]]) for label in order]
            ),
            "weight ratio": [
                "∞" if None in ratios else f"{np.mean(ratios):.1f}"
                for ratios in (
                    [unit[0]["weight_ratio"] for unit in units[label]] for label in order
                )
            ],
            "in the smallest part": [
                f"{np.mean([len(s) for s in small[label]]):.1f}" for label in order
            ],
            "their weight": [f"{np.mean([sum(s) for s in small[label]]):.1%}" for label in order],
            "cost if weights were free": [
                f"{np.mean([unit[0]['free_cost'] for unit in units[label]]):.4f}" for label in order
            ],
        }
        share = np.mean(part == part.max())
        report += [
            f"{words}; the smallest part is {share:.1%}, {share * k:.1f} prototypes",
            aligned(table),
        ]
    wins = sum(
        min(costs[name, "uniproto"], costs[name, "uniproto+polish"])
        <= min(costs[name, label] for label in ran)
        for name in MIXTURES
    )
    plain = [costs[name, "uniproto"] / costs[name, "kmedoids"] - 1 for name in MIXTURES]
    drawn = [costs[name, "uniproto"] / costs[name, "random"] - 1 for name in MIXTURES]
    report.append(
        "Claim: for points that count equally, UniPROT stands closest to the data. "
        f"{'Confirmed' if wins == len(MIXTURES) else 'Not confirmed'}: UniPROT (polished or not) "
        f"has the lowest cost on {wins} of {len(MIXTURES)} mixtures. Unpolished, it costs "
        f"{min(plain):+.1%} to {max(plain):+.1%} against k-medoids and {min(drawn):+.1%} to "
        f"{max(drawn):+.1%} against random."
    )
    report += [f"left out: {label}: {reason}" for label, reason in missing.items()]

    # 3. In pictures: one panel per method; the area of a prototype is its weight.
    charts = {}
    for name, words in MIXTURES.items():
        points, part = mixture(name, count)
        names = [*list(COLOURS)[: part.max()], "smallest"]
        colour = alt.Color(
            "part:N",
            title="part of the data",
            scale=alt.Scale(domain=names, range=[COLOURS[each] for each in names]),
            legend=alt.Legend(orient="bottom", symbolOpacity=1, symbolSize=120),
        )
        size = alt.Size(
            "times_k:Q",
            title="weight, in units of 1/k",
            scale=alt.Scale(domain=[0, 4], range=[0, 440], clamp=False),
            legend=alt.Legend(
                orient="bottom", values=[0.5, 1, 2, 4], format=".1f", symbolFillColor="#444444"
            ),
        )
        reach = 0.53 * np.ptp(points, axis=0)
        middle = (points.max(axis=0) + points.min(axis=0)) / 2
        x, y = (
            channel(field, axis=None, scale=alt.Scale(domain=[low, high], nice=False))
            for channel, field, low, high in zip(
                (alt.X, alt.Y), ("x:Q", "y:Q"), middle - reach, middle + reach, strict=True
            )
        )
        cloud = alt.Chart(
            alt.Data(
                values=[
                    {"x": round(px, 3), "y": round(py, 3), "part": names[where]}
                    for (px, py), where in zip(points.tolist(), part.tolist(), strict=True)
                ]
            )
        ).mark_circle(size=9, opacity=0.35)
        panels = []
        for label in sorted(ran, key=lambda label: costs[name, label]):
            of = {"mixture": name, "method": label}
            mine = [row for row in runs.rows if of.items() <= row.items()]
            cost, spread = mean_and_spread([row["cost"] for row in mine[::k]])
            # Of several draws, the one nearest to the mean cost stands for all.
            seed = min(mine, key=lambda row: abs(row["cost"] - cost))["seed"]
            mine = [
                row | {"times_k": row["weight"] * k, "part": names[row["part"]]}
                for row in sorted(mine, key=lambda row: -row["weight"])  # the small ones on top
                if row["seed"] == seed
            ]
            ratio = mine[0]["weight_ratio"]
            told = "∞" if ratio is None else f"{ratio:.1f}"
            told = "all equal" if ratio == 1 else f"largest / smallest {told}"
            panels.append(
                alt.layer(
                    cloud.encode(x=x, y=y, color=colour),
                    alt.Chart(alt.Data(values=mine))
                    .mark_point(
                        filled=True, opacity=0.9, stroke="black", strokeWidth=1.2, shape="circle"
                    )
                    .encode(x=x, y=y, color=colour, size=size, tooltip=["times_k:Q", "part:N"]),
                ).properties(
                    width=230,
                    height=round(230 * reach[1] / reach[0]),
                    title=alt.TitleParams(
                        f"{label}: cost {cost:.3f}" + (f" ± {spread:.3f}" if spread else ""),
                        subtitle=f"weights: {told}",
                        subtitleFontSize=11,
                    ),
                )
            )
        charts[f"synthetic-{name}"] = styled(
            small_multiples(panels, columns=5),
            f"{k} prototypes by every method: {words}",
            "area: the weight a method learned; cost: optimal transport with equal weights, lowest "
            f"first (± over {seeds} draws, of which the one nearest to the mean is shown)",
        )
    runs.publish(charts, "\n\n".join(report))
    print("\n\n".join(report))
    print(f"\nwritten to {setup.out}")


if __name__ == "__main__":
    command_line(run, TITLE)
