"""The front door: a model and a suite in, an `Evaluation` and its files out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from uniproto.errors import invalid, require_int, require_name
from uniproto.judging.asking import AnsweringModel, Asking, fill, stop_strings
from uniproto.judging.benchmarks import BENCHMARKS, Question
from uniproto.judging.evaluation import RESULTS, Evaluation
from uniproto.judging.items import Items
from uniproto.judging.questions import DataSet, digest, read_questions
from uniproto.judging.sandbox import LONGEST, containment, run_program
from uniproto.judging.settings import EvaluateSettings
from uniproto.report.words import counted
from uniproto.runtime.progress import Progress

# Questions asked together, in batches: full batches for the second asking, and long answers
# finished together. It is also what a kill loses at most.
_BATCHES_TOGETHER = 4


def evaluate(
    model: Any,
    *,
    suite: str | Sequence[str] = EvaluateSettings.suite,
    data: str | Path,
    out: str | Path,
    template: str | None = EvaluateSettings.template,
    base: str | None = EvaluateSettings.base,
    batch_size: int = EvaluateSettings.batch_size,
    limit: int | None = EvaluateSettings.limit,
    max_new_tokens: int = EvaluateSettings.max_new_tokens,
    program_seconds: float = EvaluateSettings.program_seconds,
    trust_generated_code: bool = EvaluateSettings.trust_generated_code,
    allow_partial: bool = EvaluateSettings.allow_partial,
    bf16: bool = EvaluateSettings.bf16,
    device: str = EvaluateSettings.device,
    fresh: bool = EvaluateSettings.fresh,
    progress: bool | None = None,
    tell: Callable[[str], None] | None = None,
) -> Evaluation:
    """Ask a model every question of a suite, judge its answers, and write all of it to `out`.

    `model` is what `uniproto finetune` wrote, a folder of weights or of an adapter, a .gguf file, a
    name on the hub, or an `AnsweringModel` of your own. Called again with the same
    arguments, it goes on where it stopped. `tell` gets a line now and then (default: standard
    error); `progress` is as for `uniproto.select`.

    >>> evaluate("run", suite="gms8k", data=".", out="judged")
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: 'suite' must be one of cb, deepmind, gsm8k, math, multirc, \
numglue, simuleq, sst2, superglue, svamp. Got 'gms8k' instead. Did you mean 'gsm8k'?
    """
    require_int("batch_size", batch_size)
    require_int("max_new_tokens", max_new_tokens)
    if limit is not None:
        require_int("limit", limit)
    if not (isinstance(program_seconds, int | float) and 0 < program_seconds <= LONGEST):
        raise invalid(
            "program_seconds",
            f"must be above 0 and at most {LONGEST}",
            repr(program_seconds),
            "5 is usual.",
        )
    require_name("device", device, ("auto", "cpu"))
    tell = tell or partial(print, file=sys.stderr)
    datasets = read_questions(suite, data, limit=limit, allow_partial=allow_partial)
    writes_programs = any(BENCHMARKS[name].is_math for name in datasets)
    if writes_programs:
        run_program("pass", timeout=30.0, trust=trust_generated_code)  # or say now why not
    judged: _JudgedModel = (
        _ModelOnDisk(model, base) if isinstance(model, str | Path) else _LoadedModel(model)
    )
    template = template or judged.template or _default_template()
    fill(template, "")  # a template without a place for the question is told before any work
    settings = {
        **judged.identity,
        "template": template,
        "datasets": list(datasets),
        "questions_sha256": digest(datasets),
        "limit": limit,
        "max_new_tokens": max_new_tokens,
        "program_seconds": program_seconds,
        "contained": containment() is not None if writes_programs else None,
        "bf16": bf16,
    }
    items = Items(Path(out), settings, fresh)
    questions = [question for each in datasets.values() for question in each.questions]
    for line in counts(datasets, items):
        tell(line)
    if len(items) < len(questions):
        for name in RESULTS:  # of an earlier run: they do not speak of this one
            (Path(out) / name).unlink(missing_ok=True)
        answering = judged.load(
            bf16=bf16,
            device=device,
            batch_size=batch_size,
            max_new_tokens=max_new_tokens,
            stops=stop_strings(template),
            tell=tell,
        )
        asking = Asking(answering, template, program_seconds, trust_generated_code)
        _ask_all(asking, questions, items, batch_size * _BATCHES_TOGETHER, Progress(progress))
    evaluation = Evaluation(
        judged.name,
        items.in_order_of(question.id for question in questions),
        {name: note for name, each in datasets.items() if (note := each.note())},
        settings,
    )
    evaluation.save(out)
    return evaluation


def counts(datasets: Mapping[str, DataSet], items: Items) -> list[str]:
    """What is about to be asked, in words."""
    lines = []
    for name, each in datasets.items():
        done = sum(question.id in items for question in each.questions)
        line = f"{BENCHMARKS[name].title}: {counted(len(each.questions), 'question')}"
        line += f" ({each.note()})" if each.note() else ""
        lines.append(line + (f", {done:,} answered before" if done else ""))
    return lines


def _ask_all(
    asking: Asking, questions: Sequence[Question], items: Items, together: int, progress: Progress
) -> None:
    # Longest first: a memory that is too small shows at once, and the work gets faster, not
    # slower, than the time left that is shown.
    waiting = sorted(questions, key=lambda question: (-len(question.text), question.id))
    waiting = [question for question in waiting if question.id not in items]
    with progress.stage("asking", len(waiting)) as advance:
        for first in range(0, len(waiting), together):
            some = waiting[first : first + together]
            items.add(asking.items(some))
            advance(len(some))


class _LoadedModel:
    """A model that the caller brought along."""

    template: str | None = None

    def __init__(self, model: Any) -> None:
        if not isinstance(model, AnsweringModel):
            raise invalid(
                "model",
                "must be a path, a name, or an object with name, generate and label_scores",
                type(model).__name__,
                "Wrap a loaded model: uniproto.judging.language_model.LanguageModel.",
            )
        self.model, self.name = model, str(model.name)
        self.identity: dict[str, Any] = {"model": self.name}

    def load(self, **_: Any) -> AnsweringModel:
        return self.model


class _ModelOnDisk:
    """A model that is loaded when there is something left to ask."""

    def __init__(self, model: str | Path, base: str | None) -> None:
        # Now, not when it is needed: a missing extra is told before anything is written.
        from uniproto.judging.language_model import load_language_model
        from uniproto.judging.model_files import locate

        self._load = load_language_model
        self.place, self.name = locate(model, base), str(model)
        self.template = self.place.template
        self.identity = {
            "model": self.place.base,
            "adapter": None if self.place.adapter is None else str(self.place.adapter),
            "weights": self.place.fingerprint(),
        }

    def load(self, **options: Any) -> AnsweringModel:
        return self._load(self.place, **options)


_JudgedModel = _LoadedModel | _ModelOnDisk


def _default_template() -> str:
    from uniproto.training.finetune.settings import TEMPLATE

    return TEMPLATE
