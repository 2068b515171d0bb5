"""The way from questions to verdicts, with models that are made up: fast, and every turn of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.refusals import refused

from uniproto.errors import InputFileError, InvalidInputError, OutputError
from uniproto.lm.judging import Evaluation, evaluate
from uniproto.lm.judging.benchmark_files import Question
from uniproto.lm.judging.session import PROGRAM_REQUEST, Session

TEMPLATE = "### Instruction:\n{instruction}\n\n### Response:\n"


class Scripted:
    """Answers by looking the question up: `by_program` and `by_words` map a part of it to text."""

    name = "scripted"

    def __init__(self, by_program: dict[str, str], by_words: dict[str, str] | None = None) -> None:
        self.by_program, self.by_words = by_program, by_words or {}
        self.asked: list[str] = []

    def generate(self, prompts: Sequence[str]) -> list[Any]:
        self.asked += prompts
        found = []
        for prompt in prompts:
            book = self.by_program if PROGRAM_REQUEST in prompt else self.by_words
            text = next((answer for part, answer in book.items() if part in prompt), "No idea.")
            found.append(SimpleNamespace(text=text, stopped="end"))
        return found

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        self.asked += prompts
        return [[-float(len(word)) for word in each] for each in words]


def pretend(codes: Sequence[str], timeout: float, trust: bool) -> list[Any]:
    """A sandbox for programs that print what they should, crash, or hang."""
    found = []
    for code in codes:
        printed = re.search(r"print\((.*)\)", code)
        if "raise" in code:
            found.append(SimpleNamespace(status="error", output="Traceback"))
        elif "while True" in code:
            found.append(SimpleNamespace(status="timeout", output=""))
        else:
            found.append(SimpleNamespace(status="ok", output=f"{printed[1]}\n" if printed else ""))
    return found


def asked(model: Any, *questions: Question) -> list[dict[str, Any]]:
    return Session(model, TEMPLATE, run_programs=pretend).ask(questions)


APPLES = Question("gsm8k", "gsm8k-0", "How many apples?", "7")


def test_a_program_that_prints_the_answer_answers() -> None:
    model = Scripted({"apples": "x = 7\nprint(7)"})
    [item] = asked(model, APPLES)
    assert (item["how"], item["predicted"], item["verdict"]) == ("program", "7", "right")
    assert item["program"] == "x = 7\nprint(7)"
    assert item["printed"] == "7\n"
    assert len(model.asked) == 1
    assert model.asked[0] == TEMPLATE.replace("{instruction}", f"{APPLES.text} {PROGRAM_REQUEST}")


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("I would count them.", None),
        ("x = 7", "ok"),
        ("raise ValueError\nprint(7)", "error"),
        ("while True: pass\nprint(7)", "timeout"),
    ],
)
def test_where_no_program_works_words_count(program: str, status: str | None) -> None:
    model = Scripted({"apples": program}, {"apples": "3 + 4 = 7. The answer is 7"})
    [item] = asked(model, APPLES)
    assert (item["how"], item["verdict"]) == ("reasoning", "right")
    assert item["program_status"] == status
    assert item["program_output"] == program
    assert item["output"] == "3 + 4 = 7. The answer is 7"
    assert model.asked[1] == item["prompt"] == TEMPLATE.replace("{instruction}", APPLES.text)
    assert PROGRAM_REQUEST in item["program_prompt"]


def test_a_program_that_prints_a_wrong_answer_is_wrong_and_not_asked_again() -> None:
    model = Scripted({"apples": "print(8)"}, {"apples": "The answer is 7"})
    [item] = asked(model, APPLES)
    assert (item["how"], item["predicted"], item["verdict"]) == ("program", "8", "wrong")
    assert len(model.asked) == 1


def test_only_those_that_failed_are_asked_again() -> None:
    pears = Question("svamp", "svamp-0", "How many pears?", "3")
    model = Scripted({"pears": "print(3)"}, {"apples": "The answer is 7"})
    items = asked(model, APPLES, pears)
    assert [item["id"] for item in items] == ["gsm8k-0", "svamp-0"]
    assert [item["how"] for item in items] == ["reasoning", "program"]
    assert [item["verdict"] for item in items] == ["right", "right"]
    assert len(model.asked) == 3


def test_repeating_the_question_is_no_answer() -> None:
    question = Question("math", "math-0", "Evaluate $i^5+i^{-25}+i^{45}$.", "i")
    model = Scripted({}, {"Evaluate": "The answer is $i^5 + i^{-25} + i^{45}$."})
    [item] = asked(model, question)
    assert (item["how"], item["verdict"]) == ("reasoning", "wrong")


def test_classification_takes_the_likeliest_word() -> None:
    question = Question("cb", "cb-0", "Does it?", "no", ("yes", "no", "maybe"))
    [item] = asked(Scripted({}), question)
    assert item["scores"] == {"yes": -3.0, "no": -2.0, "maybe": -5.0}
    assert (item["predicted"], item["how"], item["verdict"]) == ("no", "likelihood", "right")


def test_a_broken_model_is_told() -> None:
    class Broken(Scripted):
        def label_scores(self, prompts: Any, words: Any) -> list[list[float]]:
            return [[float("nan")] * len(each) for each in words]

    with pytest.raises(InvalidInputError, match="no finite log-likelihood"):
        asked(Broken({}), Question("cb", "cb-0", "Does it?", "no", ("yes", "no")))


# From files to files


def write_questions(folder: Path, count: int = 30, dataset: str = "svamp") -> Path:
    rows = [
        {"dataset": dataset, "question": f"What is {n} + 1{'!' * n}?", "answer": str(n + 1)}
        for n in range(count)
    ]
    (folder / "math_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Adder(Scripted):
    """Right about even numbers, by a program; wrong about the others, in words."""

    name = "adder"

    def __init__(self) -> None:
        super().__init__({})

    def generate(self, prompts: Sequence[str]) -> list[Any]:
        self.asked += prompts
        found = []
        for prompt in prompts:
            number = int(re.search(r"What is (\d+)", prompt)[1])  # type: ignore[index]
            text = f"print({number} + 1)" if number % 2 == 0 else "The answer is 1000"
            found.append(SimpleNamespace(text=text, stopped="end"))
        return found


@pytest.fixture
def quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`evaluate` on made-up questions, in silence, with programs that need no sandbox."""
    from uniproto.lm.judging import run as evaluating

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(evaluating, "run_program", lambda *_, **__: None)
    monkeypatch.setattr(evaluating, "containment", lambda: "pretended")

    def run(codes: Sequence[str], timeout: float, trust: bool) -> list[Any]:
        return [
            SimpleNamespace(status="ok", output=f"{eval(re.search(r'print.(.*).', c)[1])}\n")  # type: ignore[index]
            for c in codes
        ]

    class Pretending(Session):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, run_programs=run)

    monkeypatch.setattr(evaluating, "Session", Pretending)
    lines: list[str] = []

    def start(model: Any, **options: Any) -> Evaluation:
        usual = {
            "suite": "svamp",
            "data": tmp_path / "data",
            "out": tmp_path / "out",
            "template": TEMPLATE,
            "batch_size": 2,
            "allow_partial": True,
            "progress": False,
            "log": lines.append,
        }
        return evaluate(model, **{**usual, **options})

    start.lines = lines  # type: ignore[attr-defined]
    return start


def test_scores_table_and_files(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data")
    found = quietly(Adder())
    score = found.scores["svamp"]
    assert (score["right"], score["questions"], score["by_program"]) == (15, 30, 15)
    assert score["accuracy"] == 0.5
    assert score["error"] == pytest.approx((0.25 / 30) ** 0.5)
    assert [item["id"] for item in found.items] == [f"svamp-{n}" for n in range(30)]
    assert quietly.lines == ["SVAMP: 30 questions (30 in the files, 1,000 published)"]
    out = tmp_path / "out"
    text = (out / "table.txt").read_text("utf-8")
    assert text == found.table() + "\n"
    assert text.startswith(f"model {found.model}\n\n")
    assert re.search(r"SVAMP +30 +50\.0 ± +9\.1", text)
    assert "30 in the files, 1,000 published" in text
    assert "average" not in text  # of one data set
    record = json.loads((out / "scores.json").read_text("utf-8"))
    assert record["scores"]["svamp"]["note"] == "30 in the files, 1,000 published"
    assert len((out / "items.jsonl").read_text("utf-8").splitlines()) == 30
    assert (
        (out / "table.csv").read_text("utf-8").startswith("name,accuracy,error,low,high,questions")
    )
    assert "svamp-3" not in (out / "page.html").read_text("utf-8")  # packed
    again = Evaluation.load(out)
    assert again.scores == found.scores
    assert again.table() == found.table()


def test_the_averages_are_the_papers(tmp_path: Path, quietly: Any) -> None:
    names = ["gsm8k", "math", "numglue", "svamp", "deepmind", "simuleq"]
    rows = [
        {"dataset": name, "question": f"What is {n} + 1?", "answer": str(n + 1)}
        for place, name in enumerate(names)
        for n in range(place + 2)
    ]
    (tmp_path / "data" / "math_test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scores = quietly(Adder(), suite="math").scores
    each = [scores[name]["accuracy"] for name in names]
    assert each == pytest.approx([1 / 2, 2 / 3, 1 / 2, 3 / 5, 1 / 2, 4 / 7])
    assert scores["in-domain"]["accuracy"] == pytest.approx(sum(each[:3]) / 3)
    assert scores["out-of-domain"]["accuracy"] == pytest.approx(sum(each[3:]) / 3)
    assert scores["overall"]["accuracy"] == pytest.approx(sum(each) / 6)
    errors = [scores[name]["error"] for name in names]
    assert scores["overall"]["error"] == pytest.approx(sum(e * e for e in errors) ** 0.5 / 6)
    order = re.findall(r"^(\S.*?)  ", quietly(Adder(), suite="math").table(), re.MULTILINE)
    assert order == [
        "%", "GSM8K", "MATH", "NumGLUE", "in-domain average",
        "SVAMP", "Mathematics", "SimulEq", "out-of-domain average", "overall average",
    ]  # fmt: skip


def test_a_finished_evaluation_asks_nothing(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data")
    first, second = Adder(), Adder()
    one = quietly(first)
    two = quietly(second)
    assert len(first.asked) == 45  # 30 for programs, the odd half again
    assert second.asked == []
    assert two.scores == one.scores
    assert quietly.lines[-1].endswith("30 answered before")


def test_it_goes_on_after_a_failure(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data")

    class Dies(Adder):
        def generate(self, prompts: Sequence[str]) -> list[Any]:
            if len(self.asked) > 20:
                raise RuntimeError("the power went")
            return super().generate(prompts)

    with pytest.raises(RuntimeError, match="power"):
        quietly(Dies())
    file = tmp_path / "out" / "items.jsonl"
    kept = file.read_bytes()
    assert kept.count(b"\n") == 16  # two askings of 4 batches of 2
    with file.open("ab") as handle:
        handle.write(b'{"dataset": "svamp", "id": "svamp-2", "verd')  # torn by a kill
    model = Adder()
    found = quietly(model)
    assert found.scores["svamp"]["right"] == 15
    assert file.read_bytes().startswith(kept)
    assert len(file.read_bytes().splitlines()) == 30
    numbers = {int(re.search(r"What is (\d+)", prompt)[1]) for prompt in model.asked}  # type: ignore[index]
    assert len(numbers) == 14


def test_other_settings_are_refused_with_the_difference(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data")
    quietly(Adder())
    with pytest.raises(InvalidInputError, match=r"max_new_tokens = 2048 in the folder, 99 now"):
        quietly(Adder(), max_new_tokens=99)
    with pytest.raises(InvalidInputError, match="questions_sha256"):
        quietly(Adder(), limit=5)
    quietly(Adder(), batch_size=7)  # does not change what is asked
    settings = next(tmp_path.rglob("evaluation.json"))
    kept = settings.read_bytes()
    settings.unlink()  # nobody knows any more whose answers these are
    with pytest.raises(OutputError, match=r"holds items\.jsonl"):
        quietly(Adder())
    settings.write_bytes(kept)
    assert quietly(Adder(), limit=5, fresh=True).scores["svamp"]["questions"] == 5


def test_starting_over_leaves_no_old_results(tmp_path: Path, quietly: Any) -> None:
    class Dying(Adder):
        def generate(self, prompts: Sequence[str]) -> list[Any]:
            raise RuntimeError("the model died")

    write_questions(tmp_path / "data")
    quietly(Adder())
    with pytest.raises(RuntimeError, match="the model died"):
        quietly(Dying(), fresh=True)
    left = {file.name for file in (tmp_path / "out").iterdir()}
    assert left == {"items.jsonl", "evaluation.json"}


def test_a_limit_is_told_everywhere(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data", 1000)
    found = quietly(Adder(), limit=10, allow_partial=False)
    note = "the first 10 of 1,000"
    assert found.notes == {"svamp": note}
    for name in ("table.txt", "scores.json", "page.html", "table.csv"):
        assert note in (tmp_path / "out" / name).read_text("utf-8"), name
    assert quietly.lines == [f"SVAMP: 10 questions ({note})"]


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path, quietly: Any) -> None:
    class SecondRun(Adder):
        """Starts another evaluation while it is asked."""

        def generate(self, prompts: Sequence[str]) -> list[Any]:
            with pytest.raises(OutputError, match="another run is writing"):
                quietly(Adder(), limit=5, fresh=True)
            return super().generate(prompts)

    write_questions(tmp_path / "data")
    assert quietly(SecondRun(), limit=4).scores["svamp"]["questions"] == 4


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "files",
    [
        {"table.csv": "my own table"},
        {"items.jsonl": "my own items"},
        {"page.html": "<p>mine"},
        {"evaluation.json": '{"accuracy": 0.9}', "items.jsonl": '{"id": "mine"}\n'},
        {"evaluation.json": "[1, 2", "scores.json": "{}"},
    ],
)
def test_files_of_other_programs_are_never_touched(
    tmp_path: Path, quietly: Any, files: dict[str, str], fresh: bool
) -> None:
    write_questions(tmp_path / "data")
    out = tmp_path / "out"
    out.mkdir()
    for name, content in files.items():
        (out / name).write_text(content)
    with pytest.raises((OutputError, InputFileError), match="another folder with --out"):
        quietly(Adder(), fresh=fresh)
    assert {file.name: file.read_text() for file in out.iterdir()} == files


def test_a_folder_with_an_input_in_it_is_refused(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OutputError, match="is or contains"):
        quietly(Adder(), out=tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, 0) for name in ("batch_size", "max_new_tokens", "program_seconds", "limit")),
        *(("device", "tpu"), ("template", "no place"), ("suite", "gsm")),
    ],
)
def test_bad_options(tmp_path: Path, quietly: Any, option: str, value: Any) -> None:
    write_questions(tmp_path / "data")
    with refused(option, InvalidInputError):
        quietly(Adder(), **{option: value})
    assert not (tmp_path / "out").exists()


def test_a_system_without_walls_refuses_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import uniproto.lm.judging.sandbox as sandbox

    monkeypatch.setattr(sandbox, "_offered", lambda: (None, ("no namespaces",)))
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    write_questions(data)
    model = Adder()
    with pytest.raises(sandbox.ContainmentError, match="trust-generated-code"):
        evaluate(model, suite="svamp", data=data, out=out, allow_partial=True)
    assert model.asked == []
    assert not out.exists()


def test_hostile_output_reaches_the_files_as_text(tmp_path: Path, quietly: Any) -> None:
    write_questions(tmp_path / "data", 1)
    nasty = "</script><script>window.hacked=1</script>\ud800\x00\u2028"
    found = quietly(Scripted({}, {"What": nasty}))
    assert found.items[0]["output"] == nasty
    [line] = (tmp_path / "out" / "items.jsonl").read_text("utf-8").splitlines()[:1]
    text = (tmp_path / "out" / "items.jsonl").read_bytes().split(b"\n")[0]
    assert json.loads(text)["output"] == nasty
    assert "window.hacked" in line
    assert "window.hacked" not in (tmp_path / "out" / "page.html").read_text("utf-8")
