"""Small files as people have them, and what is decided for each of their columns."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import uniproto
from uniproto.cli import main

N = 60
DRAW = np.random.default_rng(11)
X = DRAW.normal(50, 9, N).round(2)
COUNT = DRAW.integers(3, 90, N)
KIND = DRAW.choice(["red", "green", "blue"], N)
DAYS = pd.Timestamp("2021-01-15") + pd.to_timedelta(np.arange(N) * 5, unit="D")
MONEY = DRAW.uniform(900, 9000, N).round(2)


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"x": X, "n": COUNT, **columns})


def csv(**columns: Any) -> Callable[[Path], Path]:
    return written(frame(**columns))


def written(table: pd.DataFrame, **options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "file.csv"
        table.to_csv(path, **{"index": False, **options})
        return path

    return write


def jsonl(rows: list[dict[str, Any]]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "file.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path

    return write


def excel(folder: Path) -> Path:
    path = folder / "file.xlsx"
    frame(kind=KIND, day=DAYS).to_excel(path, index=False)
    return path


def parquet(folder: Path) -> Path:
    path = folder / "file.parquet"
    table = frame(size=pd.Categorical(KIND, ["red", "green", "blue"], ordered=True), day=DAYS)
    table.to_parquet(path, index=False)
    return path


ROWS = [
    {"x": float(x), "n": int(n), "kind": str(kind)}
    for x, n, kind in zip(X, COUNT, KIND, strict=True)
]
NESTED = [
    {"patient": {"age": int(n), "sex": "fm"[n % 2]}, "x": float(x)}
    for x, n in zip(X, COUNT, strict=True)
]

# The file, what becomes of each column but x and n ("aside", and a word of the reason), and what
# it is warned of.
KINDS: dict[str, tuple[Callable[[Path], Path], dict[str, str], str]] = {
    "plain numbers": (csv(), {}, ""),
    "categories": (csv(kind=KIND), {"kind": "category"}, ""),
    "yes and no": (csv(flag=np.where(COUNT > 40, "yes", "no")), {"flag": "category"}, ""),
    "0 and 1": (csv(flag=(COUNT > 40).astype(int)), {"flag": "category"}, ""),
    "true and false": (csv(flag=COUNT > 40), {"flag": "category"}, ""),
    "an id": (csv(order_id=DRAW.permutation(N) + 9000), {"order_id": "aside: an id"}, ""),
    "e-mail": (csv(mail=[f"u{i}@a.org" for i in range(N)]), {"mail": "aside: an id or a name"}, ""),
    "a constant": (csv(unit="kg"), {"unit": "aside: constant"}, ""),
    "an empty column": (csv(note=None), {"note": "aside: empty"}, ""),
    "free text": (
        csv(note=[f"we met {i} people at the fair today" for i in range(N)]),
        {"note": "aside: an id or a name"},
        "",
    ),
    "ISO dates": (csv(day=DAYS.strftime("%Y-%m-%d")), {"day": "date"}, ""),
    "German dates": (csv(day=DAYS.strftime("%d.%m.%Y")), {"day": "date"}, ""),
    "04-Jun-2014": (csv(day=DAYS.strftime("%d-%b-%Y")), {"day": "date"}, ""),
    "January 15, 2021": (csv(day=DAYS.strftime("%B %d, %Y")), {"day": "date"}, ""),
    "month/day/year": (csv(day=DAYS.strftime("%m/%d/%Y")), {"day": "date"}, ""),
    "day or month": (
        csv(day=[f"{i % 11 + 1:02}/{i % 12 + 1:02}/{2000 + i % 20}" for i in range(N)]),
        {"day": "aside: looks like dates"},
        "",
    ),
    "AM and PM": (csv(at=DAYS.strftime("%m/%d/%Y %I:%M %p")), {"at": "date"}, ""),
    "periods": (csv(month=DAYS.to_period("M").astype(str)), {"month": "date"}, ""),
    "quarters": (csv(q=[f"{2000 + i // 4}Q{i % 4 + 1}" for i in range(N)]), {"q": "date"}, ""),
    "20210115": (csv(day=DAYS.strftime("%Y%m%d").astype(int)), {"day": "date"}, ""),
    "dollars": (csv(price=[f"${v:,.2f}" for v in MONEY]), {"price": "number"}, ""),
    "euros": (csv(price=[f"{german(v)} €" for v in MONEY]), {"price": "number"}, ""),
    "per cent": (csv(share=[f"{v}%" for v in X]), {"share": "number"}, ""),
    "units": (
        csv(lead=[f"{v} ppb" if v > 50 else str(v) for v in X]),
        {"lead": "number"},
        "",
    ),
    "below detection": (
        csv(lead=["<20" if i in (3, 40) else str(v) for i, v in enumerate(X)]),
        {"lead": "number"},
        "count as gaps: 2 of lead",
    ),
    "words among numbers": (
        csv(price=["call us" if i % 8 == 0 else str(v) for i, v in enumerate(X)]),
        {"price": "aside: looks like numbers, but 8 of 60"},
        "",
    ),
    "decimal commas": (written(frame(kind=KIND), sep=";", decimal=","), {"kind": "category"}, ""),
    "tabs, Latin-1": (
        written(frame(kind=np.where(COUNT > 40, "Köln", "Bonn")), sep="\t", encoding="latin-1"),
        {"kind": "category"},
        "not UTF-8",
    ),
    "the index of pandas": (written(frame(), index=True), {"(no name)": "aside: numbers"}, ""),
    "gaps": (csv(y=np.where(COUNT % 7 == 0, np.nan, X)), {"y": "number"}, ""),
    "a stand-in for gaps": (
        csv(wind=np.where(COUNT % 7 == 0, -999, X)),
        {"wind": "number"},
        "'wind' is -999",
    ),
    "zip codes": (
        csv(zip=[f"0{v}" for v in DRAW.choice([1067, 1099, 1187], N)]),
        {"zip": "category"},
        "",
    ),
    "codes of a class": (csv(branch=COUNT % 4), {"branch": "number"}, "may be codes: branch"),
    "latitude and longitude": (
        csv(lat=DRAW.uniform(-60, 70, N), lon=DRAW.uniform(-180, 180, N)),
        {"lat": "place", "lon": "place"},
        "",
    ),
    "ordered categories": (parquet, {"size": "ordered", "day": "date"}, ""),
    "an Excel sheet": (excel, {"kind": "category", "day": "date"}, ""),
    "JSON lines with NaN": (
        jsonl([{**row, "x": float("nan")} if i == 5 else row for i, row in enumerate(ROWS)]),
        {"kind": "category"},
        "",
    ),
    "JSON objects": (
        jsonl(NESTED),
        {"patient.age": "number", "patient.sex": "category"},
        "",
    ),
    "JSON lists of texts": (
        jsonl([{**row, "tags": ["a", "b"][: i % 3]} for i, row in enumerate(ROWS)]),
        {"kind": "category", "tags": "aside: holds list"},
        "",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_decided_for_each_kind_of_file(kind: str, tmp_path: Path) -> None:
    write, expected, warned = KINDS[kind]
    path = write(tmp_path)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        selection = uniproto.select(path, 4)
        assert selection.nearest(selection.rows()).prototype.tolist() == [0, 1, 2, 3]
    texts = [str(each.message) for each in said]
    assert (warned in texts[0] if warned else True) if texts else not warned, texts
    assert len(texts) == bool(warned), texts
    preparation = selection.details.preparation
    if preparation is None:
        assert not expected
        return
    found = {name: (what, why) for name, what, why in preparation.rows if name not in ("x", "n")}
    assert found.keys() == expected.keys()
    for name, decided in expected.items():
        what, _, word = decided.partition(": ")
        assert found[name][0] == {"aside": "set aside"}.get(what, what)
        assert word in found[name][1]


@pytest.mark.parametrize(
    "table",
    [
        {"x": X, "n": COUNT.tolist(), "kind": KIND},
        ROWS,
        pl.DataFrame(ROWS).lazy(),
        pd.DataFrame(ROWS),
    ],
    ids=["dict of columns", "list of dicts", "lazy frame", "frame"],
)
def test_what_is_a_table(table: Any) -> None:
    expected = uniproto.select(pl.DataFrame(ROWS), 5)
    assert uniproto.select(table, 5).indices.tolist() == expected.indices.tolist()


def test_the_command_reads_nested_and_odd_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("JSON objects", "JSON lists of texts", "an Excel sheet", "JSON lines with NaN"):
        folder = tmp_path / kind.replace(" ", "")
        folder.mkdir()
        path = KINDS[kind][0](folder)
        assert main(["select", str(path), "-k", "4", "-o", str(folder / "out")]) == 0
        assert main(["verify", str(folder / "out")]) == 0
        assert main(["report", str(folder / "out")]) == 0
    capsys.readouterr()


def test_other_constants_of_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "x"}\n{"a": NaN}\n{"a": Infinity}')
    with pytest.raises(uniproto.InputFileError, match="Infinity"):
        uniproto.select(path, 1)
