"""Which points does each method choose, and what weights does it give them? A look at 2-D data.

Three mixtures with unequal parts, made here from fixed seeds (the paper mentions synthetic
distributions and does not define them). Every method chooses k of the points for all of them. The
area of a prototype is the weight its method learned; methods without weights of their own have
equal areas. Costs are optimal-transport costs with equal weights, as everywhere; the last column
of the table says what the same points would cost if weights were free.

    uniproto experiment synthetic
"""

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt
import numpy as np

import uniproto
from support.runs import Runs, Setup, command_line
from support.statistics import by
from uniproto import MissingExtraError
from uniproto.comparing.accuracy import weight_skew
from uniproto.comparing.results import aligned, number_column
from uniproto.report.charts import BLUE, GREEN, ORANGE, PINK, small_multiples, styled
from uniproto.report.words import mean_and_spread
from uniproto.runtime.progress import Progress

TITLE = "every method's prototypes and weights on imbalanced 2-D mixtures"
METHODS = (
    "greedy", "uniproto", "kmedoids", "facility_location", "fasterpam", "kmeans", "mmd_critic",
    "protodash", "kcenter", "random",
)  # fmt: skip
DRAWING = ("random", "kmeans", "fasterpam", "kcenter")  # these depend on the seed
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


# The rows of a mixture: by method, then by draw.
Units = dict[str, list[list[dict[str, Any]]]]


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    count: int  # points of a mixture
    k: int
    seeds: int  # of the methods that draw


def run(setup: Setup) -> None:
    """Every method on every mixture; what they chose, in words and in pictures."""
    sizes = Sizes(60, 5, 2) if setup.quick else Sizes(500, 20, 5)
    mixtures = list(MIXTURES)[:1] if setup.quick else list(MIXTURES)
    runs = Runs(
        setup.out, "synthetic", asdict(sizes) | {"metric": "euclidean", "quick": setup.quick}
    )
    missing = _run_methods(setup, runs, sizes, mixtures)
    found: dict[str, Units] = {
        name: {label: [] for label in METHODS if label not in missing} for name in mixtures
    }
    for (name, label, _), unit in by(runs.rows, "mixture", "method", "seed").items():
        if label not in missing:
            found[name][label].append(unit)
    report = [
        f"k = {sizes.k} of {sizes.count} points, Euclidean costs; "
        f"± over {sizes.seeds} seeds where drawn"
    ]
    for name in mixtures:
        report += mixture_report(name, found[name], sizes)
    report.append(verdict(found))
    report += [f"left out: {label}: {reason}" for label, reason in missing.items()]
    charts = {f"synthetic-{name}": mixture_chart(name, found[name], sizes) for name in mixtures}
    runs.publish(charts, "\n\n".join(report))
    print("\n\n".join(report))
    print(f"\nwritten to {setup.out}")


def _run_methods(setup: Setup, runs: Runs, sizes: Sizes, mixtures: list[str]) -> dict[str, str]:
    """Add what is not there yet; return the methods that cannot run, and why."""
    missing = {}
    with Progress(setup.progress).stage("synthetic", len(mixtures) * len(METHODS)) as advance:
        for name, label in itertools.product(mixtures, METHODS):
            for seed in range(sizes.seeds if label in DRAWING else 1):
                if runs.done(mixture=name, method=label, seed=seed):
                    continue
                try:
                    rows = measure(name, label, seed, sizes)
                except MissingExtraError as error:
                    missing[label] = str(error)
                    break
                runs.add({"mixture": name, "method": label, "seed": seed}, rows)
            advance(1)
    return missing


def measure(name: str, method: str, seed: int, sizes: Sizes) -> list[dict[str, Any]]:
    """One row per prototype."""
    points, part = mixture(name, sizes.count)
    chosen = uniproto.select(points, sizes.k, method=method, metric="euclidean", seed=seed)
    away = np.linalg.norm(points[chosen.indices, None] - points[None], axis=2)
    ratio, _ = weight_skew(chosen.weights)
    return [
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


def _by_cost(units: Units) -> list[str]:
    """The methods of a mixture, the lowest cost first."""
    return sorted(units, key=lambda label: _mean(units, label, "cost"))


def _each(units: Units, label: str, column: str) -> list[Any]:
    """A column that all prototypes of a draw share, once per draw."""
    return [unit[0][column] for unit in units[label]]


def _mean(units: Units, label: str, column: str) -> float:
    return np.mean(_each(units, label, column)).item()


def mixture_report(name: str, units: Units, sizes: Sizes) -> list[str]:
    """Costs, weights, and what the smallest part gets."""
    _, part = mixture(name, sizes.count)
    order = _by_cost(units)
    ratios = {label: _each(units, label, "weight_ratio") for label in order}
    small = {
        label: [
            [row["weight"] for row in unit if row["part"] == part.max()] for unit in units[label]
        ]
        for label in order
    }
    table = {
        name: order,
        "cost": number_column([mean_and_spread(_each(units, label, "cost")) for label in order]),
        "weight ratio": [
            "∞" if None in ratios[label] else f"{np.mean(ratios[label]):.1f}" for label in order
        ],
        "in the smallest part": [
            f"{np.mean([len(weights) for weights in small[label]]):.1f}" for label in order
        ],
        "their weight": [
            f"{np.mean([sum(weights) for weights in small[label]]):.1%}" for label in order
        ],
        "cost if weights were free": [f"{_mean(units, label, 'free_cost'):.4f}" for label in order],
    }
    share = np.mean(part == part.max())
    words = f"{MIXTURES[name]}; the smallest part is {share:.1%}, {share * sizes.k:.1f} prototypes"
    return [words, aligned(table)]


def verdict(mixtures: dict[str, Units]) -> str:
    """The claim that UniPROT's prototypes, counting equally, are the closest."""
    wins = sum(_by_cost(units)[0] == "uniproto" for units in mixtures.values())
    plain, drawn = (
        [
            _mean(units, "greedy", "cost") / _mean(units, other, "cost") - 1
            for units in mixtures.values()
        ]
        for other in ("kmedoids", "random")
    )
    return (
        "Claim: for points that count equally, UniPROT stands closest to the data. "
        f"{'Confirmed' if wins == len(mixtures) else 'Not confirmed'}: the default has the lowest "
        f"cost on {wins} of {len(mixtures)} mixtures. The paper's algorithm costs "
        f"{min(plain):+.1%} to {max(plain):+.1%} against k-medoids and {min(drawn):+.1%} to "
        f"{max(drawn):+.1%} against random."
    )


def mixture_chart(name: str, units: Units, sizes: Sizes) -> alt.TopLevelMixin:
    """One panel per method, over the cloud of all points; a prototype's area is its weight."""
    points, part = mixture(name, sizes.count)
    names = [*list(COLOURS)[: part.max()], "smallest"]
    colour = alt.Color(
        "part:N",
        title="part of the data",
        scale=alt.Scale(domain=names, range=[COLOURS[each] for each in names]),
        legend=alt.Legend(orient="bottom", symbolOpacity=1, symbolSize=120),
    )
    reach = 0.53 * np.ptp(points, axis=0)
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    x, y = (
        channel(field, axis=None, scale=alt.Scale(domain=[low, high], nice=False))
        for channel, field, low, high in zip(
            (alt.X, alt.Y), ("x:Q", "y:Q"), middle - reach, middle + reach, strict=True
        )
    )
    dots = [
        {"x": round(px, 3), "y": round(py, 3), "part": names[where]}
        for (px, py), where in zip(points.tolist(), part.tolist(), strict=True)
    ]
    cloud = alt.Chart(alt.Data(values=dots)).mark_circle(size=9, opacity=0.35)
    panels = []
    for label in _by_cost(units):
        cost, spread = mean_and_spread(_each(units, label, "cost"))
        # Of several draws, the one nearest to the mean cost stands for all.
        shown = min(units[label], key=lambda unit: abs(unit[0]["cost"] - cost))
        title = alt.TitleParams(
            f"{label}: cost {cost:.3f}" + (f" ± {spread:.3f}" if spread else ""),
            subtitle=f"weights: {_ratio_text(shown[0]['weight_ratio'])}",
            subtitleFontSize=11,
        )
        panel = alt.layer(
            cloud.encode(x=x, y=y, color=colour),
            _prototypes(shown, names, sizes.k).encode(x=x, y=y, color=colour),
        )
        height = round(230 * reach[1] / reach[0])
        panels.append(panel.properties(width=230, height=height, title=title))
    return styled(
        small_multiples(panels, columns=5),
        f"{sizes.k} prototypes by every method: {MIXTURES[name]}",
        "area: the weight a method learned; cost: optimal transport with equal weights, lowest "
        f"first (± over {sizes.seeds} draws, of which the one nearest to the mean is shown)",
    )


def _prototypes(unit: list[dict[str, Any]], names: list[str], k: int) -> alt.Chart:
    rows = [
        row | {"times_k": row["weight"] * k, "part": names[row["part"]]}
        for row in sorted(unit, key=lambda row: -row["weight"])  # the small ones on top
    ]
    size = alt.Size(
        "times_k:Q",
        title="weight, in units of 1/k",
        scale=alt.Scale(domain=[0, 4], range=[0, 440], clamp=False),
        legend=alt.Legend(
            orient="bottom", values=[0.5, 1, 2, 4], format=".1f", symbolFillColor="#444444"
        ),
    )
    marks = alt.Chart(alt.Data(values=rows)).mark_point(
        filled=True, opacity=0.9, stroke="black", strokeWidth=1.2, shape="circle"
    )
    return marks.encode(size=size, tooltip=["times_k:Q", "part:N"])


def _ratio_text(weight_ratio: float | None) -> str:
    if weight_ratio == 1:
        return "all equal"
    return f"largest / smallest {'∞' if weight_ratio is None else f'{weight_ratio:.1f}'}"


if __name__ == "__main__":
    command_line(run, TITLE)
