"""What comparisons and paths over k share: their seeds, their tables and the files they write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet as pq

from uniproto.errors import as_index, invalid
from uniproto.runs.atomic import require_writable
from uniproto.runs.publish import publishing, require_publishable, write_record
from uniproto.runs.records import as_table, without_infinity

_MOST_PLACES = 8


def as_seeds(seeds: int | Iterable[int], parameter: str = "seeds") -> list[int]:
    """Seeds 0, 1, … for a number of them, or the seeds themselves.

    >>> as_seeds(3), as_seeds([7, 11])
    ([0, 1, 2], [7, 11])
    """
    remedy = "Pass how many seeds to use, or a list of different seeds."
    try:
        if isinstance(seeds, Iterable) and not isinstance(seeds, str):
            listed = [as_index(seed) for seed in seeds]
        else:
            listed = list(range(as_index(seeds)))
    except TypeError:
        raise invalid(
            parameter, "must be a whole number or a list of them", repr(seeds), remedy
        ) from None
    if not listed or min(listed) < 0 or len(set(listed)) < len(listed):
        raise invalid(
            parameter,
            "must be at least one seed, none of them negative or repeated",
            repr(seeds),
            remedy,
        )
    return listed


def number_column(
    values: Sequence[tuple[float | None, float | None]],
    *,
    digits: int = 4,
    places: int | None = None,
) -> list[str]:
    """Numbers with their spreads, all to the same decimal place and below one another.

    `places` says how many decimals; without it, so many that the smallest has `digits` digits.

    >>> number_column([(0.123456, 0.00321), (0.0514, None), (None, None)])
    ['0.12346 ± 0.00321', '0.05140          ', '–          ']
    """
    sizes = [abs(mean) for mean, _ in values if mean and math.isfinite(mean)]
    if places is None:
        places = digits - 1 - math.floor(math.log10(min(sizes))) if sizes else 0
    form = f".{max(0, places)}f" if places <= _MOST_PLACES else f".{digits - 1}e"
    spreads = ["" if spread is None else f" ± {spread:{form}}" for _, spread in values]
    width = max(map(len, spreads), default=0)
    return [
        ("–" if mean is None else f"{mean:{form}}") + spread.ljust(width)
        for (mean, _), spread in zip(values, spreads, strict=True)
    ]


def aligned(columns: Mapping[str, Sequence[str]]) -> str:
    """A table of text by column titles: the first to the left, the others to the right."""
    parts = []
    for place, (title, cells) in enumerate(columns.items()):
        # A title stands above the numbers, not above the spreads beside them.
        blank = max((len(cell) - len(cell.rstrip()) for cell in cells), default=0)
        width = max(map(len, (title, *cells)))
        if place == 0:
            parts.append([cell.ljust(width) for cell in (title, *cells)])
        else:
            head = title.rjust(max(0, width - blank)).ljust(width)
            parts.append([head, *(cell.rjust(width) for cell in cells)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*parts, strict=True))


_ENDINGS = ("parquet", "csv", "png", "svg", "html")


def require_results_folder(folder: Path, name: str) -> None:
    """Refuse, before the work, a folder where files of others have the names of the results."""
    require_writable(folder)
    require_publishable(folder, f"{name}.json", [f"{name}.{ending}" for ending in _ENDINGS])


def save_results(
    folder: Path, name: str, rows: Sequence[Mapping[str, Any]], record: Any, chart: Any
) -> Path:
    """Write NAME.parquet, .csv, .json, .png, .svg and .html, all or none, beside what is there."""
    from uniproto.report.charts import save_chart

    table = as_table(rows)
    with publishing(folder, f"{name}.json") as stage:
        pq.write_table(table, stage / f"{name}.parquet")
        pyarrow.csv.write_csv(table, stage / f"{name}.csv")
        for ending in ("png", "svg", "html"):
            save_chart(chart, stage / f"{name}.{ending}")
        write_record(stage, f"{name}.json", without_infinity(record))
    return folder
