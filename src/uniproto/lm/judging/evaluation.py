"""The results of an evaluation: scores, a table and every item, in memory and in a folder."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.judging.benchmarks import (
    BENCHMARKS,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    OVERALL,
    SUPERGLUE,
    title_of,
)
from uniproto.lm.judging.session import BY_PROGRAM, BY_REASONING, NOT_ANSWERED, RIGHT, Item
from uniproto.report.page import page_file, render_page
from uniproto.report.words import aligned
from uniproto.runs.atomic import write_json, write_text, writing
from uniproto.runs.records import versions, without_infinity


def accuracy(right: Sequence[bool]) -> dict[str, float]:
    """The share of right answers, and its standard error, sqrt(p (1 − p) / n).

    >>> accuracy([True, True, True, False])
    {'accuracy': 0.75, 'error': 0.21650635094610965}
    """
    share = sum(right) / len(right)
    return {"accuracy": share, "error": math.sqrt(share * (1 - share) / len(right))}


def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The unweighted mean of the scores of several data sets.

    >>> mean([{"accuracy": 0.5, "error": 0.03}, {"accuracy": 0.7, "error": 0.04}])
    {'accuracy': 0.6, 'error': 0.025}
    """
    value = math.fsum(each["accuracy"] for each in scores) / len(scores)
    return {"accuracy": value, "error": math.hypot(*(e["error"] for e in scores)) / len(scores)}


def spread_text(score: Mapping[str, Any], width: int = 0) -> str:
    """± the standard error in per cent; where that is 0 and says nothing, Wilson's interval.

    >>> spread_text({"error": 0.021}), spread_text({"error": 0.0, "low": 0.0, "high": 0.49})
    ('± 2.1', '(0.0–49.0)')
    """
    if score["error"] == 0 and "low" in score:
        return f"({100 * score['low']:.1f}–{100 * score['high']:.1f})"
    return f"± {100 * score['error']:{width}.1f}"


SETTINGS, ITEMS = "evaluation.json", "items.jsonl"
SCORES, TABLE, TABLE_CSV, PAGE = "scores.json", "table.txt", "table.csv", "page.html"
RESULTS = (SCORES, TABLE, TABLE_CSV, PAGE)
_AVERAGES = {  # over the data sets of which parts
    IN_DOMAIN: (IN_DOMAIN,),
    OUT_OF_DOMAIN: (OUT_OF_DOMAIN,),
    OVERALL: (IN_DOMAIN, OUT_OF_DOMAIN),
    SUPERGLUE: (SUPERGLUE,),
}


@dataclass(frozen=True)
class Evaluation:
    """A model's answers to the questions of some data sets, judged.

    `notes` says of each data set what is unusual about its questions: limited, or incomplete.

    >>> item = {"dataset": "svamp", "id": "svamp-0", "verdict": "right", "how": "program"}
    >>> found = Evaluation("my-model", [item], {"svamp": "the first 1 of 1,000"})
    >>> found.scores["svamp"]["accuracy"], found.scores["svamp"]["by_program"]
    (1.0, 1)
    """

    model: str
    items: Sequence[Item]
    notes: Mapping[str, str]
    settings: Mapping[str, Any] | None = None

    @cached_property
    def scores(self) -> dict[str, dict[str, Any]]:
        """By data set, then the averages of those parts of the suites that are complete."""
        found = {}
        for name in BENCHMARKS:
            items = [item for item in self.items if item["dataset"] == name]
            if items:
                found[name] = _scores_of(name, items) | {"note": self.notes.get(name, "")}
        for name, parts in _AVERAGES.items():
            over = [each.name for each in BENCHMARKS.values() if each.part in parts]
            if all(each in found for each in over):
                found[name] = {**mean([found[each] for each in over]), "over": over}
        return found

    def columns(self) -> dict[str, list[str]]:
        """The scores by column: per cent, ± one standard error."""
        rows = [_cells(name, self.scores[name]) for name in self.order]
        columns = {title: [row[title] for row in rows] for title in rows[0]}
        return {title: cells for title, cells in columns.items() if any(map(str.strip, cells))}

    def table(self) -> str:
        """The columns as text, with notes about what is unusual."""
        notes = [f"  {BENCHMARKS[name].title}: {note}" for name, note in self.notes.items() if note]
        text = f"model {self.model}\n\n{aligned(self.columns())}\n\n± is one standard error."
        if any(each["error"] == 0 for each in self.scores.values()):
            text += " In brackets: the 95 % interval (Wilson), where none or all are right."
        if notes:
            text += "\nNot the complete published data sets:\n" + "\n".join(notes)
        return text

    def save(self, folder: str | Path) -> Path:
        """Write scores.json, table.txt, table.csv and page.html."""
        folder = Path(folder)
        table = io.StringIO()
        titles = ["name", *dict.fromkeys(key for each in self.scores.values() for key in each)]
        writer = csv.DictWriter(table, titles, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {"name": name, **each, **({"over": " ".join(each["over"])} if "over" in each else {})}
            for name, each in self.scores.items()
        )
        record = {
            "model": self.model,
            "scores": self.scores,
            "notes": dict(self.notes),
            "settings": self.settings,
            "versions": versions(),
        }
        with writing(folder):
            write_text(folder / TABLE, self.table() + "\n")
            write_text(folder / TABLE_CSV, table.getvalue())
            write_text(folder / PAGE, render(self))
            write_json(
                folder / SCORES, without_infinity(record)
            )  # last: it marks the results as complete
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Evaluation:
        """A finished evaluation, from the folder it was written to."""
        folder = Path(folder)
        try:
            record = json.loads((folder / SCORES).read_text(encoding="utf-8"))
            lines = (folder / ITEMS).read_text(encoding="utf-8").split("\n")
            items = {item["id"]: item for item in map(json.loads, filter(None, lines))}
            return cls(record["model"], list(items.values()), record["notes"], record["settings"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputFileError(
                f"{folder}: no finished evaluation here ({error}). Run the same `uniproto "
                "evaluate` again: it goes on where it stopped."
            ) from error

    @property
    def order(self) -> list[str]:
        """The scores as in the paper's tables: each part's data sets, then its average."""
        order: list[str] = []
        for part in _AVERAGES:
            order += [each.name for each in BENCHMARKS.values() if each.part == part]
            order.append(part)
        return [name for name in order if name in self.scores]


def _scores_of(name: str, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from scipy.stats import binomtest
    from sklearn.metrics import f1_score

    right = [item["verdict"] == RIGHT for item in items]
    low, high = binomtest(sum(right), len(right)).proportion_ci(method="wilson")
    found: dict[str, Any] = {
        **accuracy(right),
        "low": low,
        "high": high,
        "questions": len(items),
        "right": sum(right),
    }
    if BENCHMARKS[name].is_math:
        ways = [item["how"] for item in items]
        found["by_program"] = ways.count(BY_PROGRAM)
        found["by_reasoning"] = ways.count(BY_REASONING)
        found["no_answer"] = ways.count(NOT_ANSWERED)
        found["cut_off"] = sum(item.get("stopped") == "length" for item in items)
    if name in ("cb", "multirc"):  # the mean over classes; of MultiRC that of the right answers
        given, gold = ([item[key] for item in items] for key in ("predicted", "gold"))
        classes = ["yes"] if name == "multirc" else None
        found["f1"] = f1_score(gold, given, labels=classes, average="macro", zero_division=0.0)
    if name == "multirc":
        groups: dict[str, bool] = {}  # the questions: every answer of one must be judged rightly
        for item, ok in zip(items, right, strict=True):
            groups[item["group"]] = groups.get(item["group"], True) and ok
        found["exact_match"], found["exact_match_error"] = accuracy(list(groups.values())).values()
    return found


def _cells(name: str, scores: Mapping[str, Any]) -> dict[str, str]:
    def share(key: str) -> str:
        return f"{100 * scores[key]:.1f}" if key in scores else ""

    def count(key: str) -> str:
        return f"{scores[key]:,}" if key in scores else ""

    return {
        "%": title_of(name),
        "questions": count("questions"),
        "accuracy": _with_error(scores, width=4),
        "F1": share("f1"),
        "exact match": share("exact_match"),
        "by program": count("by_program"),
        "by reasoning": count("by_reasoning"),
        "no answer": count("no_answer"),
        "cut off": count("cut_off"),
    }


def side_by_side(evaluations: Mapping[str, Evaluation]) -> str:
    """Accuracy in per cent, ± one standard error: a row per model, a column per data set.

    >>> def judged(verdict):
    ...     items = [{"dataset": "svamp", "id": "svamp-0", "verdict": verdict, "how": "program"}]
    ...     return Evaluation("model", items, {})
    >>> print(side_by_side({"before": judged("wrong"), "after": judged("right")}))
    %                   SVAMP
    before    0.0 (0.0–79.3)
    after   100.0 (20.7–100.0)
    """
    orders = {name: each.order for name, each in evaluations.items()}
    order = next(iter(orders.values()))
    for name, each in orders.items():
        if each != order:
            raise InvalidInputError(
                f"evaluations must have the same data sets ({', '.join(order)}), not "
                f"{', '.join(each)} as {name!r}."
            )
    columns = {"%": list(evaluations)}
    for column in order:
        columns[title_of(column)] = [
            _with_error(each.scores[column]) for each in evaluations.values()
        ]
    found = [note for each in evaluations.values() for note in each.notes.items() if note[1]]
    notes = [f"{title_of(name)}: {note}" for name, note in dict.fromkeys(found)]
    return "\n".join([aligned(columns), *notes])


def _with_error(score: Mapping[str, Any], width: int = 0) -> str:
    return f"{100 * score['accuracy']:.1f} {spread_text(score, width)}".rstrip()


# --- every judged item in one HTML file -----------------------------------------------------------


_LONGEST = 6000  # letters of one text on the page; items.jsonl has all of it
_SHOWN = ("id", "question", "gold", "predicted", "verdict", "how", "stopped", "scores")
_TEXTS = ("output", "program", "program_status", "printed", "program_output", "unreadable")


def render(found: Evaluation) -> str:
    """The page of an evaluation. What models wrote reaches it as compressed data, shown as text."""
    package = "uniproto.lm.judging"
    headline, averages = _headline(found.scores)
    settings, table = found.settings or {}, found.columns()
    return render_page(
        package,
        "page.html.j2",
        style=page_file("style.css") + page_file("page.css", package),
        script=page_file("page.js", package),
        model=found.model,
        headline=headline,
        averages=averages,
        table=list(table),
        rows=list(zip(*table.values(), strict=True)),
        notes=[f"{BENCHMARKS[name].title}: {note}" for name, note in found.notes.items()],
        template=settings.get("template"),
        trusted=settings.get("contained") is False,
        count=len(found.items),
        data=packed(page_items(found.items)),
    )


def page_items(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The values of each item that the page shows; empty ones are omitted.

    >>> item = {"dataset": "cb", "id": "cb-0", "verdict": "right", "printed": None}
    >>> page_items([item])
    [{'dataset': 'CB', 'id': 'cb-0', 'verdict': 'right'}]
    """
    found = []
    for item in items:
        shown = {"dataset": BENCHMARKS[item["dataset"]].title}
        for name in (*_SHOWN, *_TEXTS):
            value = item.get(name)
            if value not in (None, ""):
                shown[name] = _clipped(value) if isinstance(value, str) else value
        found.append(shown)
    return found


def packed(value: Any) -> str:
    """JSON, compressed, in characters without a meaning in HTML.

    Half a surrogate pair becomes an escape, which JSON can hold and UTF-8 cannot.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    raw = gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
    return base64.b64encode(raw).decode("ascii")


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    more = len(text) - _LONGEST
    return f"{text[:_LONGEST]}\n… and {more:,} letters more, which are in items.jsonl"


def _headline(scores: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[tuple[str, str, str]]]:
    tiles = [
        (
            title_of(name).capitalize(),
            f"{100 * scores[name]['accuracy']:.1f} %",
            spread_text(scores[name]),
        )
        for name in (OVERALL, IN_DOMAIN, OUT_OF_DOMAIN, SUPERGLUE)
        if name in scores
    ]
    if tiles:
        return f"{tiles[0][1]} right on average", tiles
    data = [name for name in scores if name in BENCHMARKS]
    right, count = (sum(scores[name][key] for name in data) for key in ("right", "questions"))
    return f"{right:,} of {count:,} right", []
