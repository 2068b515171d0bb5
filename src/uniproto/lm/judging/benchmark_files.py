"""The files of the benchmarks: in one schema or as published, compressed or in an archive."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.data.files import json_objects, reading
from uniproto.errors import InputFileError

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")


@dataclass(frozen=True)
class Question:
    """A question and its right answer.

    `words` are the label words of a classification task, empty where the answer is free text;
    `group` joins the answers to one question of MultiRC.
    """

    dataset: str
    id: str
    text: str
    gold: str
    words: tuple[str, ...] = ()
    group: str | None = None


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, by its name.

    >>> is_archive(Path("glue.tar.zst")), is_archive(Path("test.jsonl.zst"))
    (True, False)
    """
    return path.name.lower().endswith(ARCHIVES)


def read_text(path: Path) -> str:
    """A text file, decompressed where its name ends in .zst or .gz."""
    import pyarrow as pa

    with reading(path, "the questions of a benchmark"), pa.input_stream(str(path)) as stream:
        return bytes(stream.read()).decode("utf-8-sig")


def read_member(archive: Path, ending: str) -> str | None:
    """The text of the archive's file whose path has this ending; None if there is none."""
    import pyarrow as pa

    compression = "gzip" if archive.suffix.lower() == ".tgz" else "detect"
    with (
        reading(archive, "the files of a benchmark"),
        pa.input_stream(str(archive), compression=compression) as stream,
        tarfile.open(fileobj=stream, mode="r|") as files,
    ):
        for member in files:
            if member.isfile() and f"/{member.name}".endswith(f"/{ending}"):
                content = files.extractfile(member)
                assert content is not None  # it is a file
                return content.read().decode("utf-8-sig")
    return None


def json_lines(text: str, name: str) -> list[dict[str, Any]]:
    """One object per line; lines end with \\n only, as texts may hold other separators.

    >>> json_lines('{"a": 1}\\n{"a": 2}\\n', "x.jsonl")
    [{'a': 1}, {'a': 2}]
    """
    return [row for _, row in json_objects(text.split("\n"), name)]


def require_complete(
    dataset: str, questions: Sequence[Question], published: int, file: str, *, allow_partial: bool
) -> None:
    """Refuse a file with fewer questions than were published, unless a part is allowed."""
    if not questions or (len(questions) < published and not allow_partial):
        raise InputFileError(
            f"{file}: {dataset} must have its {published:,} questions. Got {len(questions):,} "
            "instead. Fetch the complete file, or allow a part of it (--allow-partial)."
        )


_ONE_SCHEMA = ("math_test.jsonl", "math_test.jsonl.zst")
_PLACES: Mapping[str, tuple[str, ...]] = {  # below the data folder; the first that is there
    "gsm8k": ("gsm8k/test.jsonl", "grade_school_math/data/test.jsonl", "gsm8k_test.jsonl"),
    "math": ("MATH/test", "MATH/test.jsonl", "math/test.jsonl", "math/test"),
    "numglue": ("NumGLUE/NumGLUE_test.json", "NumGLUE_test.json", "numglue/test.jsonl"),
    "svamp": ("SVAMP.json", "SVAMP/SVAMP.json", "svamp/SVAMP.json", "svamp/test.json"),
    "deepmind": ("mathematics_dataset-v1.0/interpolate", "interpolate", "mathematics"),
    "simuleq": ("SimulEq.json", "simuleq/test.json", "simuleq/SimulEq.json", "simuleq/test.jsonl"),
}
_ANY = ("{name}.jsonl", "{name}.jsonl.zst", "{name}.json", "{name}/test.jsonl", "{name}/test.json")


def math_questions(dataset: str, data: Path) -> tuple[list[Question], str]:
    """The questions of one data set, and the name of the file or folder they were in."""
    shared = [data / part / name for part in ("", "math") for name in _ONE_SCHEMA]
    for place in [data] if data.is_file() else shared:
        if place.is_file():
            rows = json_lines(read_text(place), str(place))
            return _as_questions(dataset, rows, place, among_others=True), str(place)
    for name in (*_PLACES[dataset], *(each.format(name=dataset) for each in _ANY)):
        place = data / name
        if place.is_file():
            return _as_questions(dataset, _objects(place), place), str(place)
        for ending, read in (("json", _objects), ("txt", _line_pairs)):
            if files := sorted(place.rglob(f"*.{ending}")) if place.is_dir() else []:
                rows = [row for file in files for row in read(file)]
                return _as_questions(dataset, rows, place), str(place)
    raise InputFileError(
        f"{data}: no {_ONE_SCHEMA[0]} with the data set {dataset} here, nor its original files "
        f"({', '.join(_PLACES[dataset])}). Name the folder with --data."
    )


def _objects(path: Path) -> list[dict[str, Any]]:
    """A JSON list, one JSON object, or one object per line, whatever the file is called."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return json_lines(text, str(path))
    return content if isinstance(content, list) else [content]


def _line_pairs(path: Path) -> list[dict[str, Any]]:
    """DeepMind Mathematics as text: a line with a question, a line with its answer."""
    lines = [line for line in read_text(path).split("\n") if line.strip()]
    with reading(path, "pairs of lines, a question and its answer"):
        pairs = list(zip(lines[::2], lines[1::2], strict=True))
    return [{"question": question, "answer": answer} for question, answer in pairs]


def _as_questions(
    dataset: str, rows: list[dict[str, Any]], place: Path, *, among_others: bool = False
) -> list[Question]:
    read = _READERS.get(dataset, _plain)
    found = []
    with reading(place, f"the questions of {dataset}, each with its answer"):
        own = [row for row in rows if row["dataset"] == dataset] if among_others else rows
        for number, row in enumerate(own):
            # A converted file may have the plain columns in place of the original ones.
            plain = {"question", "answer"} <= row.keys() and dataset != "numglue"
            text, gold = (_plain if plain else read)(row)
            if not gold.strip():
                raise ValueError(f"no answer to {text[:60]!r}")
            found.append(Question(dataset, f"{dataset}-{number}", text.strip(), gold.strip()))
    return found


def _plain(row: dict[str, Any]) -> tuple[str, str]:
    answer = row["answer"]
    if isinstance(answer, list):
        answer = _several(answer)
    answer = str(answer).strip() if isinstance(answer, str | int | float) else ""
    if "####" in answer:  # GSM8K: the solution first, the number last
        answer = answer.rpartition("####")[2].replace(",", "")
    return str(row["question"]), answer


def _hendrycks(row: dict[str, Any]) -> tuple[str, str]:
    solution = str(row["solution"])
    return str(row["problem"]), row.get("answer") or last_boxed(solution)


def _svamp(row: dict[str, Any]) -> tuple[str, str]:
    body = str(row["Body"]).strip()
    between = " " if body.endswith((".", "?", "!", ",")) else ". "
    answer = row["Answer"]
    return f"{body}{between}{row['Question']}", _number(answer)


def _numglue(row: dict[str, Any]) -> tuple[str, str]:
    """Its eight kinds of question; what belongs to the question goes before it."""
    if row.get("statement1"):
        text = f"{row['statement1']}\n{row['statement2']}\n{row.get('options') or ''}"
    else:
        text = "\n".join(filter(None, (row.get("passage"), str(row["question"]))))
    answer = row["answer"]
    if row.get("option1"):
        text += f"\nAnswer Choices: (A) {row['option1']} (B) {row['option2']}"
        answer = {"option 1": "A", "option 2": "B"}.get(str(answer).strip().lower(), answer)
    if isinstance(answer, dict):
        date = (answer.get("date") or {}).values()
        answer = (
            answer.get("number")
            or ", ".join(answer.get("spans") or [])
            or " ".join(filter(None, date))
        )
    return text, _number(answer)


def _simuleq(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["sQuestion"]), _several(row["lSolutions"])


def _several(values: list[Any]) -> str:
    return ", ".join(map(_number, values))


def _number(value: Any) -> str:
    """A number as people write it: 3, not 3.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def last_boxed(solution: str) -> str:
    r"""The content of the last \boxed{…} of a worked solution, braces matched.

    >>> last_boxed(r"so $x = \boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    starts = list(re.finditer(r"\\(?:boxed|fbox)\s*(\{|(?=[^\s{]))", solution))
    if starts:
        start = starts[-1]
        if not start.group(1):  # \boxed 5
            return solution[start.end()]
        depth = 1
        for place in range(start.end(), len(solution)):
            depth += {"{": 1, "}": -1}.get(solution[place], 0)
            if depth == 0:
                return solution[start.end() : place]
    raise ValueError(f"no answer in \\boxed{{…}} in {solution[-60:]!r}")


_READERS: Mapping[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "math": _hendrycks,
    "svamp": _svamp,
    "numglue": _numglue,
    "simuleq": _simuleq,
}
