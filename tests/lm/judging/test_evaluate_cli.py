"""`uniproto evaluate`: a whole run of a real model, killed and gone on, and told what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from uniproto.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")
QUESTIONS = 24


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = [
        {"dataset": "svamp", "question": f"{n} + {n}{' ' * (n % 5)}?", "answer": str(2 * n)}
        for n in range(QUESTIONS)
    ]
    (folder / "math_test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "CB").mkdir()
    pairs = [
        {"premise": f"P{n}", "hypothesis": "H", "label": label, "idx": n}
        for n, label in enumerate(["entailment", "contradiction", "neutral"] * 19)
    ]
    (folder / "CB" / "val.jsonl").write_text("\n".join(map(json.dumps, pairs[:56])))
    return folder


def words(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    return [
        *("evaluate", str(model), "--data", str(data), "-o", str(out), "--device", "cpu"),
        *("--template", "Q {instruction} A", "--max-new-tokens", "8", "--batch-size", "1"),
        *("--trust-generated-code", *more),
    ]


def items(out: Path) -> list[dict[str, Any]]:
    lines = (out / "items.jsonl").read_bytes().split(b"\n")
    found = [json.loads(line) for line in lines[:-1]]
    for item in found:
        item.pop("seconds")
    return sorted(found, key=lambda item: item["id"])


@pytest.mark.slow
def test_a_run_killed_goes_on_and_ends_the_same(
    tiny_model: Path, data: Path, tmp_path: Path
) -> None:
    arguments = ["--suite", "svamp", "--allow-partial", "--quiet"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "uniproto", *words(tiny_model, data, killed, *arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    file = killed / "items.jsonl"
    deadline = time.monotonic() + 120
    while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = len(items(killed))
    assert 0 < done < QUESTIONS
    assert not (killed / "scores.json").exists()
    kept = file.read_bytes()
    assert main(words(tiny_model, data, killed, *arguments)) == 0
    assert file.read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    assert main(words(tiny_model, data, whole, *arguments)) == 0
    assert items(killed) == items(whole)
    scores = [json.loads((out / "scores.json").read_text())["scores"] for out in (killed, whole)]
    assert scores[0] == scores[1]
    assert (killed / "page.html").stat().st_size > 10_000


def test_the_table_is_printed(
    tiny_model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(words(tiny_model, data, out, "--suite", "cb", "--batch-size", "16")) == 0
    said = capsys.readouterr()
    assert "CB: 56 questions\n" in said.err
    assert "CB" in said.out
    assert "F1" in said.out
    assert "Not the complete" not in said.out
    assert "by program" not in said.out
    first = items(out)
    assert {tuple(item["scores"]) for item in first} == {("yes", "no", "maybe")}
    assert main(words(tiny_model, data, out, "--suite", "cb", "--batch-size", "5")) == 0
    assert "56 answered before" in capsys.readouterr().err
    assert main(words(tiny_model, data, out, "--suite", "cb", "--bf16")) == 2
    assert "bf16 = False in the folder, True now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--suite", "svamp"], "svamp must have its 1,000 questions. Got 24 instead"),
        (["--suite", "gsm8k", "--allow-partial"], "must have its 1,319 questions. Got 0"),
        (["--suite", "multirc"], "no MultiRC/val.jsonl"),
        (["--suite", "sst3"], "Did you mean 'sst2'"),
        (["--suite", "cb", "--limit", "0"], "--limit must be at least 1"),
        (["--suite", "cb", "--template", "Q"], "must hold {instruction}"),
    ],
)
def test_what_is_wrong_is_told(
    tiny_model: Path,
    data: Path,
    tmp_path: Path,
    more: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(words(tiny_model, data, tmp_path / "out", *more)) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_none_is_told(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(words(tmp_path / "empty", data, tmp_path / "out", "--suite", "cb")) == 2
    assert "must be a model's folder" in capsys.readouterr().err
