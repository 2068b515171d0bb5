"""One GPU: a pretraining step that chooses 64 of 128 sequences, and its bare products.

The clock runs over whole steps (scoring, choosing, forward, backward, optimizer), after warm-up,
several in a row with the GPU waited for at the end, and the median of such rows is reported. Bare
products are every matrix product of the training part, forward and backward, with inputs of
their own and nothing between them. What a choice costs beyond the scoring pass is the step, less
the step of `random` (which trains on as many), less the scoring pass alone.

`python -m benchmarks.pretraining_step --size 500m --peak 989e12 --methods full uniproto`
measures other sizes, machines and methods.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Report, figures_table, median, rows_table

TITLE = "one GPU: pretraining a LLaMA-3 of 60 million parameters, 64 of 128 sequences of 512, bf16"
VOCAB, LENGTH = 32_000, 512
PEAK = 989e12  # dense bfloat16 products of an H100 or H200, per second
REACH_STEP, REACH_CHOICE = 2.0, 0.10
# What is measured: name, and how it differs from the usual settings.
STEPS: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "random": {"method": "random"},
    "uniproto": {},
    "uniproto, entropic plan": {"plan": "entropic"},
    "uniproto, exact gradients": {"features": "exact"},
    "colm": {"method": "colm"},
    "greats": {"method": "greats"},
    "gradnorm": {"method": "gradnorm"},
    "maxloss": {"method": "maxloss"},
}
_IN_A_ROW, _ROWS = 5, 5


def run(
    report: Report,
    quick: bool,
    size: str = "60m",
    peak: float = PEAK,
    names: tuple[str, ...] = tuple(STEPS),
) -> None:
    try:
        import jax
    except ImportError:
        report.row("GPU", unavailable="no GPU: jax is not installed")
        return
    if jax.default_backend() != "gpu" and not quick:
        report.row("GPU", unavailable="no GPU: jax sees none")
        return
    from uniproto.lm.pretraining import StepSettings, model_config

    report.note(accelerator=jax.devices()[0].device_kind, jax=jax.__version__, peak_flops=peak)
    config = model_config("tiny" if quick else size, 512 if quick else VOCAB, LENGTH)
    settings = StepSettings(pool=8, keep=4) if quick else StepSettings()
    report.row("model", parameters=config.parameters, size="tiny" if quick else size)
    scoring = scoring_seconds(config, settings)
    report.row("scoring pass alone", seconds=scoring)
    bare = bare_seconds(config, replace(settings, method="full"))
    report.row("bare products of full", **bare)
    seconds: dict[str, float] = {}
    for name in dict.fromkeys(
        ("full", "random", *names)
    ):  # the others are measured relative to these
        options = replace(settings, **STEPS[name])
        seconds[name], compiling = step_seconds(config, options)
        tell(report, name, config, options, seconds, compiling, scoring, peak)
        gc.collect()
    ratio = seconds["full"] / bare["seconds"]
    report.figure(
        "full step relative to its bare products", ratio, f"≤ {REACH_STEP}", ratio <= REACH_STEP
    )
    if "uniproto" in seconds:
        share = (seconds["uniproto"] - seconds["random"] - scoring) / seconds["uniproto"]
        report.figure(
            "uniproto: choosing beyond the scoring pass, as a share of the step",
            share,
            f"≤ {REACH_CHOICE}",
            share <= REACH_CHOICE,
        )


def tell(
    report: Report,
    name: str,
    config: Any,
    settings: Any,
    seconds: dict[str, float],
    compiling: float,
    scoring: float,
    peak: float,
) -> None:
    """One line of the table: a step's time, and what was reached in it."""
    from benchmarks.flops import step_flops

    now = seconds[name]
    work = step_flops(config, settings)
    beyond = now - seconds["random"] - scoring if settings.scores else None
    report.row(
        name,
        seconds=now,
        tokens_per_second=settings.trained * config.length / now,
        utilisation=work["total"] / now / peak,
        choosing_beyond_scoring=beyond,
        share_of_step=None if beyond is None else beyond / now,
        teraflop=work["total"] / 1e12,
        compiling=compiling,
    )


def step_seconds(config: Any, settings: Any) -> tuple[float, float]:
    """(seconds of one step, seconds until the first was done)."""
    import jax

    from uniproto.lm.pretraining import initial_state, make_step

    held = {"state": initial_state(config, settings, seed=0)}
    jax.block_until_ready(held)
    step, pool = make_step(config, settings), some_pool(config, settings)

    def once() -> Any:
        held["state"], record = step(held["state"], pool)
        return record

    begin = time.perf_counter()
    record = jax.block_until_ready(once())
    compiling = time.perf_counter() - begin
    if not record.finite:
        raise RuntimeError(f"a step of {settings.method} was not finite")
    return measured(once), compiling


def scoring_seconds(config: Any, settings: Any) -> float:
    """Of a forward pass over the pool that ends in its losses."""
    from uniproto.lm.pretraining import initial_state, make_validation

    params = initial_state(config, settings, seed=0).params
    forward = make_validation(config, settings.dtype)
    pool = some_pool(config, settings)
    return measured(lambda: forward(params, pool))


class Product(NamedTuple):
    """`batch` products of (m × k) and (k × n) matrices at once, `times` in a step."""

    name: str
    batch: int
    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.k * self.n * self.times


def bare_products(config: Any, settings: Any) -> list[Product]:
    """Every product of the training part of a step, forward and backward, without scoring.

    Timed on their own they are what the step cannot be quicker than with the same matrix
    library. Attention is counted in full, as products without a mask.
    """
    tokens = settings.trained * config.length
    width, hidden, layers = config.width, config.hidden, config.layers
    weights = [
        ("qkv", width, config.qkv_width, layers),
        ("attention out", width, width, layers),
        ("gate and up", width, 2 * hidden, layers),
        ("down", hidden, width, layers),
        ("head", width, config.vocab, 1),
    ]
    products = []
    for name, k, n, times in weights:
        products += [
            Product(name, 1, tokens, k, n, times),
            Product(f"{name}: gradient of inputs", 1, tokens, n, k, times),
            Product(f"{name}: gradient of weights", 1, k, tokens, n, times),
        ]
    heads, length, part = settings.trained * config.heads, config.length, config.head_width
    # Scores and reading; backward, the gradients of both factors of each.
    scores = Product("attention scores", heads, length, part, length, 2 * layers)
    reading = Product("attention reading", heads, length, length, part, 4 * layers)
    return [*products, scores, reading]


def bare_seconds(config: Any, settings: Any) -> dict[str, float]:
    """Of every product of the training part: those with weights, and those of attention."""
    groups: dict[tuple[bool, int], list[Any]] = {}
    for product in bare_products(config, settings):
        groups.setdefault((product.batch > 1, product.times), []).append(product)
    found = {"with_weights": 0.0, "of_attention": 0.0}
    for (is_attention, times), products in groups.items():
        name = "of_attention" if is_attention else "with_weights"
        found[name] += times * products_seconds(products, settings.dtype)
    return {"seconds": sum(found.values()), **found}


def products_seconds(products: list[Any], dtype: str) -> float:
    """Of one of each of these products, in one compiled call."""
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 2 * len(products))
    draw = jax.jit(
        lambda key, shape: jax.random.normal(key, shape, jnp.dtype(dtype)), static_argnums=1
    )
    factors = [
        (draw(one, (p.batch, p.m, p.k)), draw(two, (p.batch, p.k, p.n)))
        for p, one, two in zip(products, keys[::2], keys[1::2], strict=True)
    ]
    multiply = jax.jit(lambda factors: [jnp.matmul(left, right) for left, right in factors])
    return measured(lambda: multiply(factors))


def some_pool(config: Any, settings: Any) -> Any:
    import jax

    shape = (settings.pool, config.length + 1)
    return jax.random.randint(jax.random.key(1), shape, 0, config.vocab, "int32")


def measured(work: Callable[[], Any]) -> float:
    """Median seconds of one call, over rows of calls that wait only for the last."""
    import jax

    jax.block_until_ready(work())
    jax.block_until_ready(work())
    found = []
    for _ in range(_ROWS):
        begin = time.perf_counter()
        for _ in range(_IN_A_ROW):
            last = work()
        jax.block_until_ready(last)
        found.append((time.perf_counter() - begin) / _IN_A_ROW)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="60m", help="of the model (default: 60m)")
    parser.add_argument("--peak", type=float, default=PEAK, help=f"FLOP/s (default: {PEAK:.3g})")
    parser.add_argument("--methods", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--quick", action="store_true", help="a tiny model, on any machine")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="where JSON goes")
    given = parser.parse_args()
    report = Report("pretraining_step", TITLE, given.out, given.quick)
    run(report, given.quick, given.size, given.peak, tuple(given.methods))
    report.finish()
    print(f"\n{rows_table(report.content)}\n\n{figures_table([report.content])}")


if __name__ == "__main__":
    main()
