"""The end of an experiment in parts: the rows of all its runs, joined, published and printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from support.runs import Runs, Setup
from support.statistics import by

Rows = Sequence[Mapping[str, Any]]


def publish_joined(
    setup: Setup,
    name: str,
    rows: Rows,
    report: Callable[[Rows], str],
    chart: Callable[[Rows], Any],
) -> None:
    """Publish the rows of all runs as one result with its report and chart, and print the report.

    The column `run` says which run a row is of. The joined rows are made anew every time: only
    the runs' own rows are saved from one command to the next.

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
    for (run,), found in by(rows, "run").items():
        runs.add({"run": run}, found)
    text = report(runs.rows)
    runs.publish({name: chart(runs.rows)}, text)
    print(text)
    print(f"\nwritten to {setup.out}")
