"""Curves of pretraining runs: validation log-perplexity against steps and against time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from uniproto.report.charts import BLUE, GREEN, GREY, ORANGE, PINK

METHOD_COLOURS = {
    "uniproto": BLUE,
    "colm": PINK,
    "greats": ORANGE,
    "gradnorm": "#D55E00",
    "maxloss": GREEN,
    "random": GREY,
    "full": "#000000",
}
_ENTROPIC = {"uniproto-entropic": "#56B4E9"}  # a name of the experiment, not of a method


def curve_points(rows: Sequence[Mapping[str, Any]], **run: Any) -> list[dict[str, Any]]:
    """The validated rows of a run's metrics, tidy; `run` (method, seed, …) is added to each.

    >>> rows = [{"step": 5, "seconds": 2.0, "tokens": 80, "train_loss": 3.5, "val_loss": 3.0},
    ...         {"step": 6, "seconds": 2.4, "tokens": 96, "train_loss": 3.4, "val_loss": None}]
    >>> curve_points(rows, method="full")
    [{'method': 'full', 'step': 5, 'seconds': 2.0, 'tokens': 80, 'train_loss': 3.5,
      'log_perplexity': 3.0}]
    """
    return [
        {
            **run,
            **{name: row[name] for name in ("step", "seconds", "tokens", "train_loss")},
            "log_perplexity": row["val_loss"],
        }
        for row in rows
        if row["val_loss"] is not None
    ]


def curves_chart(points: Sequence[Mapping[str, Any]], title: str, subtitle: str = "") -> Any:
    """One line per method against steps and against time; several seeds as a mean with a band.

    Two methods or more are compared after equal steps and after equal time; one has its course.
    A point has `method`, `step`, `seconds` and `log_perplexity`. Seeds take different times, so
    in the panel of times a step stands at its mean time.
    """
    import altair as alt

    from uniproto.report.charts import lines_and_bands, loose_scale, small_multiples, styled

    times: dict[tuple[str, int], list[float]] = {}
    for point in points:
        times.setdefault((point["method"], point["step"]), []).append(point["seconds"])
    shown = [
        {**point, "mean_seconds": sum(same) / len(same)}
        for point in points
        for same in [times[point["method"], point["step"]]]
    ]
    # The model before any training is far above the rest, and the same for all.
    trained = [point for point in shown if point["step"] > 0]
    if len({point["step"] for point in trained}) < 2:  # no line without it
        trained = shown
    present = {point["method"] for point in points}
    by = "after equal" if len(present) > 1 else "by"
    options: dict[str, Any] = {
        "y": alt.Y("log_perplexity:Q", title="validation log-perplexity", scale=loose_scale(alt)),
        "series": "method",
        "colours": {
            name: hue for name, hue in (METHOD_COLOURS | _ENTROPIC).items() if name in present
        },
        "width": 380,
        "height": 300,
    }
    panels = [
        lines_and_bands(
            trained,
            x=alt.X("step:Q", title="step", scale=alt.Scale(zero=True)),
            title=f"{by} steps",
            **options,
        ),
        lines_and_bands(
            trained,
            x=alt.X("mean_seconds:Q", title="seconds of training", scale=alt.Scale(zero=True)),
            title=f"{by} time",
            **options,
        ),
    ]
    return styled(small_multiples(panels, 2, shared=["y"]), title, subtitle)
