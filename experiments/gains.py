"""Is the approximate gain good enough? (the paper's Figure 2, and its ablation of λ)

The classical greedy algorithm compares candidates by the exact gain f(x | P), one transport
problem each. UniPROT keeps the plan of P and lets x fill one unit of unclaimed mass, by a walk over
sorted costs: a lower bound of the exact gain where the plan is the optimal one of P (`resolve`).
Both rules run here; at every pick of the approximate one its gain is set against the exact gain of
the same element.

Gains are similarities, S = β − C, and any β may be added to all of them: a large β brings every
ratio close to 1. We take the smallest β with S ≥ 0, the largest cost, and show beside it the ratio
of the costs themselves, which no β can flatter.

    UNIPROTO_DATA=/path/to/data uniproto experiment gains
"""

import altair as alt
import numpy as np

import uniproto
from uniproto import UniProto
from uniproto.algorithm import objective_cost
from uniproto.charts import (
    BLUE,
    GREEN,
    ORANGE,
    dots_and_means,
    lines_and_bands,
    small_multiples,
    styled,
)
from uniproto.data import load_dataset
from uniproto.experiment import Runs, Setup, command_line
from uniproto.masses import whole_masses
from uniproto.progress import Progress
from uniproto.results import aligned
from uniproto.transport.entropic import entropic_plan

TITLE = "approximate against exact gains (Figure 2), and the strength λ of the entropy"
RULES = {
    "exact gains": UniProto(plan="resolve", gains="exact"),
    "approximate, plan resolved": UniProto(plan="resolve"),
    "approximate, plan extended": UniProto(plan="extend"),
}
COLOURS = dict(zip(RULES, (BLUE, ORANGE, GREEN), strict=True))
STRENGTHS = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1)  # the paper's are 0.01 to 0.1
SHADES = ("#888888", "#0d0887", "#6a00a8", "#b12a90", "#e16462", "#fca636")  # dark to light


def run(setup: Setup) -> None:
    # 1. The problems: a few rows of each data set, as source and as target.
    if setup.quick:
        names, seeds, rows, k = {"digits": "digits"}, 2, 120, 12
        few_rows, few_k, strengths = 80, 8, STRENGTHS[::2]
    else:
        names, seeds, rows, k = {"mnist": "MNIST", "cifar10-features": "CIFAR-10"}, 3, 1000, 60
        few_rows, few_k, strengths = 800, 40, STRENGTHS
    *_, ablated = names
    settings = {"seeds": seeds, "rows": rows, "k": k, "metric": "cosine", "quick": setup.quick}
    settings |= {"ablation": {"data": ablated, "rows": few_rows, "k": few_k, "λ": strengths}}
    runs = Runs(setup.out, "gains", settings)

    def cosine_costs(name: str, seed: int, count: int) -> np.ndarray:
        data = load_dataset(name, setup.data)
        drawn = np.random.default_rng(seed).choice(len(data.train), count, replace=False)
        points = data.train[drawn].astype(np.float64)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return np.maximum(0.0, 1.0 - points @ points.T)

    # 2. Every rule on every draw: f(P) after each pick, and the gains of that pick.
    units = [(name, seed) for name in names for seed in range(seeds)]
    with Progress(setup.progress).stage("exact and approximate", len(units)) as advance:
        for name, seed in units:
            if not runs.done(part="rules", data=name, seed=seed):
                costs = cosine_costs(name, seed, rows)
                masses, beta = whole_masses(k, rows), costs.max()
                found = []
                for rule, method in RULES.items():
                    chosen = uniproto.select(costs, k, method=method, metric="precomputed")
                    picks = chosen.indices.tolist()
                    totals = [objective_cost(costs, picks[:i], masses) for i in range(k + 1)]
                    for i in range(k):
                        exact_rise = totals[i + 1] - totals[i]
                        own_rise = chosen.beta - chosen.gains[i]  # in cost form, without β
                        found.append(
                            {
                                "rule": rule,
                                "pick": i + 1,
                                "objective": beta * (i + 1) - totals[i + 1],
                                "gain": beta - own_rise,
                                "exact_gain": beta - exact_rise,
                                "ratio": (beta - own_rise) / (beta - exact_rise),
                                "cost_ratio": exact_rise / own_rise,
                                "cost": chosen.cost,
                                "seconds": chosen.timings["pick"],
                            }
                        )
                runs.add({"part": "rules", "data": name, "seed": seed}, found)
            advance(1)

    # 3. The ablation: the entropic plan with several strengths λ; λ = 0 is the exact plan.
    units = [(strength, seed) for strength in strengths for seed in range(seeds)]
    with Progress(setup.progress).stage("entropic", len(units)) as advance:
        for strength, seed in units:
            if not runs.done(part="entropic", data=ablated, seed=seed, strength=strength):
                costs = cosine_costs(ablated, seed, few_rows)
                masses, beta = whole_masses(few_k, few_rows), costs.max()
                method = (
                    UniProto(plan="entropic", reg=strength)
                    if strength
                    else RULES["approximate, plan resolved"]
                )
                chosen = uniproto.select(costs, few_k, method=method, metric="precomputed")
                picks = chosen.indices.tolist()
                totals = [objective_cost(costs, picks[:i], masses) for i in range(few_k + 1)]
                entropic = list(totals)  # ⟨C, γ⟩ of the entropic plans, entropy left out
                for i in range(1, few_k + 1) if strength else ():
                    solved = entropic_plan(costs[picks[:i]], masses.offer / masses.need, strength)
                    entropic[i] = float((solved.plan * costs[picks[:i]]).sum())
                found = []
                for i in range(few_k):
                    gain = beta - (chosen.beta - chosen.gains[i])
                    found.append(
                        {
                            "pick": i + 1,
                            "objective": beta * (i + 1) - totals[i + 1],
                            "gain": gain,
                            "ratio": gain / (beta - (totals[i + 1] - totals[i])),
                            "entropic_ratio": gain / (beta - (entropic[i + 1] - entropic[i])),
                            "cost": chosen.cost,
                            "seconds": chosen.timings["pick"],
                            "unconverged": chosen.notes.get("unconverged_plans", 0),
                        }
                    )
                runs.add(
                    {"part": "entropic", "data": ablated, "seed": seed, "strength": strength}, found
                )
            advance(1)

    # 4. What the rows say.
    rules = [row for row in runs.rows if row["part"] == "rules"]
    ablation = [row for row in runs.rows if row["part"] == "entropic"]
    best = {
        (row["data"], row["seed"], row["pick"]): row["objective"]
        for row in rules
        if row["rule"] == "exact gains"
    }
    for row in rules:
        reached = best[row["data"], row["seed"], row["pick"]]
        row["shortfall"] = 1 - row["objective"] / reached

    def of(rows: list[dict], column: str, **wanted: object) -> np.ndarray:
        return np.array([row[column] for row in rows if wanted.items() <= row.items()])

    pairs = [(name, rule) for name in names for rule in RULES]
    table = {"": [f"{names[name]}: {rule}" for name, rule in pairs]}
    for title, column, form, last in (
        ("objective", "objective", ".4f", True),
        ("shortfall", "shortfall", ".2%", True),
        ("mean ratio", "ratio", ".4f", False),
        ("lowest", "ratio", ".4f", False),
        ("mean cost ratio", "cost_ratio", ".3f", False),
        ("cost", "cost", ".4f", True),
        ("seconds", "seconds", ".2f", True),
    ):
        merge = np.min if title == "lowest" else np.mean
        table[title] = [
            format(
                merge(of(rules, column, data=name, rule=rule, **({"pick": k} if last else {}))),
                form,
            )
            for name, rule in pairs
        ]
    strong = {"λ": [f"{strength:g}" for strength in strengths]}
    for title, column, form, last in (
        ("mean ratio", "ratio", ".4f", False),
        ("its spread", "ratio", ".4f", False),
        ("mean entropic ratio", "entropic_ratio", ".4f", False),
        ("objective", "objective", ".4f", True),
        ("cost", "cost", ".5f", True),
        ("seconds", "seconds", ".2f", True),
        ("unconverged plans", "unconverged", ".0f", True),
    ):
        merge = np.std if title == "its spread" else np.mean
        strong[title] = [
            format(
                merge(of(ablation, column, strength=strength, **({"pick": few_k} if last else {}))),
                form,
            )
            for strength in strengths
        ]
    verdicts = []
    for rule in list(RULES)[1:]:
        ratios, cost_ratios = of(rules, "ratio", rule=rule), of(rules, "cost_ratio", rule=rule)
        shortfall = of(rules, "shortfall", rule=rule, pick=k)
        raised = np.mean(
            of(rules, "cost", rule=rule, pick=k) / of(rules, "cost", rule="exact gains", pick=k) - 1
        )
        close = ratios.mean() > 0.95 and shortfall.max() < 0.05
        verdicts.append(
            "Claim: the objectives are very close and the ratio is near 1. "
            f"{'Confirmed' if close else 'Not confirmed'} for {rule}: the final objective is "
            f"{shortfall.mean():.2%} below exact greedy's (at most {shortfall.max():.2%}), the "
            f"ratio {ratios.mean():.3f} on average and {ratios.min():.3f} at worst. In costs, "
            f"where β plays no part, the ratio is {cost_ratios.mean():.2f} on average and "
            f"{cost_ratios.min():.2f} at worst, and the prototypes cost {raised:+.1%}."
        )
    weakest, strongest = min(s for s in strengths if s >= 0.01), max(strengths)
    for column, words in (
        ("ratio", "against the exact gain"),
        ("entropic_ratio", "against the gain of the entropic plan"),
    ):
        low = of(ablation, column, strength=weakest)
        high = of(ablation, column, strength=strongest)
        nearer, steadier = abs(high - 1).mean() < abs(low - 1).mean(), high.std() < low.std()
        verdicts.append(
            "Claim: a larger λ brings the ratio to 1 and lowers its variance. "
            f"{('Not confirmed', 'Half confirmed', 'Confirmed')[int(nearer) + int(steadier)]} "
            f"{words}: from λ = {weakest:g} to {strongest:g} the mean ratio goes from "
            f"{low.mean():.4f} to {high.mean():.4f}, its standard deviation from "
            f"{low.std():.4f} to {high.std():.4f}."
        )
    final = {s: of(ablation, "cost", strength=s, pick=few_k).mean() for s in strengths}
    cheapest = min(final, key=lambda strength: final[strength])
    verdicts.append(
        f"The prototypes themselves cost least with λ = {cheapest:g} ({final[cheapest]:.5f}; exact "
        f"plan {final[0.0]:.5f}, λ = {strongest:g} {final[strongest]:.5f})."
    )
    report = "\n\n".join(
        [
            f"k = {k} of {rows} rows, means over {seeds} draws; β is the largest cost",
            aligned(table),
            f"λ: k = {few_k} of {few_rows} rows of {names[ablated]}",
            aligned(strong),
            *verdicts,
        ]
    )

    # 5. In pictures: the rules ...
    panels = []
    for name, words in names.items():
        mine = [row for row in rules if row["data"] == name]
        approximate = [row for row in mine if row["rule"] != "exact gains"]
        x = alt.X("pick:Q", title="prototypes picked", scale=alt.Scale(nice=False))
        for column, shown, title, heading, form in (
            ("objective", mine, "objective f(P)", "the objective", "d"),
            ("shortfall", approximate, "below exact greedy", "what is lost of it", ".1%"),
            ("ratio", approximate, "approximate / exact gain", "ratio of gains", ".2f"),
            ("cost_ratio", approximate, "exact / approximate cost", "the same in costs", ".2f"),
        ):
            panels.append(
                lines_and_bands(
                    shown,
                    x=x,
                    y=alt.Y(
                        f"{column}:Q",
                        title=title,
                        axis=alt.Axis(format=form),
                        scale=alt.Scale(zero=column == "objective"),
                    ),
                    series="rule",
                    colours=COLOURS,
                    dashes={
                        "approximate, plan resolved": [6, 3],
                        "approximate, plan extended": [2, 2],
                    },
                    title=f"{words}: {heading}",
                    width=230,
                    height=200,
                )
            )
    rules_chart = styled(
        small_multiples(panels, columns=4),
        "Greedy picks by approximate and by exact gains",
        f"k = {k} of {rows:,} rows, cosine costs; lines: means of {seeds} draws, bands: lowest to "
        "highest; similarity = largest cost − cost",
    )

    # ... and the strength λ.
    for row in ablation:
        row["λ"] = f"λ = {row['strength']:g}" if row["strength"] else "λ = 0 (exact plan)"
    shades = dict(zip(dict.fromkeys(row["λ"] for row in ablation), SHADES, strict=False))
    panels = [
        lines_and_bands(
            ablation,
            x=alt.X("pick:Q", title="prototypes picked", scale=alt.Scale(nice=False)),
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
            [row for row in ablation if row["pick"] == few_k],
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
    strengths_chart = styled(
        small_multiples(panels, columns=3),
        "What the entropic strength λ does to the approximation",
        f"k = {few_k} of {few_rows:,} rows of {names[ablated]}, cosine costs; lines and diamonds: "
        f"means of {seeds} draws, bands: lowest to highest, circles: the draws",
    )
    runs.publish({"gains": rules_chart, "gains-lambda": strengths_chart}, report)
    print(report)
    print(f"\nwritten to {setup.out}")


if __name__ == "__main__":
    command_line(run, TITLE)
