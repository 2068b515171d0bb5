"""`evaluate`: judge a model by a suite of benchmarks, and write the results to a folder.

OUT/evaluation.json records the model and the settings, and OUT/items.jsonl holds one line per
answered question. The same evaluation goes on where it stopped; another one is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    needing,
    require_int,
    require_name,
    require_seconds,
)
from uniproto.lm.features.language import CHAT, TEMPLATE, require_template
from uniproto.lm.judging import EvaluateSettings
from uniproto.lm.judging.benchmark_files import Question
from uniproto.lm.judging.benchmarks import BENCHMARKS, DataSet, digest, read_questions
from uniproto.lm.judging.evaluation import ITEMS, RESULTS, SETTINGS, Evaluation
from uniproto.lm.judging.sandbox import containment, run_program
from uniproto.lm.judging.session import AnsweringModel, Session, stop_strings
from uniproto.report.words import counted
from uniproto.runs.atomic import write_json, writing
from uniproto.runs.folder import read_record, require_run_folder, require_same
from uniproto.runs.journal import Journal
from uniproto.runs.lock import locked
from uniproto.runtime.progress import Progress

# Batches of questions asked together: enough for full batches in the second round, and for long
# answers to be finished together. It is also what a kill loses at most.
_BATCHES_TOGETHER = 4
_OUR_MARK = "questions_sha256"  # a setting that every evaluation.json of ours has


def evaluate(
    model: Any,
    *,
    data: str | Path,
    out: str | Path,
    progress: bool | None = None,
    log: Callable[[str], None] | None = None,
    **settings: Any,
) -> Evaluation:
    """Ask a model every question of a suite, judge its answers, and write all of it to `out`.

    `model` is what `uniproto finetune` wrote, a folder of weights or of an adapter, a .gguf file, a
    name on the hub, or an `AnsweringModel` of your own. Called again with the same
    arguments, it goes on where it stopped. `log` gets a line now and then (default: standard
    error); `progress` is as for `uniproto.select`; `settings` are those of `EvaluateSettings`.

    >>> evaluate("run", suite="gms8k", data=".", out="judged")
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: 'suite' must be one of cb, deepmind, gsm8k, math, multirc, \
numglue, simuleq, sst2, superglue, svamp. Got 'gms8k' instead. Did you mean 'gsm8k'?
    """
    asked = EvaluateSettings(data=str(data), out=str(out), **settings)
    require_int("batch_size", asked.batch_size)
    require_int("max_new_tokens", asked.max_new_tokens)
    require_name("device", asked.device, ("auto", "cpu"))
    require_seconds("program_seconds", asked.program_seconds)
    log = log or partial(print, file=sys.stderr)
    folder = Path(out)
    datasets = read_questions(
        asked.suite, data, limit=asked.limit, allow_partial=asked.allow_partial
    )
    subject = _subject(model, asked.base)
    inputs = map(str, [data, *subject.files])
    require_run_folder(folder, SETTINGS, (ITEMS, *RESULTS), inputs)
    template = asked.template or subject.template or TEMPLATE
    if template == CHAT:
        if subject.chat_prompt is None:
            raise InvalidInputError(
                "must hold {instruction} for a model that is loaded already. Write out "
                "its chat template.",
                parameter="template",
            )
        template = subject.chat_prompt()
    require_template("template", template)
    writes_programs = any(BENCHMARKS[name].is_math for name in datasets)
    if writes_programs:
        run_program("pass", timeout=30.0, trust=asked.trust_generated_code)  # or say now why not
    recorded = {
        **subject.identity(),
        "template": template,
        "datasets": list(datasets),
        _OUR_MARK: digest(datasets),
        "limit": asked.limit,
        "max_new_tokens": asked.max_new_tokens,
        "program_seconds": asked.program_seconds,
        "contained": containment() is not None if writes_programs else None,
        "bf16": asked.bf16,
    }
    questions = [question for each in datasets.values() for question in each.questions]
    with _open_answers(folder, recorded, fresh=asked.fresh) as journal:
        try:
            done = {item["id"] for item in journal.entries}
        except (KeyError, TypeError) as error:
            raise journal.damaged(error) from error
        for line in _counts(datasets, done):
            log(line)
        if waiting := [question for question in questions if question.id not in done]:
            for name in RESULTS:  # of an earlier run
                (folder / name).unlink(missing_ok=True)
            answering = subject.load(
                bf16=asked.bf16,
                device=asked.device,
                batch_size=asked.batch_size,
                max_new_tokens=asked.max_new_tokens,
                stops=stop_strings(template),
                log=log,
            )
            session = Session(
                answering, template, asked.program_seconds, asked.trust_generated_code
            )
            together = asked.batch_size * _BATCHES_TOGETHER
            _ask_all(session, waiting, journal, together, Progress(progress))
        items = {item["id"]: item for item in journal.entries}
        evaluation = Evaluation(
            subject.name,
            [items[question.id] for question in questions],
            {name: note for name, each in datasets.items() if (note := each.note())},
            recorded,
        )
        evaluation.save(folder)
    return evaluation


def _counts(datasets: Mapping[str, DataSet], answered: Collection[str]) -> list[str]:
    """A line per data set: how many questions, and how many of them are answered."""
    lines = []
    for name, each in datasets.items():
        done = sum(question.id in answered for question in each.questions)
        line = f"{BENCHMARKS[name].title}: {counted(len(each.questions), 'question')}"
        line += f" ({each.note()})" if each.note() else ""
        lines.append(line + (f", {done:,} answered before" if done else ""))
    return lines


def _ask_all(
    session: Session,
    questions: Sequence[Question],
    journal: Journal,
    together: int,
    progress: Progress,
) -> None:
    # Longest first: a memory that is too small shows at once, and the work gets faster, not
    # slower, than the time left that is shown.
    waiting = sorted(questions, key=lambda question: (-len(question.text), question.id))
    with progress.stage("asking", len(waiting)) as advance:
        for first in range(0, len(waiting), together):
            some = waiting[first : first + together]
            journal.append(*session.ask(some))  # on the disk when this returns
            advance(len(some))


@contextmanager
def _open_answers(folder: Path, settings: Mapping[str, Any], *, fresh: bool) -> Iterator[Journal]:
    """Lock the folder, and read what an evaluation of the same settings has answered."""
    path = folder / SETTINGS
    with locked(folder, "an evaluation"):
        earlier = read_record(path) if path.exists() else {}
        if path.exists() and _OUR_MARK not in earlier:
            raise InputFileError(f"{path} is of another program. Choose another folder with --out.")
        if not earlier:  # first of all: from now on the folder is ours
            with writing(folder):
                write_json(path, settings)
        with Journal(folder / ITEMS, "the answers", fresh=fresh) as journal:
            if journal.entries:
                require_same(earlier, settings, folder, "answers of the same evaluation")
            else:
                with writing(folder):
                    write_json(path, settings)
            yield journal


@dataclass(frozen=True)
class _Subject:
    """The model that is judged: its name, its identity, and how it is loaded."""

    name: str
    identity: Callable[[], dict[str, Any]]
    load: Callable[..., AnsweringModel]
    template: str | None = None
    files: Sequence[str | Path] = ()
    chat_prompt: Callable[[], str] | None = None  # its chat template, with a place for the question


def _subject(model: Any, base: str | None) -> _Subject:
    """A model that the caller has loaded, or one on the disk, loaded when something is asked."""
    if not isinstance(model, str | Path):
        name = str(model.name)
        return _Subject(name, lambda: {"model": name}, load=lambda **_: model)
    # Now, not when it is needed: a missing extra is reported before anything is written.
    with needing("Judging a model", "judge"):
        from uniproto.lm.features.tokens import chat_prompt
        from uniproto.lm.finetune.folder import locate
        from uniproto.lm.judging.language_model import load_language_model
        from uniproto.lm.models import load_tokenizer

    place = locate(model, base)
    return _Subject(
        str(model),
        lambda: {
            "model": place.base,
            "adapter": None if place.adapter is None else str(place.adapter),
            "weights": place.fingerprint(),  # every file of it is read, unless it is known
        },
        partial(load_language_model, place),
        place.template,
        [model, place.base],
        lambda: chat_prompt(load_tokenizer(place.base)),
    )
