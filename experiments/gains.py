"""Is the approximate gain good enough? (the paper's Figure 2, and its ablation of λ)

The classical greedy algorithm compares candidates by the exact gain f(x | P), one transport
problem each. UniPROT keeps the plan of P and lets x fill one unit of unclaimed mass, by a walk over
sorted costs: a lower bound of the exact gain where the plan is the optimal one of P (`resolve`).
Both rules run here; at every pick of the approximate one its gain is set against the exact gain of
the same element.

Gains are similarities, S = β − C, and any β may be added to all of them: a large β brings every
ratio close to 1. We take the smallest β with S ≥ 0, the largest cost, and also show the ratio
of the costs themselves, which no β can flatter.

    UNIPROTO_DATA=/path/to/data uniproto experiment gains
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

import uniproto
from support.charts import dots_and_means, lines_and_bands
from support.datasets import load_dataset
from support.runs import Runs, Setup, command_line
from uniproto import Entropic, Greedy, UniProto
from uniproto.algorithm import objective_cost
from uniproto.comparing.results import aligned
from uniproto.problem.masses import integer_masses
from uniproto.report.charts import BLUE, GREEN, ORANGE, small_multiples, styled
from uniproto.runtime.progress import Progress
from uniproto.transport.entropic import entropic_plan, iterations_for

TITLE = "approximate against exact gains (Figure 2), and the strength λ of the entropy"
RULES = {
    "exact gains": Greedy(plan="resolve", gains="exact"),
    "approximate, plan resolved": Greedy(plan="resolve"),
    "approximate, plan extended": Greedy(),
}
COLOURS = dict(zip(RULES, (BLUE, ORANGE, GREEN), strict=True))
DASHES = {"approximate, plan resolved": [6, 3], "approximate, plan extended": [2, 2]}
STRENGTHS = (0.0, 0.01, 0.02, 0.05, 0.1)  # the paper's, and the exact plan
SHADES = ("#888888", "#0d0887", "#7e03a8", "#cc4778", "#f89540")  # dark to light


@dataclass(frozen=True)
class Sizes:
    """How much is run: the rules on every data set, the strengths λ on fewer rows of the last."""

    names: dict[str, str]  # data sets, with the words of the figures
    seeds: int
    rows: int
    k: int
    few_rows: int
    few_k: int
    strengths: tuple[float, ...]

    @property
    def ablated(self) -> str:
        return list(self.names)[-1]


QUICK = Sizes({"digits": "digits"}, 2, 120, 12, 80, 8, STRENGTHS[::2])
PAPER = Sizes({"mnist": "MNIST", "cifar10-features": "CIFAR-10"}, 3, 1000, 60, 2000, 20, STRENGTHS)


def run(setup: Setup) -> None:
    """Both rules on every draw, then the strengths; tables, verdicts and figures of the rows."""
    sizes = QUICK if setup.quick else PAPER
    settings = {"seeds": sizes.seeds, "rows": sizes.rows, "k": sizes.k, "metric": "cosine"}
    ablation = {"data": sizes.ablated, "rows": sizes.few_rows, "k": sizes.few_k}
    ablation |= {"λ": sizes.strengths}
    settings |= {"quick": setup.quick, "ablation": ablation}
    runs = Runs(setup.out, "gains", settings)
    _run_rules(setup, runs, sizes)
    _run_strengths(setup, runs, sizes)
    rules = _with_shortfall([row for row in runs.rows if row["part"] == "rules"])
    entropic = [row for row in runs.rows if row["part"] == "entropic"]
    report = "\n\n".join(
        [
            f"k = {sizes.k} of {sizes.rows} rows, means over {sizes.seeds} draws; "
            "β is the largest cost",
            rules_table(rules, sizes),
            f"λ: k = {sizes.few_k} of {sizes.few_rows} rows of {sizes.names[sizes.ablated]}",
            strengths_table(entropic, sizes),
            *rules_verdicts(rules, sizes),
            *strengths_verdicts(entropic, sizes),
        ]
    )
    charts = {
        "gains": rules_chart(rules, sizes),
        "gains-lambda": strengths_chart(entropic, sizes),
    }
    runs.publish(charts, report)
    print(report)
    print(f"\nwritten to {setup.out}")


def _run_rules(setup: Setup, runs: Runs, sizes: Sizes) -> None:
    units = [(name, seed) for name in sizes.names for seed in range(sizes.seeds)]
    with Progress(setup.progress).stage("exact and approximate", len(units)) as advance:
        for name, seed in units:
            if not runs.done(part="rules", data=name, seed=seed):
                costs = _cosine_costs(setup, name, seed, sizes.rows)
                found = [
                    {"rule": rule} | row
                    for rule, method in RULES.items()
                    for row in measure_rule(costs, sizes.k, method)
                ]
                runs.add({"part": "rules", "data": name, "seed": seed}, found)
            advance(1)


def _run_strengths(setup: Setup, runs: Runs, sizes: Sizes) -> None:
    units = [(strength, seed) for strength in sizes.strengths for seed in range(sizes.seeds)]
    with Progress(setup.progress).stage("entropic", len(units)) as advance:
        for strength, seed in units:
            unit = {"part": "entropic", "data": sizes.ablated, "seed": seed, "strength": strength}
            if not runs.done(**unit):
                costs = _cosine_costs(setup, sizes.ablated, seed, sizes.few_rows)
                runs.add(unit, measure_strength(costs, sizes.few_k, strength))
            advance(1)


def _cosine_costs(setup: Setup, name: str, seed: int, count: int) -> np.ndarray:
    """A few rows of a data set, as source and as target."""
    data = load_dataset(name, setup.data)
    drawn = np.random.default_rng(seed).choice(len(data.train), count, replace=False)
    points = data.train[drawn].astype(np.float64)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return np.maximum(0.0, 1.0 - points @ points.T)


def measure_rule(costs: np.ndarray, k: int, method: UniProto) -> list[dict[str, Any]]:
    """f(P) after each pick of one rule, and the gains of that pick."""
    beta = costs.max()
    chosen = uniproto.select(costs, k, method=method, metric="precomputed")
    totals = _objective_costs(costs, chosen.indices.tolist())
    found = []
    for i in range(k):
        exact_rise = totals[i + 1] - totals[i]
        own_rise = chosen.details.beta - chosen.details.gains[i]  # in cost form, without β
        found.append(
            {
                "pick": i + 1,
                "objective": beta * (i + 1) - totals[i + 1],
                "gain": beta - own_rise,
                "exact_gain": beta - exact_rise,
                "ratio": (beta - own_rise) / (beta - exact_rise),
                "cost_ratio": exact_rise / own_rise,
                "cost": chosen.cost,
                "seconds": chosen.details.timings["pick"],
            }
        )
    return found


def measure_strength(costs: np.ndarray, k: int, strength: float) -> list[dict[str, Any]]:
    """The same under the entropic plan with strength λ; λ = 0 is the exact plan."""
    beta = costs.max()
    exact = RULES["approximate, plan resolved"]
    method = Greedy(plan=Entropic(reg=strength)) if strength else exact
    chosen = uniproto.select(costs, k, method=method, metric="precomputed")
    picks = chosen.indices.tolist()
    totals = _objective_costs(costs, picks)
    entropic = _entropic_costs(costs, picks, strength) if strength else totals
    found = []
    for i in range(k):
        gain = beta - (chosen.details.beta - chosen.details.gains[i])
        found.append(
            {
                "pick": i + 1,
                "objective": beta * (i + 1) - totals[i + 1],
                "gain": gain,
                "ratio": gain / (beta - (totals[i + 1] - totals[i])),
                "entropic_ratio": gain / (beta - (entropic[i + 1] - entropic[i])),
                "cost": chosen.cost,
                "seconds": chosen.details.timings["pick"],
                "unconverged": chosen.details.notes.get("unconverged_plans", 0),
                "violation": chosen.details.notes.get("marginal_violation", 0.0),
            }
        )
    return found


def _objective_costs(costs: np.ndarray, picks: list[int]) -> list[float]:
    """⟨C, γ⟩ of the exact plans of the first 0, 1, … picks."""
    masses = integer_masses(len(picks), costs.shape[1])
    return [objective_cost(costs, picks[:i], masses) for i in range(len(picks) + 1)]


def _entropic_costs(costs: np.ndarray, picks: list[int], strength: float) -> list[float]:
    """⟨C, γ⟩ of the entropic plans of the first 0, 1, … picks, entropy left out."""
    iterations = iterations_for(len(costs))
    masses = integer_masses(len(picks), costs.shape[1])
    totals = [0.0]
    for i in range(1, len(picks) + 1):
        capacity = masses.offer / masses.need
        solved = entropic_plan(costs[picks[:i]], capacity, strength, iterations)
        totals.append(float((solved.plan * costs[picks[:i]]).sum()))
    return totals


def _with_shortfall(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each row with the share of exact greedy's objective, after as many picks, that it lacks."""
    best = {
        (row["data"], row["seed"], row["pick"]): row["objective"]
        for row in rows
        if row["rule"] == "exact gains"
    }
    return [
        row | {"shortfall": 1 - row["objective"] / best[row["data"], row["seed"], row["pick"]]}
        for row in rows
    ]


def _of(rows: list[dict[str, Any]], column: str, **wanted: object) -> np.ndarray:
    return np.array([row[column] for row in rows if wanted.items() <= row.items()])


def rules_table(rules: list[dict[str, Any]], sizes: Sizes) -> str:
    """The rules on every data set: at the last pick, or over all of them."""
    pairs = [(name, rule) for name in sizes.names for rule in RULES]
    last = {"pick": sizes.k}
    table = {"": [f"{sizes.names[name]}: {rule}" for name, rule in pairs]}
    for title, column, form, merge, only in (
        ("objective", "objective", ".4f", np.mean, last),
        ("shortfall", "shortfall", ".2%", np.mean, last),
        ("mean ratio", "ratio", ".4f", np.mean, {}),
        ("lowest", "ratio", ".4f", np.min, {}),
        ("mean cost ratio", "cost_ratio", ".3f", np.mean, {}),
        ("cost", "cost", ".4f", np.mean, last),
        ("seconds", "seconds", ".2f", np.mean, last),
    ):
        table[title] = [
            format(merge(_of(rules, column, data=name, rule=rule, **only)), form)
            for name, rule in pairs
        ]
    return aligned(table)


def strengths_table(ablation: list[dict[str, Any]], sizes: Sizes) -> str:
    """The strengths λ: at the last pick, or over all of them."""
    last = {"pick": sizes.few_k}
    table = {"λ": [f"{strength:g}" for strength in sizes.strengths]}
    for title, column, form, merge, only in (
        ("mean ratio", "ratio", ".4f", np.mean, {}),
        ("its spread", "ratio", ".4f", np.std, {}),
        ("mean entropic ratio", "entropic_ratio", ".4f", np.mean, {}),
        ("objective", "objective", ".4f", np.mean, last),
        ("cost", "cost", ".5f", np.mean, last),
        ("seconds", "seconds", ".2f", np.mean, last),
        ("unconverged plans", "unconverged", ".0f", np.mean, last),
        ("mass above capacity", "violation", ".2%", np.max, last),
    ):
        table[title] = [
            format(merge(_of(ablation, column, strength=strength, **only)), form)
            for strength in sizes.strengths
        ]
    return aligned(table)


def rules_verdicts(rules: list[dict[str, Any]], sizes: Sizes) -> Iterator[str]:
    """The claim that approximate gains are close to exact ones, for each way to keep the plan."""
    exact_cost = _of(rules, "cost", rule="exact gains", pick=sizes.k)
    for rule in list(RULES)[1:]:
        ratios, cost_ratios = _of(rules, "ratio", rule=rule), _of(rules, "cost_ratio", rule=rule)
        shortfall = _of(rules, "shortfall", rule=rule, pick=sizes.k)
        raised = np.mean(_of(rules, "cost", rule=rule, pick=sizes.k) / exact_cost - 1)
        close = ratios.mean() > 0.95 and shortfall.max() < 0.05
        yield (
            "Claim: the objectives are very close and the ratio is near 1. "
            f"{'Confirmed' if close else 'Not confirmed'} for {rule}: the final objective is "
            f"{shortfall.mean():.2%} below exact greedy's (at most {shortfall.max():.2%}), the "
            f"ratio {ratios.mean():.3f} on average and {ratios.min():.3f} at worst. In costs, "
            f"where β plays no part, the ratio is {cost_ratios.mean():.2f} on average and "
            f"{cost_ratios.min():.2f} at worst, and the prototypes cost {raised:+.1%}."
        )


def strengths_verdicts(ablation: list[dict[str, Any]], sizes: Sizes) -> Iterator[str]:
    """The claim that a larger λ brings the ratio to 1, and which λ costs least."""
    weakest, strongest = min(s for s in sizes.strengths if s >= 0.01), max(sizes.strengths)
    for column, words in (
        ("ratio", "against the exact gain"),
        ("entropic_ratio", "against the gain of the entropic plan"),
    ):
        low = _of(ablation, column, strength=weakest)
        high = _of(ablation, column, strength=strongest)
        nearer, steadier = abs(high - 1).mean() < abs(low - 1).mean(), high.std() < low.std()
        yield (
            "Claim: a larger λ brings the ratio to 1 and lowers its variance. "
            f"{('Not confirmed', 'Half confirmed', 'Confirmed')[int(nearer) + int(steadier)]} "
            f"{words}: from λ = {weakest:g} to {strongest:g} the mean ratio goes from "
            f"{low.mean():.4f} to {high.mean():.4f}, its standard deviation from "
            f"{low.std():.4f} to {high.std():.4f}."
        )
    final = {s: _of(ablation, "cost", strength=s, pick=sizes.few_k).mean() for s in sizes.strengths}
    cheapest = min(final, key=lambda strength: final[strength])
    yield (
        f"The prototypes themselves cost least with λ = {cheapest:g} ({final[cheapest]:.5f}; exact "
        f"plan {final[0.0]:.5f}, λ = {strongest:g} {final[strongest]:.5f})."
    )


def _picked() -> alt.X:
    return alt.X("pick:Q", title="prototypes picked", scale=alt.Scale(nice=False))


def rules_chart(rules: list[dict[str, Any]], sizes: Sizes) -> alt.TopLevelMixin:
    """Objective, shortfall and ratios of every data set, pick by pick."""
    panels = []
    for name, words in sizes.names.items():
        mine = [row for row in rules if row["data"] == name]
        approximate = [row for row in mine if row["rule"] != "exact gains"]
        for column, shown, title, heading, form in (
            ("objective", mine, "objective f(P)", "the objective", "d"),
            ("shortfall", approximate, "below exact greedy", "what is lost of it", ".1%"),
            ("ratio", approximate, "approximate / exact gain", "ratio of gains", ".2f"),
            ("cost_ratio", approximate, "exact / approximate cost", "the same in costs", ".2f"),
        ):
            y = alt.Y(
                f"{column}:Q",
                title=title,
                axis=alt.Axis(format=form),
                scale=alt.Scale(zero=column == "objective"),
            )
            panels.append(
                lines_and_bands(
                    shown,
                    x=_picked(),
                    y=y,
                    series="rule",
                    colours=COLOURS,
                    dashes=DASHES,
                    title=f"{words}: {heading}",
                    width=230,
                    height=200,
                )
            )
    return styled(
        small_multiples(panels, columns=4),
        "Greedy picks by approximate and by exact gains",
        f"k = {sizes.k} of {sizes.rows:,} rows, cosine costs; lines: means of {sizes.seeds} draws, "
        "bands: lowest to highest; similarity = largest cost − cost",
    )


def strengths_chart(ablation: list[dict[str, Any]], sizes: Sizes) -> alt.TopLevelMixin:
    """The ratios under every λ, pick by pick, and the cost in the end."""
    ablation = [row | {"λ": _words(row["strength"])} for row in ablation]
    shades = dict(zip(dict.fromkeys(row["λ"] for row in ablation), SHADES, strict=False))
    panels = [
        lines_and_bands(
            ablation,
            x=_picked(),
            y=alt.Y(f"{column}:Q", title="ratio of gains", scale=alt.Scale(zero=False)),
            series="λ",
            colours=shades,
            title=title,
            band=0.07,
            width=300,
        )
        for column, title in (
            ("ratio", "approximate / exact gain"),
            ("entropic_ratio", "approximate / gain of the entropic plan"),
        )
    ]
    panels.append(
        dots_and_means(
            [row for row in ablation if row["pick"] == sizes.few_k],
            x=alt.X(
                "cost:Q",
                title="optimal-transport cost at the end",
                scale=alt.Scale(zero=False, padding=10),
            ),
            y=alt.Y(
                "λ:N", sort=list(shades), title=None, axis=alt.Axis(ticks=False, labelLimit=200)
            ),
            series="λ",
            colours=shades,
            title="cost (lower is better)",
            width=300,
            height=230,
        )
    )
    return styled(
        small_multiples(panels, columns=3),
        "What the entropic strength λ does to the approximation",
        f"k = {sizes.few_k} of {sizes.few_rows:,} rows of {sizes.names[sizes.ablated]}, cosine "
        f"costs; lines and diamonds: means of {sizes.seeds} draws, bands: lowest to highest, "
        "circles: the draws",
    )


def _words(strength: float) -> str:
    return f"λ = {strength:g}" if strength else "λ = 0 (exact plan)"


if __name__ == "__main__":
    command_line(run, TITLE)
