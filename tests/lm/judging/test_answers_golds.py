"""Every gold answer of the six benchmarks is itself, and no other."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path

import pytest

from uniproto.lm.judging.answers import extract_answer, program_answer, same_answer

DATA = Path(
    os.environ.get("UNIPROTO_DATA") or Path(__file__).resolve().parents[4] / "shared" / "data"
)
FILE = DATA / "math" / "math_test.jsonl.zst"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="needs the data folder's math/")


@pytest.fixture(scope="module")
def golds() -> dict[str, list[str]]:
    import pyarrow as pa

    found: dict[str, dict[str, None]] = {}
    with pa.input_stream(str(FILE), compression="zstd") as stream:
        for line in io.TextIOWrapper(io.BytesIO(stream.read()), "utf-8", newline="\n"):
            row = json.loads(line)
            found.setdefault(row["dataset"], {})[row["answer"]] = None
    return {dataset: list(answers) for dataset, answers in found.items()}


def test_every_gold_is_itself_however_it_is_announced(golds: dict[str, list[str]]) -> None:
    failed = []
    for dataset, answers in golds.items():
        for gold in answers:
            one_line = " ".join(gold.split())
            outputs = (
                extract_answer(f"Thus we get $\\boxed{{{gold}}}$.", dataset),
                extract_answer(f"So the answer is {one_line}.", dataset),
                extract_answer(f"That is all.\n#### {one_line}", dataset),
                program_answer(f"computing\n{one_line}\n", dataset),
                f" {one_line} .",  # another text, so that it is read and not only compared
            )
            failed += [
                (dataset, gold, said) for said in outputs if not same_answer(said, gold, dataset)
            ]
    assert not failed


def test_different_golds_are_different(golds: dict[str, list[str]]) -> None:
    draw = random.Random(0)
    equal = []
    for dataset, answers in golds.items():
        for _ in range(300):
            one, other = draw.sample(answers, 2)
            if same_answer(one, other, dataset):
                equal.append({one, other})
    # The same number in two of the data's own notations.
    written_twice = ({"[7]", "7.0"}, {"8.0", "8"}, {"-14", "-14.0"})
    assert [pair for pair in equal if pair not in written_twice] == []
