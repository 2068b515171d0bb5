"""From questions to judged items: ask, run programs, ask again, compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

from uniproto.errors import InvalidInputError
from uniproto.lm.judging.answers import extract_answer, program_answer, same_answer
from uniproto.lm.judging.answers.comparison import repeats_the_question
from uniproto.lm.judging.answers.helpers import UnreadableAnswerError, read_in_time
from uniproto.lm.judging.answers.programs import extract_program
from uniproto.lm.judging.benchmark_files import Question
from uniproto.lm.judging.sandbox import run_programs

RIGHT, WRONG = "right", "wrong"  # verdicts
BY_PROGRAM, BY_REASONING = "program", "reasoning"  # how a question was answered
BY_LIKELIHOOD, NOT_ANSWERED = "likelihood", "no answer"
Item = dict[str, Any]

PROGRAM_REQUEST = "Let's write a Python program to solve it."
_SHORTEST_STOP = 4


def stop_strings(template: str) -> list[str]:
    """Where an answer ends even without an end-of-text token: at the next question's heading.

    >>> stop_strings("### Instruction:\\n{instruction}\\n\\n### Response:\\n")
    ['### Instruction:']
    """
    lines = template.partition("{instruction}")[0].strip().splitlines()
    heading = lines[-1].strip() if lines else ""
    return [heading] if len(heading) >= _SHORTEST_STOP else []


@dataclass(frozen=True)
class Completion:
    """A completion of a prompt; `stopped` is "end", or "length" where the tokens ran out."""

    text: str
    stopped: str


@runtime_checkable
class AnsweringModel(Protocol):
    """The interface of models: a `LanguageModel`, or for example a wrapper of your own server."""

    name: str

    def generate(self, prompts: Sequence[str]) -> Sequence[Completion]:
        """What the model writes after each prompt."""
        ...

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> Sequence[Sequence[float]]:
        """The log-likelihood of each prompt's words."""
        ...


@dataclass(frozen=True)
class Session:
    """Asks a model and judges its answers. Tests pass a `run_programs` of their own."""

    model: AnsweringModel
    template: str
    program_seconds: float = 5.0
    trust: bool = False
    run_programs: Callable[..., Sequence[Any]] = run_programs

    def ask(self, questions: Sequence[Question]) -> list[Item]:
        """The judged items, in the order of the questions; `seconds` is each one's share."""
        began = perf_counter()
        with_words = [question for question in questions if question.words]
        free_text = [question for question in questions if not question.words]
        items = [*self._classify(with_words), *self._solve(free_text)]
        found = {item["id"]: item for item in items}
        seconds = (perf_counter() - began) / max(1, len(questions))
        return [{**found[question.id], "seconds": round(seconds, 4)} for question in questions]

    def _prompt(self, instruction: str) -> str:
        return self.template.replace("{instruction}", instruction)

    def _solve(self, questions: Sequence[Question]) -> list[Item]:
        """Ask for a program; where it prints no answer, or there is none, ask for an answer."""
        if not questions:
            return []
        prompts = [self._prompt(f"{each.text} {PROGRAM_REQUEST}") for each in questions]
        outputs = self.model.generate(prompts)
        items = [
            _new_item(question, prompt) | {"output": output.text, "stopped": output.stopped}
            for question, prompt, output in zip(questions, prompts, outputs, strict=True)
        ]
        for item in items:
            item["program"] = _read(item, extract_program, item["output"])
        self._run(items)
        again = [
            (question, item)
            for question, item in zip(questions, items, strict=True)
            if item["predicted"] is None
        ]
        prompts = [self._prompt(question.text) for question, _ in again]
        outputs = self.model.generate(prompts) if again else []
        for (_, item), prompt, output in zip(again, prompts, outputs, strict=True):
            item["program_prompt"], item["program_output"] = item["prompt"], item["output"]
            item["prompt"], item["output"], item["stopped"] = prompt, output.text, output.stopped
            item["predicted"] = _read(
                item,
                extract_answer,
                output.text,
                item["dataset"],
                item["question"],
                cut_off=output.stopped == "length",
            )
            item["how"] = NOT_ANSWERED if item["predicted"] is None else BY_REASONING
        for item in items:
            item["verdict"] = RIGHT if _is_right(item) else WRONG
        return items

    def _run(self, items: Sequence[Item]) -> None:
        """Fill in the result of each item's program."""
        with_program = [item for item in items if item["program"] is not None]
        results = self.run_programs(
            [item["program"] for item in with_program],
            timeout=self.program_seconds,
            trust=self.trust,
        )
        for item, result in zip(with_program, results, strict=True):
            item["program_status"], item["printed"] = result.status, result.output
            if result.status == "ok":
                item["predicted"] = _read(
                    item, program_answer, result.output, item["dataset"], item["question"]
                )
                item["how"] = BY_PROGRAM

    def _classify(self, questions: Sequence[Question]) -> list[Item]:
        """The label word that is likeliest; of equal ones, the first."""
        if not questions:
            return []
        prompts = [self._prompt(question.text) for question in questions]
        scores = self.model.label_scores(prompts, [question.words for question in questions])
        items = []
        for question, prompt, each in zip(questions, prompts, scores, strict=True):
            if not all(map(math.isfinite, each)):
                raise InvalidInputError(
                    f"The model gives {question.id} no finite log-likelihood ({list(each)}). Its "
                    "weights may be damaged, or too large for --bf16."
                )
            item = _new_item(question, prompt)
            item["scores"] = dict(zip(question.words, (round(s, 6) for s in each), strict=True))
            item["predicted"] = max(item["scores"], key=item["scores"].__getitem__)
            item["how"] = BY_LIKELIHOOD
            item["verdict"] = RIGHT if item["predicted"] == question.gold else WRONG
            items.append(item)
        return items


def _new_item(question: Question, prompt: str) -> Item:
    """The item of a question that is not answered yet."""
    unknown = ("output", "stopped", "program", "program_status", "printed", "predicted")
    return {
        "dataset": question.dataset,
        "id": question.id,
        "group": question.group,
        "question": question.text,
        "gold": question.gold,
        "prompt": prompt,
        **dict.fromkeys((*unknown, "unreadable")),
        "how": NOT_ANSWERED,
        "verdict": WRONG,
    }


def _read(item: Item, reader: Callable[..., str | None], *arguments: Any, **named: Any) -> Any:
    """What a reader finds; None if it takes too long, with the reason in the item."""
    try:
        return read_in_time(reader, *arguments, **named)
    except UnreadableAnswerError as error:
        item["unreadable"] = str(error)
        return None


def _is_right(item: Item) -> bool:
    predicted, gold = item["predicted"], item["gold"]
    if predicted is None or repeats_the_question(predicted, item["question"], gold):
        return False
    return same_answer(predicted, gold, item["dataset"])
