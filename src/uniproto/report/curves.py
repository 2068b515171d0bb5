"""The curves of a training run, as a table and a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uniproto.report.charts import save_chart
from uniproto.runs.atomic import write_text
from uniproto.runs.records import as_table

CURVE_FILES = ("curves.csv", "curves.png")


def save_curves(
    folder: Path, points: Sequence[Mapping[str, Any]], chart: Callable[[], Any]
) -> None:
    """Write the `CURVE_FILES` of one run.

    Hours of training do not fail for want of a picture: where a package that draws is missing, the
    table is written and the rest is said.
    """
    import pyarrow as pa
    import pyarrow.csv

    buffer = pa.BufferOutputStream()
    pyarrow.csv.write_csv(as_table(points), buffer)
    write_text(folder / "curves.csv", buffer.getvalue().to_pybytes().decode("utf-8"))
    try:
        import vl_convert  # noqa: F401  (what draws it; Altair alone says so with a ValueError)

        save_chart(chart(), folder / "curves.png")
    except ImportError as error:
        print(f"curves.png was not drawn: {error}. curves.csv has its numbers.", file=sys.stderr)
