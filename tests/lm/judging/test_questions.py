"""Benchmarks from one schema and from their original files; what is missing is never silent."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.refusals import refused

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.judging import read_questions, superglue_rows
from uniproto.lm.judging.benchmarks import BENCHMARKS, datasets_of

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def first(suite: str, folder: Path) -> Any:
    [dataset] = read_questions(suite, folder, allow_partial=True).values()
    return dataset.questions[0]


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")


GSM8K = {"question": "How many?", "answer": "He has 2*500=<<2*500=1000>>1000.\n#### 1,000"}
ORIGINALS = [
    ("gsm8k", "gsm8k/test.jsonl", json.dumps(GSM8K) + "\n", "How many?", "1000"),
    (
        "MATH",
        "MATH/test/algebra/1.json",
        {"problem": "Find $x$.", "solution": r"Thus \boxed{\frac{1}{2}}.", "level": "Level 1"},
        "Find $x$.",
        r"\frac{1}{2}",
    ),
    (
        "svamp",
        "SVAMP.json",
        [{"ID": "1", "Body": "Ann has 3 nuts", "Question": "How many nuts?", "Answer": 3.0}],
        "Ann has 3 nuts. How many nuts?",
        "3",
    ),
    (
        "simuleq",
        "SimulEq.json",
        [{"iIndex": 1, "sQuestion": "Two numbers?", "lEquations": [], "lSolutions": [15.0, 2.5]}],
        "Two numbers?",
        "15, 2.5",
    ),
    (
        "deepmind",
        "mathematics_dataset-v1.0/interpolate/algebra__linear_1d.txt",
        "Solve 2*x = 4 for x.\n2\nSolve x = 1.\n1\n",
        "Solve 2*x = 4 for x.",
        "2",
    ),
    (
        "numglue",
        "NumGLUE_test.json",
        json.dumps({"question": "Longer?", "option1": "a", "option2": "b", "answer": "Option 2"}),
        "Longer?\nAnswer Choices: (A) a (B) b",
        "B",
    ),
    (
        "numglue",
        "NumGLUE_test.json",
        json.dumps({"passage": "It rained.", "question": "Days?", "answer": {"number": "4"}}),
        "It rained.\nDays?",
        "4",
    ),
    (
        "numglue",
        "NumGLUE_test.json",
        json.dumps(
            {
                "passage": "It rained.",
                "question": "When?",
                "answer": {"number": "", "date": {"day": "", "month": "May", "year": "1999"}},
            }
        ),
        "It rained.\nWhen?",
        "May 1999",
    ),
]


@pytest.mark.parametrize(("suite", "place", "content", "text", "gold"), ORIGINALS)
def test_original_files(
    suite: str, place: str, content: Any, text: str, gold: str, tmp_path: Path
) -> None:
    write(tmp_path / place, content)
    question = first(suite, tmp_path)
    assert (question.text, question.gold) == (text, gold)
    expected = BENCHMARKS[suite.lower()].size
    with pytest.raises(InputFileError, match=rf"must have its {expected:,} questions. Got [12]"):
        read_questions(suite, tmp_path)


@pytest.mark.parametrize(
    ("suite", "place", "content"),
    [
        ("numglue", "NumGLUE_test.json", {"question": "When?", "answer": {"number": ""}}),
        ("MATH", "MATH/test/a/1.json", {"problem": "Why?", "solution": "So \\boxed{ }."}),
        ("simuleq", "SimulEq.json", {"sQuestion": "Which?", "lSolutions": []}),
    ],
)
def test_a_question_without_an_answer_is_told_before_anything_is_asked(
    suite: str, place: str, content: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / place, json.dumps(content))
    with pytest.raises(InputFileError, match="no answer to 'W"):
        read_questions(suite, tmp_path, allow_partial=True)


def test_every_suite_has_its_size_and_one_more_is_told(tmp_path: Path) -> None:
    rows = [{"dataset": "svamp", "question": str(n), "answer": "1"} for n in range(1001)]
    write(tmp_path / "math_test.jsonl", "\n".join(map(json.dumps, rows)))
    dataset = read_questions("svamp", tmp_path)["svamp"]
    assert len(dataset.questions) == 1001
    assert dataset.note() == "1,001 in the files, 1,000 published"
    whole = read_questions("svamp", tmp_path, limit=1000)["svamp"]
    assert whole.note().startswith("the first 1,000 of 1,001")


def test_compressed_files_with_odd_line_separators(tmp_path: Path) -> None:
    rows = [{"dataset": "svamp", "question": "a\u2028b", "answer": "1"}] * 1000
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    with pa.output_stream(str(tmp_path / "math_test.jsonl.zst"), compression="zstd") as stream:
        stream.write(text.encode())
    assert read_questions("svamp", tmp_path)["svamp"].questions[0].text == "a\u2028b"


@pytest.mark.parametrize(
    ("place", "content", "words"),
    [
        ("math_test.jsonl", "", "math_test.jsonl: gsm8k must have its 1,319 questions. Got 0"),
        ("math_test.jsonl", '{"dataset": "gsm8k", "ques', "Line 1 does not"),
        ("math_test.jsonl", '{"question": "1", "answer": "2"}', "could not be read ('dataset')"),
        ("math_test.jsonl", '{"dataset": "gsm8k", "question": "1"}', "be read ('answer')"),
        ("math_test.jsonl.zst", "not compressed", "could not be read"),
        ("else.txt", "", "no math_test.jsonl with the data set gsm8k"),
    ],
)
def test_what_is_wrong_is_told(place: str, content: str, words: str, tmp_path: Path) -> None:
    write(tmp_path / place, content)
    with pytest.raises(InputFileError) as caught:
        read_questions("gsm8k", tmp_path)
    assert words in str(caught.value)


def test_an_empty_data_set_is_an_error_even_where_a_part_is_allowed(tmp_path: Path) -> None:
    write(tmp_path / "math_test.jsonl", json.dumps({"dataset": "svamp"} | GSM8K))
    with pytest.raises(InputFileError, match="Got 0"):
        read_questions("gsm8k", tmp_path, allow_partial=True)
    with pytest.raises(InputFileError, match="there is no such folder"):
        read_questions("gsm8k", tmp_path / "nowhere")


def test_suites() -> None:
    assert datasets_of("math")[0] == "gsm8k"
    assert len(datasets_of("math")) == 6
    assert datasets_of("MATH") == ["math"]
    assert datasets_of("cb, gsm8k,math") == ["gsm8k", "math", "cb"]


# SuperGLUE

CB = {"premise": "P.", "hypothesis": "H", "label": "neutral", "idx": 3}
MULTIRC = {
    "idx": 0,
    "passage": {
        "text": "T.",
        "questions": [
            {
                "question": "Q?",
                "idx": 0,
                "answers": [
                    {"text": "one", "idx": 0, "label": 1},
                    {"text": "two", "idx": 1, "label": 0},
                ],
            }
        ],
    },
}


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    write(tmp_path / "SST-2/train.tsv", 'sentence\tlabel\n"quoted , fine \t1\nbad .\t0\n')
    write(tmp_path / "CB/train.jsonl", json.dumps(CB))
    write(tmp_path / "MultiRC/train.jsonl", json.dumps(MULTIRC))
    return tmp_path


def test_superglue_rows(glue: Path) -> None:
    def rows(task: str) -> list[dict[str, str]]:
        return superglue_rows(task, "train", glue, allow_partial=True)

    assert [row["output"] for row in rows("sst2")] == ["positive", "negative"]
    assert rows("sst2")[0]["instruction"].startswith('Review: "quoted , fine\n')
    assert rows("cb")[0]["output"] == "maybe"
    assert [row["output"] for row in rows("multirc")] == ["yes", "no"]
    assert {row["source"] for row in rows("multirc")} == {"multirc"}
    for part in ("Passage: T.", "Question: Q?", "Answer: two"):
        assert part in rows("multirc")[1]["instruction"]


def test_superglue_from_an_archive(glue: Path, tmp_path: Path) -> None:
    archive = tmp_path / "other" / "glue.tar.zst"
    archive.parent.mkdir()
    inside = io.BytesIO()
    with tarfile.open(fileobj=inside, mode="w") as files:
        files.add(glue / "CB", "CB")
    with pa.output_stream(str(archive), compression="zstd") as stream:
        stream.write(inside.getvalue())
    for data in (archive, archive.parent):
        assert superglue_rows("cb", "train", data, allow_partial=True)[0]["output"] == "maybe"
    with pytest.raises(InputFileError, match=r"no SST-2/train.tsv"):
        superglue_rows("sst2", "train", archive)


def test_superglue_errors(glue: Path) -> None:
    with pytest.raises(InputFileError, match=r"cb must have its 250 questions. Got 1"):
        superglue_rows("cb", "train", glue)
    with refused("examples", InvalidInputError):
        superglue_rows("sst2", "train", glue, allow_partial=True, examples=3)
    with refused("split", InvalidInputError):
        superglue_rows("sst2", "test", glue)
    with refused("task", InvalidInputError):
        superglue_rows("rte", "train", glue)
    write(glue / "CB/train.jsonl", json.dumps(CB | {"label": "entails"}))
    with pytest.raises(InputFileError, match="'entails'"):
        superglue_rows("cb", "train", glue)
    write(glue / "SST-2/train.tsv", "index\tsentence\n0\tfine\n")
    with pytest.raises(InputFileError, match="could not be read"):
        superglue_rows("sst2", "train", glue)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published data sets are not here")
def test_the_published_data_sets_are_complete() -> None:
    for suite in ("math", "superglue"):
        for name, dataset in read_questions(suite, SHARED).items():
            assert len(dataset.questions) == BENCHMARKS[name].size
            assert dataset.note() == ""
    sample = superglue_rows("multirc", "train", SHARED, examples=3000, seed=1)
    assert len({row["instruction"] for row in sample}) > 2900
    assert sample == superglue_rows("multirc", "train", SHARED, examples=3000, seed=1)
    assert sample != superglue_rows("multirc", "train", SHARED, examples=3000, seed=2)
