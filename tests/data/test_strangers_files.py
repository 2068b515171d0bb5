"""Files from strangers: what they hold is checked before anything follows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from tests.refusals import refused

import uniproto
from support.published import checked_labels, checked_rows
from uniproto.cli import main
from uniproto.data.files import json_objects
from uniproto.errors import InputFileError, InvalidInputError, printable
from uniproto.features.files import read_table
from uniproto.lm.features.examples import read_examples


def test_deep_objects_are_refused_wherever_lines_are_read() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    with pytest.raises(InputFileError, match="Line 2 does not"):
        list(json_objects(['{"a": 1}', deep], "x.jsonl"))


@pytest.mark.parametrize("depth", [101, 10_000, 100_000])
@pytest.mark.parametrize("ending", [".jsonl", ".json", ".jsonl.zst"])
def test_deep_values_are_refused_before_they_are_parsed(
    ending: str, depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arrow's parser once ended the process without a word."""
    deep = '{"a": ' + "[" * (depth - 1) + "1" + "]" * (depth - 1) + "}"
    path = tmp_path / f"pool{ending}"
    if ending == ".json":
        path.write_text("[\n" + deep.replace("[", "[\n") + "\n]")
    elif ending == ".jsonl":
        path.write_text('{"a": []}\n' + deep + "\n")
    else:
        packed = pa.compress(f"{deep}\n".encode(), "zstd", asbytes=True)
        path.write_bytes(packed)
    with pytest.raises(InputFileError, match="nested at most 100 deep"):
        read_examples(path)
    assert main(["select", str(path), "-k", "1", "-o", str(tmp_path / "out")]) == 2
    assert "nested at most 100 deep" in capsys.readouterr().err


def test_brackets_in_texts_are_not_deep(tmp_path: Path) -> None:
    rows = [{"x": 1.5 * row, "text": '\\" [{' * 500} for row in range(4)]
    path = tmp_path / "pool.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert len(read_table(path)[1]) == 4


def test_long_lines_are_searched_once(tmp_path: Path) -> None:
    """Twenty million characters, quotes and brackets: a search that goes back would never end."""
    rows = [{"prompt": "p", "completion": '["{' * 7_000_000}, {"prompt": "q", "completion": "r"}]
    path = tmp_path / "pool.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert len(read_examples(path)) == 2


def forged(form: str, **changes: list[int]) -> sp.csr_array | sp.csc_array:
    matrix = sp.csr_array(np.eye(6)).asformat(form)
    for name, values in changes.items():
        setattr(matrix, name, np.array(values, np.int32))
    return matrix


@pytest.mark.parametrize(
    "changes",
    [
        {"indices": [0, 1, 2, 3, 4, 10**6]},
        {"indices": [0, 1, 2, 3, 4, -7]},
        {"indptr": [0, 1, 2, 3, 4, 5, 10**6]},
        {"indptr": [0, 5, 2, 3, 4, 5, 6]},
        {"indptr": [1, 1, 2, 3, 4, 5, 6]},
    ],
)
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_indices_lie_inside(changes: dict[str, list[int]], form: str) -> None:
    """`scipy.sparse.load_npz` takes them as they are, and reads memory of others."""
    with refused("source", InvalidInputError):
        uniproto.select(forged(form, **changes), 2)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "sqeuclidean", "l1"])
def test_a_place_that_is_stored_twice_holds_the_sum(metric: str) -> None:
    dense = np.random.default_rng(0).normal(size=(30, 4))
    halves = sp.csr_array(dense / 2)
    twice = sp.csr_array(
        (
            np.repeat(halves.data, 2),
            np.repeat(halves.indices, 2),
            2 * halves.indptr,
        ),
        shape=dense.shape,
    )
    expected = uniproto.select(dense, 4, metric=metric)
    found = uniproto.select(twice, 4, metric=metric)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.cost == pytest.approx(expected.cost)


@pytest.mark.parametrize(
    "labels", [np.array(["a", "b"]), np.array([0.0, np.nan]), np.array([0, 2**64 - 1], np.uint64)]
)
def test_labels_of_a_data_set_are_whole_numbers(labels: np.ndarray) -> None:
    with pytest.raises(InputFileError, match="labels must be"):
        checked_labels(labels, 10, Path("mnist.npz"))


@pytest.mark.parametrize(
    "rows", [np.array(3.0), np.zeros((2, 5)), np.array([["a"] * 4] * 2), np.zeros((3, 4))]
)
def test_rows_of_a_data_set_fit_their_labels(rows: np.ndarray) -> None:
    with pytest.raises(InputFileError, match="must hold 4 features"):
        checked_rows(rows, np.zeros(2, np.int64), 4, Path("mnist.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["select", "embed"])
def test_a_pipe_does_not_hang(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pool.csv")
    options = ["-k", "2", "-o", "out"] if command == "select" else ["-o", "out.parquet"]
    done = subprocess.run(
        [sys.executable, "-m", "uniproto", command, "pool.csv", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must be a regular file, not a pipe" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("line\nline", r"line\nline"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("broken \udc80", r"broken \udc80"),
        ("naïve 東京\u00a0€ 👩\u200d🔬", "naïve 東京\u00a0€ 👩\u200d🔬"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


STRANGE = "o\x1b[2Jdd"  # clears the screen where a terminal sees it


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "select {pool} -k 4 --groups {strange} --id {strange}2 -o {out}",
        "compare {pool} -k 4 --labels {strange} --ignore {strange}2 --methods kcenter -o {out}",
        "path {pool} --ks 2,3 --ignore {strange},{strange}2 --no-certify --seeds 0 -o {out}",
    ],
    ids=["select", "compare", "path"],
)
def test_summaries_escape_columns_labels_and_paths(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = np.random.default_rng(0).normal(size=12)
    labels = [STRANGE + str(row % 2) for row in range(12)]
    columns = {STRANGE: labels, f"{STRANGE}2": labels, f"{STRANGE}3": values, "b": values[::-1]}
    pq.write_table(pa.table(columns), tmp_path / "pool.parquet")
    out = tmp_path / STRANGE
    words = {"pool": tmp_path / "pool.parquet", "strange": STRANGE, "out": out}
    assert main([word.format(**words) for word in command.split()]) == 0
    if command.startswith("select"):
        for more in ("certify", "verify", "report"):
            assert main([more, str(out)]) == 0
    found = capsys.readouterr().out
    assert r"o\x1b[2Jdd" in found
    assert "\x1b" not in found
