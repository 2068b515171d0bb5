"""The command line: files in, files out, one message when something is wrong."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import uniproto
from uniproto.cli import main
from uniproto.selection.selection import Selection

M, N, K = 40, 30, 6
RNG = np.random.default_rng(11)
X = RNG.normal(size=(M, 3)).astype(np.float32)
Y = RNG.normal(size=(N, 3)).astype(np.float32)


def as_table(features: np.ndarray, start: int = 0) -> pa.Table:
    rows = np.arange(len(features))
    return pa.table(
        {
            "doc": [f"doc {start + row} é" for row in rows],
            "number": rows + 10**12 + start,
            "source": np.array(["web", "本"])[rows % 2],
            "year": 2000 + rows % 2,
            "weight": 1.0 + rows,
            "embedding": pa.array(features.tolist(), pa.list_(pa.float32())),
        }
    )


@pytest.fixture(autouse=True)
def files(inside: Path) -> None:
    """A pool and a target of every kind."""
    np.save("pool.npy", X)
    np.save("target.npy", Y)
    pq.write_table(as_table(X), "pool.parquet")
    pq.write_table(as_table(Y, 1000), "target.parquet")


Run = Callable[..., Any]  # how a command ended: its status, out and err


def select(run: Run, *arguments: object) -> Selection:
    """Run `uniproto select … -o out`, expect success, load what was written."""
    shutil.rmtree("out", ignore_errors=True)
    ended = run("select", *arguments, "-o", "out")
    assert (ended.status, ended.err) == (0, "")
    return Selection.load("out")


def tree(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


PARQUET = ["pool.parquet", "-k", K, "--column", "embedding"]


# What comes out


def test_array_in_files_out(run: Run) -> None:
    found = select(run, "pool.npy", "-k", K)
    expected = uniproto.select(X, K)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.details.gains, expected.details.gains)
    assert found.cost == expected.cost
    assert {file.name for file in Path("out").iterdir()} == {
        "selection.parquet",
        "plan.npz",
        "manifest.json",
    }


def test_every_file_says_the_same(run: Run) -> None:
    options = ["--target", "target.parquet", "--target-weights", "weight", "--metric", "euclidean"]
    found = select(run, *PARQUET, *options, "--seed", 3)
    weights = np.arange(1.0, N + 1)
    weights /= weights.sum()
    expected = uniproto.select(X, K, Y, metric="euclidean", target_weights=weights)
    np.testing.assert_array_equal(found.indices, expected.indices)

    table = pq.read_table("out/selection.parquet")
    assert table.column_names == ["rank", "index", "gain", "mass"]
    assert table["rank"].to_pylist() == list(range(1, K + 1))
    assert table["index"].to_pylist() == expected.indices.tolist()
    assert table["gain"].to_pylist() == expected.details.gains.tolist()
    assert table["mass"].to_pylist() == [1 / K] * K

    assert pq.read_table("out/prototypes.parquet") == as_table(X).take(expected.indices)

    plan = sp.load_npz("out/plan.npz")
    assert plan.shape == (K, N)
    np.testing.assert_allclose(plan.sum(axis=1), np.full(K, 1 / K))
    np.testing.assert_allclose(plan.sum(axis=0), weights)

    manifest = json.loads(Path("out/manifest.json").read_text("utf-8"))
    assert manifest["uniproto"] == uniproto.__version__
    assert manifest["seed"] == 3
    assert manifest["cost"] == pytest.approx(expected.cost)
    assert manifest["arguments"]["metric"] == "euclidean"
    assert min(manifest["timings"].values()) >= 0
    for role, name, shape in (("source", "pool", [M, 3]), ("target", "target", [N, 3])):
        path = Path(f"{name}.parquet").resolve()
        assert manifest["inputs"][role] == {
            "path": str(path),
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "shape": shape,
            "columns": ["embedding"],
        }


@pytest.mark.parametrize("target", [None, "target.parquet", "target.npy"])
@pytest.mark.parametrize("column", ["doc", "number"])
def test_ids_in_all_files(run: Run, column: str, target: str | None) -> None:
    where = [] if target is None else ["--target", target]
    where += [] if target == "target.npy" else ["--column", "embedding"]
    if target == "target.npy":  # a bare array has no columns: the pool's own must do
        pq.write_table(pq.read_table("pool.parquet").select([column, "embedding"]), "pool.parquet")
    found = select(run, "pool.parquet", "-k", K, "--id", column, *where)
    ids = pq.read_table("pool.parquet")[column].to_pylist()
    chosen = [ids[index] for index in found.indices]
    assert pq.read_table("out/selection.parquet")[column].to_pylist() == chosen
    assert pq.read_table("out/prototypes.parquet")[column].to_pylist() == chosen
    manifest = json.loads(Path("out/manifest.json").read_text("utf-8"))
    assert manifest["id"] == {"column": column, "prototypes": chosen}
    with np.load("out/plan.npz", allow_pickle=False) as arrays:
        assert arrays["prototype_ids"].tolist() == chosen
        if target == "target.npy":
            assert "target_ids" not in arrays
        else:
            expected = pq.read_table(target or "pool.parquet")[column].to_pylist()
            assert arrays["target_ids"].tolist() == expected


@pytest.mark.usual_effort
def test_columns_not_named_are_features_and_are_shown(run: Run) -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(index=range(M), kind="x", w=1.0)
    frame.to_csv("pool.csv", index=False)
    named = ["--id", "index", "--groups", "kind", "--target-weights", "w"]
    ended = run("select", "pool.csv", "-k", K, *named, "-o", "out")
    assert ended.status == 0
    assert "features                a, b, c\n" in ended.out
    found = Selection.load("out")
    np.testing.assert_array_equal(found.indices, uniproto.select(X, K).indices)
    assert pq.read_table("out/selection.parquet")["index_id"].to_pylist() == found.indices.tolist()


# Options


@pytest.mark.parametrize("target", [False, True])
@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        (None, "proportional"),
        ("proportional", "proportional"),
        ("balanced", "balanced"),
        ("web=2,本=4", {"web": 2, "本": 4}),
        (" web = 6 ", {"web": 6}),
    ],
)
def test_groups(run: Run, text: str | None, budgets: Any, target: bool) -> None:
    found = select(
        run,
        *PARQUET,
        *["--groups", "source"],
        *([] if text is None else ["--budgets", text]),
        *(["--target", "target.parquet"] if target else []),
    )
    labels, wanted = (np.array(["web", "本"])[np.arange(size) % 2] for size in (M, N))
    expected = uniproto.select(
        X,
        K,
        Y if target else None,
        groups=uniproto.Groups(labels, target=wanted if target else None, budgets=budgets),
    )
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.group_costs == expected.group_costs


def test_initial_exclude_and_distinct(run: Run) -> None:
    twins = np.repeat(X, 2, axis=0)
    np.save("twins.npy", twins)
    found = select(run, "twins.npy", "-k", K, "--include", "3,17", "--exclude", "0, 5,")
    assert found.indices[:2].tolist() == [3, 17]
    assert not {0, 5} & set(found.indices.tolist())
    found = select(run, "twins.npy", "-k", M // 2, "--min-distance")
    assert len(np.unique(found.indices // 2)) == M // 2
    given = ["twins.npy", "-k", K, "--metric", "euclidean"]
    near = select(run, *given, "--min-distance", "1.2")
    expected = uniproto.select(twins, K, metric="euclidean", min_distance=1.2)
    np.testing.assert_array_equal(near.indices, expected.indices)
    chosen = twins[near.indices]
    apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=2) + 9 * np.eye(K)
    assert apart.min() > 1.2


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (["--method", "greedy", "--plan", "resolve"], uniproto.Greedy(plan="resolve")),
        (["--method", "greedy", "--gains", "exact"], uniproto.Greedy(gains="exact")),
        (
            ["--method", "greedy", "--plan", "entropic", "--reg", "0.1", "--iterations", "50"],
            uniproto.Greedy(plan=uniproto.Entropic(reg=0.1, iterations=50)),
        ),
        (["--method", "greedy", "--sample", "0.5", "--seed", "9"], uniproto.Greedy(sample=0.5)),
        (["--method", "random", "--seed", "9"], "random"),
    ],
)
def test_methods(run: Run, arguments: list[str], method: Any) -> None:
    found = select(run, "pool.npy", "-k", K, *arguments)
    expected = uniproto.select(X, K, method=method, seed=9)
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_precomputed_costs(run: Run) -> None:
    costs = np.abs(X @ Y.T)
    np.save("costs.npy", costs)
    found = select(run, "costs.npy", "-k", K, "--metric", "precomputed")
    expected = uniproto.select(costs, K, metric="precomputed")
    np.testing.assert_array_equal(found.indices, expected.indices)
    pd.DataFrame(costs).assign(name=range(M)).to_csv("costs.csv", index=False)
    select(run, "costs.csv", "-k", K, "--metric", "precomputed", "--id", "name")
    with np.load("out/plan.npz") as arrays:  # the columns of the matrix are other things
        assert "target_ids" not in arrays


def test_quiet_is_silent_and_otherwise_a_summary_is_printed(
    run: Run,
) -> None:
    loud = run("select", "pool.npy", "-k", K, "-o", "out")
    assert loud.err == ""
    assert "6 prototypes of 40 source rows" in loud.out
    assert "written to              out" in loud.out
    quiet = run("select", "pool.npy", "-k", K, "-o", "out", "--quiet")
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")


def test_paths_that_are_not_utf8(run: Run) -> None:
    name = os.fsdecode(b"p\xff.npy")
    np.save(name, X)
    assert select(run, name, "-k", K).k == K
    manifest = json.loads(Path("out/manifest.json").read_text("utf-8"))
    assert manifest["inputs"]["source"]["path"] == str(Path(name).resolve())


# What is refused


class Payload:
    """Unpickling this makes a folder."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("ran",)


def spoil(text: str) -> None:
    """Make the files that the commands below must refuse."""
    np.save("object.npy", np.array([Payload()], object), allow_pickle=True)
    np.savez("object.npz", x=np.array([Payload()], object))
    Path("raw.npy").write_bytes(pickle.dumps(Payload()))
    np.savez("two.npz", first=X, second=X)
    np.savez("one.npz", X)
    as_table(X).to_pandas().to_json("pool.jsonl", orient="records", lines=True)
    pd.DataFrame(X).to_csv("pool.csv", index=False)
    for name in ("pool.npy", "one.npz", "pool.parquet", "pool.csv", "pool.jsonl"):
        content = Path(name).read_bytes().removesuffix(b"\n")
        cut = content.rfind(b",") if name == "pool.csv" else len(content) * 2 // 3
        Path(f"cut {name}").write_bytes(content[:cut])
    spoilt = X.copy()
    spoilt[3, 1] = np.nan
    np.save("nan.npy", spoilt)
    np.save("flat.npy", X.ravel())
    np.save("empty.npy", X[:0])
    np.save("wide.npy", np.hstack([Y, Y]))
    np.save("zero.npy", np.vstack([X, 0 * X[:1]]))
    np.save("text.npy", np.array([["x"]]))
    pq.write_table(as_table(X).append_column("gap", pa.array([1, None] * (M // 2))), "gap.parquet")
    negative = as_table(X).append_column("negative", pa.array(-np.ones(M)))
    pq.write_table(negative.append_column("none", pa.array(np.zeros(M))), "weights.parquet")
    Path("folder.npy").mkdir()
    Path("file").write_text(text)


REFUSED = {
    "object.npy -k 2": "Pickled Python objects",
    "raw.npy -k 2": "Pickled Python objects",
    "nowhere.npy -k 2": "nowhere.npy: there is no such file",
    "folder.npy -k 2": "is a folder without .parquet files",
    "pool.txt -k 2": ".csv, .json, .jsonl, .jsonl.zst, .npy, .npz, .parquet, .tsv, .xlsx.",
    "cut_pool.npy -k 2": "cut pool.npy",
    "cut_one.npz -k 2": "cut one.npz",
    "cut_pool.parquet -k 2": "cut pool.parquet",
    "cut_pool.csv -k 2": "cut pool.csv",
    "cut_pool.jsonl -k 2": "cut pool.jsonl",
    "two.npz -k 2": "--column must name one of first, second",
    "two.npz -k 2 --column frist": "Did you mean 'first'",
    "pool.npy -k 2 --column x": "--column needs a table",
    "pool.npy -k 2 --id doc": "--id needs a table",
    "pool.parquet -k 2": "lists next to others, 'embedding' * --column",
    "pool.parquet -k 2 --column embeding": "doc, embedding, number, * mean 'embedding'",
    "pool.parquet -k 2 --column embedding --id dok": "--id must be one of doc, * mean 'doc'",
    "pool.parquet -k 2 --column embedding --groups sorce": "Did you mean 'source'",
    "pool.parquet -k 2 --column embedding --target-weights wait": "must be one of doc",
    "pool.parquet -k 2 --column embedding --id embedding": "--id must name a column of text",
    "gap.parquet -k 2 --column embedding --id gap": "20 missing",
    "weights.parquet -k 2 --column embedding --target-weights negative": "must be 40 numbers",
    "weights.parquet -k 2 --column embedding --target-weights none": "not all 0",
    "weights.parquet -k 2 --column embedding --target-weights doc": "must be 40 numbers",
    "pool.parquet -k 2 --column embedding --target gap.csv": "gap.csv: there is no such file",
    "nan.npy -k 2": "NaN and infinity (there is one in row 3)",
    "flat.npy -k 2": "must be two-dimensional",
    "empty.npy -k 2": "at least one row",
    "text.npy -k 2": "must hold numbers",
    "zero.npy -k 2 --metric cosine": "all-zero row",
    "pool.npy -k 2 --target wide.npy": "as many columns as the source, 3",
    "pool.npy -k 0": "-k must be at least 1",
    "pool.npy -k 41": "-k must not exceed the 40 rows",
    "pool.npy -k 2 --metric cosin": "Did you mean 'cosine'",
    "pool.npy -k 2 --method uniprot": "Did you mean 'uniproto'",
    "pool.npy -k 2 --method greedy --gains aprox": "Did you mean 'approx'",
    "pool.npy -k 2 --method random --plan resolve": "--plan needs --method greedy",
    "pool.npy -k 2 --method random --gains exact": "--gains needs --method greedy",
    "pool.npy -k 2 --reg 1": "--reg needs --plan entropic",
    "pool.npy -k 2 --method greedy --plan entropic --reg 0": "--reg must be positive",
    "pool.npy -k 2 --seed -1": "--seed must be at least 0",
    "pool.npy -k 2 --include 40": "row numbers from 0 to 39",
    "pool.npy -k 2 --include 1,1": "must not repeat",
    "pool.npy -k 2 --include 1;2": "--include must be row numbers",
    "pool.npy -k 2 --exclude x": "--exclude must be row numbers",
    "pool.npy -k 2 --include 1 --exclude 1": "such as 1",
    "pool.npy -k 2 --min-distance 9": "--min-distance must leave at least k=2",
    "pool.npy -k 2 --min-distance -1": "--min-distance must be",
    "pool.npy -k 2 --budgets balanced": "--budgets needs --groups",
    "pool.parquet -k 2 --column embedding --groups source --budgets even": "--budgets must be",
    "pool.parquet -k 2 --column embedding --groups source --budgets web=x": "a whole number",
    "pool.parquet -k 2 --column embedding --groups source --budgets web=²": "a whole number",
    "pool.parquet -k 2 --column embedding --groups source --budgets web=1": "must sum to k=2",
    "pool.parquet -k 2 --column embedding --groups source --budgets wob=2": "must name groups",
    "pool.parquet -k 2 --column embedding --groups source --target target.npy": "needs a table",
    "pool.npy -k 2 -o file": "file: the output must go to a folder",
    "pool.npy -k 2 -o file/deeper": "file/deeper: the output must go to a folder",
    "pool.npy -k 2 -o /proc/nowhere": "/proc/nowhere: the output must go to a folder",
}


@pytest.mark.parametrize("command", REFUSED)
def test_bad_input_gets_one_message_and_nothing_is_written(
    run: Run, inside: Path, command: str
) -> None:
    spoil("mine")
    before = tree(inside)
    arguments = command.replace("cut_", "cut ").split(" -k ")
    arguments = [arguments[0], "-k", *arguments[1].split()]
    ended = run("select", *([] if "-o" in arguments else ["-o", "out"]), *arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err.startswith("uniproto: error: ")
    assert ended.err.count("\n") == 1
    position = 0
    for words in REFUSED[command].split(" * "):
        position = ended.err.find(words, position)
        assert position >= 0, ended.err
    assert tree(inside) == before
    assert not Path("out").exists()
    assert not Path("ran").exists()


def test_an_unwritable_folder_is_noticed_before_the_work(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(uniproto, "select", refuse)
    ended = run("select", "pool.npy", "-k", K, "-o", "out")
    assert ended.status == 2
    assert "out: the output must go to a folder that can be written" in ended.err
    assert "Permission denied" in ended.err


@pytest.mark.parametrize(
    "command", ["select", "curate", "compare", "path", "embed", "report", "certify", "verify"]
)
def test_help_fits_on_two_screens(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 100


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"uniproto {uniproto.__version__}\n"


def test_ctrl_c(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("uniproto.cli.select.select", interrupt)
    ended = run("select", "pool.npy", "-k", K, "-o", "out")
    assert ended.status == 130
    assert ended.err == "uniproto: interrupted; no result was written.\n"
    assert not Path("out").exists()
    ended = run("select", "pool.npy", "-k", K, "--checkpoint", "-o", "out")
    assert ended.err == "uniproto: interrupted; no result was written.\n"  # nothing was picked yet


def test_too_little_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*arguments: object, **options: object) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr("uniproto.cli.select.select", exhaust)
    ended = run("select", "pool.npy", "-k", K, "-o", "out")
    assert ended.status == 2
    assert ended.err.startswith("uniproto: error: Not enough memory (Unable to allocate 3 TiB)")


ODD = ["", "0", "-1", "1e400", "nan", "inf", "²", "9" * 30, "x", "a=b", "=", ",", "\x00", "é"]
VALUES = {
    "-k": ["1", "5", "12", "13", "1_0", " 3"],
    "--metric": ["cosine", "euclidean", "l1", "dot", "precomputed", "Cosine", "cos ine"],
    "--method": ["uniproto", "greedy", "random", "uni"],
    "--plan": ["extend", "resolve", "entropic"],
    "--gains": ["approx", "exact"],
    "--reg": ["0.1", "1e-9", "1e9"],
    "--min-distance": ["0", "0.5", "1e-300"],
    "--seed": ["1", "7"],
    "--include": ["0", "0,1", "11", "12", "1,,2"],
    "--exclude": ["0", "3,4,5"],
    "--groups": ["kind"],
    "--target-weights": ["w", "kind"],
    "--id": ["w", "kind", "a"],
    "--column": ["a", "w", "aa"],
    "--columns": ["a", "c,a", "a,kind", "a,aa"],
    "--ignore": ["w", "a,kind", "aa"],
    "--certify": ["1", "0.01"],
    "--budgets": ["balanced", "x=1,y=2", "x=1,x=2", "x=-1,y=4"],
    "--target": ["pool.csv", "pool.npy", "nowhere.npy"],
}


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from(sorted(VALUES)), st.integers(0, 40), max_size=4),
    st.sampled_from(["small.csv", "small.npy"]),
)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_odd_arguments_never_give_a_traceback(choices: dict[str, int], pool: str) -> None:
    rows = RNG.normal(size=(12, 3)) if not Path("small.npy").exists() else np.load("small.npy")
    np.save("small.npy", rows)
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.assign(kind=["x", "y"] * 6, w=1.0).to_csv("small.csv", index=False)
    arguments = ["select", pool, "-o", "fuzz", "-k=3"]
    if pool == "small.csv" and "--groups" not in choices:
        arguments.append("--groups=kind")
    for option, number in choices.items():
        options = [*VALUES[option] * 2, *ODD]
        arguments.append(f"{option}={options[number % len(options)]}")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status: Any = main(arguments)
        except SystemExit as usage:
            status = usage.code
    if status == 0:
        lines = err.getvalue().splitlines()  # of one number by cosine, say
        assert all(line.startswith("uniproto: warning: ") for line in lines)
        Selection.load("fuzz")
    else:
        assert status == 2
        message, _, help_line = err.getvalue().removesuffix("\n").partition("\n")
        assert message.startswith("uniproto: error: ")
        assert help_line in ("", "See 'uniproto select --help'.")


def test_demo(run: Run) -> None:
    ended = run("demo", "-k", 10, "-o", "demo", "--quiet")
    assert (ended.status, ended.err) == (0, "")
    assert "1,797 images, 10 prototypes" in ended.out
    assert "random (10 draws)" in ended.out
    assert "below random" in ended.out
    lines = ended.out.splitlines()
    table = [line.split() for line in lines if line.endswith(tuple("0123456789")) and "%" in line]
    assert [row[0] for row in table] == [str(digit) for digit in range(10)]
    assert sum(int(row[-1]) for row in table) == 10
    assert str(Path("demo").resolve()) in ended.out
    assert Selection.load("demo").k == 10


# Real processes


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "uniproto", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.slow
def test_a_terminal_that_cannot_show_everything_and_a_reader_that_leaves() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    arguments = ["pool.parquet", "-k", "6", "--column", "embedding", "--groups", "source"]
    speaking = start("select", *arguments, "-o", "out", env=environment)
    leaving = start("select", "pool.npy", "-k", "6", "-o", "gone")
    assert leaving.stdout is not None
    leaving.stdout.close()
    assert leaving.stderr is not None
    assert leaving.stderr.read() == b""
    assert leaving.wait() == 0
    leaving.stderr.close()
    out, err = speaking.communicate()
    assert (speaking.returncode, err) == (0, b"")
    assert rb"\u672c: " in out
    assert Selection.load("gone").k == Selection.load("out").k == 6
