"""The faithful plan: re-solving exactly after every pick, compared with only extending the plan."""

from __future__ import annotations

from benchmarks.common import Report, cosine_costs, exact_cost, median

TITLE = "plan='resolve' and plan='extend', precomputed MNIST 5000 × 5000, k = 500"
REACH = 20.0


def run(report: Report, quick: bool) -> None:
    import uniproto

    n, k, repetitions = (1000, 100, 2) if quick else (5000, 500, 3)
    costs = cosine_costs(n)

    def select(plan: str, size: int, count: int) -> uniproto.Selection:
        method = uniproto.Greedy(plan=plan)
        part = costs[:size, :size].copy()
        return uniproto.select(
            part,
            count,
            metric="precomputed",
            method=method,
            compute=uniproto.Compute(device="cpu"),
            progress=False,
        )

    plans = ("extend", "resolve")
    for plan in plans:
        select(plan, 500, 50)
    seconds: dict[str, list[float]] = {plan: [] for plan in plans}
    picked = {}
    for _ in range(repetitions):
        for plan in plans:
            sel = select(plan, n, k)
            seconds[plan].append(sel.details.timings["pick"])
            picked[plan] = sel.indices
    for plan in plans:
        report.row(
            plan,
            pick_seconds=median(seconds[plan]),
            ot_cost=exact_cost(costs, picked[plan]),
            k=k,
            repetitions=repetitions,
            all_seconds=seconds[plan],
        )
    ratio = median(seconds["resolve"]) / median(seconds["extend"])
    report.figure(
        "resolve relative to extend, time of the picks", ratio, f"≤ {REACH:g}", ratio <= REACH
    )
