"""Experiments in parts: the units of each part, and the rows of all parts as one result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from support.runs import Runs, Setup
from support.statistics import by
from uniproto.runtime.progress import Progress

Rows = Sequence[Mapping[str, Any]]


def run_units(
    setup: Setup,
    name: str,
    settings: Mapping[str, Any],
    units: Iterable[Mapping[str, Any]],
    load: Callable[[], Any],
    measure: Callable[..., Iterable[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """The rows of a part: finished units are read, the others are `measure(loaded, **unit)`.

    `load` is called once, if a unit is left to measure.

    >>> import tempfile
    >>> from pathlib import Path
    >>> setup = Setup(None, Path(tempfile.mkdtemp()), progress=False)
    >>> def measure(k, seed):
    ...     return [{"cost": k + seed}]
    >>> run_units(setup, "trial", {}, [{"seed": 1}], lambda: 3, measure)
    [{'seed': 1, 'cost': 4}]
    """
    runs = Runs(setup.out, name, {"quick": setup.quick} | dict(settings))
    left = [unit for unit in units if not runs.done(**unit)]
    with Progress(setup.progress).stage(name, len(left)) as advance:
        loaded = load() if left else None
        for unit in left:
            runs.add(unit, list(measure(loaded, **unit)))
            advance(1)
    return runs.rows


def warm_up(source: Any, target: Any = None) -> None:
    """Load every method's compiled code, which must not count as the first unit's time."""
    from uniproto import Compute
    from uniproto.comparing.compare import small_problem, warms_up
    from uniproto.methods import FOR_A_TASK, METHODS
    from uniproto.problem.problem import Problem

    small = small_problem(Problem(source, target, compute=Compute(device="cpu")).with_k(20))
    for name in set(METHODS) - set(FOR_A_TASK):
        warms_up(small, METHODS[name]())


def publish_joined(
    setup: Setup,
    name: str,
    rows: Rows,
    report: Callable[[Rows], str],
    chart: Callable[[Rows], Any],
    key: Sequence[str] = ("run",),
) -> None:
    """Publish the rows of all runs as one result with its report and charts, and print the report.

    The columns of `key` say which run a row is of. `chart` returns one chart, or several by their
    names. The joined rows are computed again every time: only the runs' own rows are saved from
    one command to the next.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import altair as alt
    >>> setup = Setup(None, Path(tempfile.mkdtemp()))
    >>> rows = [{"run": "a", "cost": 0.5}, {"run": "b", "cost": 0.25}]
    >>> def dots(rows):
    ...     return alt.Chart(alt.Data(values=rows)).mark_point().encode(x="cost:Q")
    >>> def summary(rows):
    ...     return f"{len(rows)} runs"
    >>> publish_joined(setup, "trial", rows, summary, dots)  # doctest: +ELLIPSIS
    2 runs
    <BLANKLINE>
    written to ...
    """
    if not rows:
        print("No part is done yet.")
        return
    (setup.out / f"{name}.jsonl").unlink(missing_ok=True)
    runs = Runs(setup.out, name, {"quick": setup.quick})
    for values, found in by(rows, *key).items():
        runs.add(dict(zip(key, values, strict=True)), found)
    text = report(runs.rows)
    drawn = chart(runs.rows)
    runs.publish(drawn if isinstance(drawn, Mapping) else {name: drawn}, text)
    print(text)
    print(f"\nwritten to {setup.out}")
