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

import uniproto
from support.published import checked_labels, checked_rows
from uniproto.cli import main
from uniproto.data.files import DEEPEST, json_objects, require_shallow
from uniproto.errors import InputFileError, InvalidInputError, printable


def nested(levels: int, *, line_by_line: bool = False) -> bytes:
    end = b"\n" if line_by_line else b""
    return (b'{"a":' + end) * levels + b"1" + end + (b"}" + end) * levels


@pytest.mark.parametrize("line_by_line", [False, True])
def test_depth_is_bounded_before_anything_is_parsed(tmp_path: Path, line_by_line: bool) -> None:
    """Nine hundred levels took a reader 2.7 GB, on one line or on nine hundred."""
    path = tmp_path / "deep.jsonl"
    path.write_bytes(b'{"a": {"a": 1}}\n' + nested(900, line_by_line=line_by_line))
    line = 2 + (DEEPEST if line_by_line else 0)
    with pytest.raises(InputFileError, match=rf"deep.jsonl.*{DEEPEST} levels.*Line {line} "):
        uniproto.select(path, 1)


@pytest.mark.parametrize(
    "lines",
    [
        [nested(DEEPEST)],
        [nested(DEEPEST, line_by_line=True)],
        [b'{"text": "' + b"[{" * 500 + b'"}'],
        [b'{"text": "a \\" ' + b"[{" * 500 + b'"}'],
        [b'{"a": [' + b",".join([b"[[1]]"] * 500) + b"]}"],
        [b'{"a": 1}'] * 500,
        [b'{"a": [\n', b"1]\n", b"}\n"] * 500,
        [b'{"a": 1}\n', b"\n", b" \n"] * 500,
    ],
)
def test_shallow_values_pass(lines: list[bytes]) -> None:
    require_shallow([line for part in lines for line in part.splitlines(keepends=True)], "x.jsonl")


@pytest.mark.parametrize(
    "attack",
    [
        b'{"a":{}\n,"b":\n' * 900,  # every second line looks like a whole object
        b'{"a":{},"b":\n' * 900,
        b"[\n" * 900,
        b'{"a": "' + b"\\" * 3 + b'",\n' + b'"b":{' * 900,
    ],
)
def test_depth_cannot_be_hidden_in_lines(attack: bytes) -> None:
    with pytest.raises(InputFileError, match=f"{DEEPEST} levels"):
        require_shallow(attack.splitlines(keepends=True), "x.jsonl")


def test_depth_is_measured_in_one_pass() -> None:
    """A text that never ends, full of quotes: a careless pattern would begin at each of them."""
    require_shallow([b'["' + b'\\"[' * 500_000], "x.jsonl")


def test_deep_objects_are_refused_wherever_lines_are_read() -> None:
    deep = nested(100_000).decode()
    with pytest.raises(InputFileError, match="Line 2 has some"):
        list(json_objects(['{"a": 1}', deep], "x.jsonl"))


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
    with pytest.raises(InvalidInputError, match="indices lie inside"):
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


@pytest.mark.parametrize("command", ["select", "embed"])
def test_a_pipe_does_not_hang(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pool.csv")
    options = ["-k", "2", "-o", "out"] if command == "select" else ["-o", "out.parquet"]
    done = subprocess.run(
        [sys.executable, "-m", "uniproto", command, "pool.csv", *options],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "must be a regular file. Got a pipe" in done.stderr


FORGED_COMPARISONS = {
    "a number for a name": {"method": 7},
    "no cost": {"cost": "low"},
    "an endless cost": {"cost": 1e999},
    "half a run": {"runs": 0.5},
    "a spread of text": {"cost_spread": "wide"},
    "no name": {"method": None},
}


@pytest.mark.parametrize("forgery", FORGED_COMPARISONS)
def test_a_forged_comparison_is_refused(
    forgery: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "pool.npy", np.random.default_rng(0).normal(size=(20, 3)))
    out = tmp_path / "out"
    assert main(["select", str(tmp_path / "pool.npy"), "-k", "3", "-o", str(out), "--quiet"]) == 0
    row = {"method": "kcenter", "cost": 1.0, "cost_spread": None, "runs": 1}
    record = {"k": 3, "shape": [20, 20], "metric": "cosine", "rows": [row], "summary": [row]}
    record["summary"] = [{**row, **FORGED_COMPARISONS[forgery]}]
    (out / "comparison.json").write_text(json.dumps(record))
    assert main(["report", str(out), "--random", "0"]) == 2
    assert "must hold a comparison" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    "command",
    [
        "select {pool} -k 4 --groups {strange} --id {strange}2 -o {out}",
        "compare {pool} -k 4 --labels {strange} --ignore {strange}2 --methods kcenter -o {out}",
        "path {pool} --ks 2,3 --ignore {strange},{strange}2 --no-bound --random-seeds 0 -o {out}",
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
