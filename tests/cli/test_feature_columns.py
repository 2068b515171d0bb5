"""`--columns` and `--ignore`: which columns of a table are compared, and which only shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.reading import read_input

import uniproto
from uniproto.data.disk import LargeTable

K = 4
RNG = np.random.default_rng(5)
COMMA = "net, EUR"
TABLE = pd.DataFrame(RNG.normal(size=(60, 3)), columns=["age", "income", COMMA]).assign(
    name=[f"person {row}" for row in range(60)], zip=np.arange(60), kind=["a", "b"] * 30
)
TARGET = pd.DataFrame(RNG.normal(size=(30, 3)), columns=[COMMA, "income", "age"]).assign(
    score=1.0, kind="a"
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def files(inside: Path) -> None:
    """A pool and a target of every kind of table, and of several files."""
    for name, frame in (("pool", TABLE), ("target", TARGET)):
        frame.to_csv(f"{name}.csv", index=False)
        frame.to_json(f"{name}.jsonl", orient="records", lines=True)
        frame.to_parquet(f"{name}.parquet", index=False)
        Path(name).mkdir()
        for part in range(3):
            rows = slice(len(frame) * part // 3, len(frame) * (part + 1) // 3)
            frame[rows].to_parquet(f"{name}/{part}.parquet", index=False)
    np.save("bare.npy", TABLE[["age", "income"]].to_numpy())


def chosen() -> list[int]:
    return pq.read_table("out/selection.parquet").column("index").to_pylist()


def recorded() -> dict:
    return json.loads(Path("out/manifest.json").read_text())


# What is compared

POOLS = ["pool.csv", "pool.jsonl", "pool.parquet", "pool", "pool/*.parquet"]
WAYS = {
    "named": (["--columns", "income,age"], ["income", "age"]),
    "a comma in a name": (["--columns", COMMA, "--columns", "age"], [COMMA, "age"]),
    "left aside": (["--ignore", "name,zip, kind"], ["age", "income", COMMA]),
    "left aside, with a comma": (
        ["--ignore", COMMA, "--ignore", "name,zip", "--groups", "kind"],
        ["age", "income"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pool", POOLS)
def test_only_these_columns_are_features(pool: str, way: str, run: Run) -> None:
    options, columns = WAYS[way]
    status, out, err = run("select", pool, "-k", K, *options, "-o", "out")
    assert status == 0, err
    groups = TABLE["kind"].to_numpy() if "--groups" in options else None
    expected = uniproto.select(TABLE[columns].to_numpy(), K, groups=groups)
    assert chosen() == expected.indices.tolist()
    assert f"features                {', '.join(columns)}\n" in out
    assert recorded()["inputs"]["source"]["columns"] == columns


@pytest.mark.parametrize("way", WAYS)
def test_data_sets_larger_than_memory(way: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    options, columns = WAYS[way]
    monkeypatch.setattr("uniproto.data.tables.memory_budget", lambda memory: 64)
    read = read_input("pool", use=[COMMA, "age"])
    assert isinstance(read.table, LargeTable)
    np.testing.assert_array_equal(read.features, TABLE[[COMMA, "age"]])
    assert run("select", "pool", "-k", K, *options, "-o", "out")[0] == 0
    groups = TABLE["kind"].to_numpy() if "--groups" in options else None
    expected = uniproto.select(TABLE[columns].to_numpy(), K, groups=groups)
    assert chosen() == expected.indices.tolist()
    assert run("verify", "out")[0] == 0


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (["--columns", "age,income"], ["age", "income"]),
        # The pool has no score.
        (["--ignore", "name,zip,kind,score"], ["age", "income", COMMA]),
    ],
)
@pytest.mark.parametrize("target", ["target.csv", "target.jsonl", "target", "target/*.parquet"])
def test_a_target_has_the_same_columns(
    target: str, options: list[str], columns: list[str], run: Run
) -> None:
    assert run("select", "pool.csv", "-k", K, "--target", target, *options, "-o", "out")[0] == 0
    expected = uniproto.select(TABLE[columns].to_numpy(), K, TARGET[columns].to_numpy())
    assert chosen() == expected.indices.tolist()
    assert recorded()["inputs"]["target"]["columns"] == columns


@pytest.mark.slow
def test_other_commands_take_them(run: Run) -> None:
    for command in (["compare", "-k", "3", "--methods", "uniproto"], ["path", "--ks", "3"]):
        cost = {}
        for options in (["--columns", f"age,{COMMA}"], ["--columns", "age", "--columns", COMMA]):
            status, _, err = run(command[0], "pool.csv", *command[1:], *options, "-o", "out")
            cost[options[1]] = err if status else pd.read_csv(f"out/{_result(command[0])}")
        assert "Did you mean" in cost[f"age,{COMMA}"]  # its comma separates names
        expected = uniproto.select(TABLE[["age", COMMA]].to_numpy(), 3).cost
        assert cost["age"]["cost"].tolist() == pytest.approx([expected])


def _result(command: str) -> str:
    return {"compare": "comparison.csv", "path": "path.csv"}[command]


# What is recorded, and asked again


@pytest.mark.parametrize("way", WAYS)
def test_a_saved_result_asks_the_same_question(way: str, run: Run) -> None:
    options, _ = WAYS[way]
    arguments = ["pool.csv", "-k", K, *options, "--id", "name"]
    assert run("select", *arguments, "-o", "out")[0] == 0
    for command in ("verify", "certify", "verify", "report"):
        assert run(command, "out")[0] == 0
    page = Path("out/report.html").read_text()
    for column in (*TABLE.columns, "person 1"):  # cards show what was not compared, too
        assert column in page
    assert pq.read_table("out/prototypes.parquet").column_names == list(TABLE.columns)
    said = [text for place, text in enumerate(options) if options[place - 1] == options[0]]
    name = {"--columns": "use", "--ignore": "ignore"}[options[0]]
    assert recorded()["arguments"]["features"][name] == said


# What is refused

REFUSED = {
    "pool.csv --no-prepare": "name (string), kind (string) * --columns",
    "pool.csv --columns agee,income": "pool.csv: --columns must be one of age, * mean 'age'?",
    "pool.csv --ignore naem": "pool.csv: --ignore must be one of age, * Did you mean 'name'?",
    "pool.csv --ignore name,kind,zipp --target target.csv": "--ignore * Did you mean 'zip'?",
    "pool.csv --ignore naem,kind --target target.csv": "--ignore * Did you mean 'name'?",
    "pool.csv --ignore name,kind --target target.csv --no-prepare": "score, zip is in only one",
    "pool.csv --columns age,zip --target target.csv": "target.csv: --columns must be * 'zip'",
    "pool.csv --columns age,age": "--columns must name a column once",
    "pool.csv --columns age,name --no-prepare": "must have only numeric columns * name (string)",
    "pool.csv --columns age,zip --id zip": "names zip, which another option names",
    "pool.csv --columns ,": "--columns must name columns",
    "pool.csv --ignore=": "--ignore must name columns",
    "pool.csv --columns age --ignore zip": "--columns excludes --ignore",
    "pool.csv --columns age --column age": "--columns excludes --column",
    "pool.csv --ignore age --column age": "--ignore excludes --column",
    "pool.csv --columns age --text name": "--columns excludes --text",
    "pool.csv --ignore zip --images name": "--ignore excludes --images",
    "bare.npy --columns age": "--columns needs a table * bare.npy",
    "bare.npy --ignore age": "--ignore needs a table * bare.npy",
    "pool.csv --columns age,income --target bare.npy": "--columns needs a table * bare.npy",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_makes_no_sense_is_refused(line: str, run: Run) -> None:
    status, _, err = run("select", *line.split(), "-k", K, "-o", "out")
    assert status == 2
    assert err.startswith("uniproto: error: ")
    for words in REFUSED[line].split(" * "):
        assert words in err
    assert not Path("out/manifest.json").exists()
