"""Examples for a language model, and the columns of a table that form them.

`curate`, `embed`, `finetune` and the functions of `uniproto.lm` read the same columns: `messages`,
`instruction` (with `input`) and `output`, `prompt` and `completion`, `question` and `answer`, or
`text`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from uniproto.errors import InputFileError, InvalidInputError, asking

MESSAGES, TEXT = "messages", "text"
FURTHER = "input"  # the context of an instruction, as in the Alpaca data
_PAIRS = (("instruction", "output"), ("prompt", "completion"), ("question", "answer"))


def usual_columns(present: Sequence[str], like: Sequence[str] = ()) -> tuple[str, ...]:
    """The default columns of an example; empty if no column has a usual name.

    Those of other rows (`like`) come first. With an `instruction`, `input` belongs to the prompt.

    >>> usual_columns(["source", "instruction", "output"]), usual_columns(["messages", "source"])
    (('instruction', 'output'), ('messages',))
    >>> usual_columns(["instruction", "input", "output"]), usual_columns(["a", "b"])
    (('instruction', 'input', 'output'), ())
    >>> usual_columns(["messages", "question", "answer"], like=["question", "answer"])
    ('question', 'answer')
    """
    usual = (tuple(like), (MESSAGES,), *_PAIRS, (TEXT,))
    named = next((each for each in usual if each and set(each) <= set(present)), ())
    return _with_further(named, present)


def example_columns(
    present: Sequence[str],
    prompt: str | None = None,
    answer: str | None = None,
    messages: str | None = None,
    *,
    like: Sequence[str] = (),
    where: str = "the rows",
) -> tuple[str, ...]:
    """The columns of an example: prompt and answer, messages, or one text.

    >>> example_columns(["q", "a", "text"], "q", "a"), example_columns(["q", "a", "text"])
    (('q', 'a'), ('text',))
    """
    if messages is not None and (prompt is not None or answer is not None):
        raise InvalidInputError("Name 'messages', or 'prompt' and 'answer', not both.")
    named: tuple[str, ...]
    if messages is not None:
        named = (messages,)
    elif prompt is not None or answer is not None:
        named = (prompt or _PAIRS[0][0], answer or _PAIRS[0][1])
        if named[0] == named[1]:
            raise InvalidInputError("must be another column than 'prompt'.", parameter="answer")
    else:
        named = usual_columns(present, like)
    missing = [name for name in named if name not in present]
    if missing or not named:
        raise InputFileError(
            f"{where}: the examples have no {' and no '.join(missing) or 'prompt and answer'} "
            f"among their columns ({', '.join(map(str, present))}). Name them: "
            f"{asking('prompt=', 'prompt')} and {asking('answer=', 'answer')}, or "
            f"{asking('messages=', 'messages')}."
        )
    return _with_further(named, present)


def _with_further(named: tuple[str, ...], present: Sequence[str]) -> tuple[str, ...]:
    goes_on = len(named) == 2 and named[0] == _PAIRS[0][0] and named[1] != FURTHER
    return (named[0], FURTHER, named[1]) if goes_on and FURTHER in present else named


def example_of(values: Sequence[Any]) -> Any:
    """The values of an example's columns as the example: (prompt, answer), messages, or a text.

    >>> example_of(["Translate.", "Guten Tag", "Hello"]), example_of(["a text"])
    (('Translate.\\n\\nGuten Tag', 'Hello'), 'a text')
    """
    if len(values) == 1:
        return without_gaps(values[0])
    prompt, *further, answer = values
    if isinstance(prompt, str) and further and isinstance(further[0], str) and further[0].strip():
        prompt = f"{prompt}\n\n{further[0]}"
    return prompt, answer


def without_gaps(value: Any) -> Any:
    """A conversation without the fields that only other rows of its Arrow table have.

    Other values are unchanged.

    >>> without_gaps([{"tool_calls": [{"name": "add", "arguments": {"a": 1, "city": None}}]}])
    [{'tool_calls': [{'name': 'add', 'arguments': {'a': 1}}]}]
    """
    return _filled(value) if isinstance(value, list) else value


def _filled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(each) for name, each in value.items() if each is not None}
    return list(map(_filled, value)) if isinstance(value, list) else value


def as_example(row: Any, columns: Sequence[str] | None = None) -> Any:
    """A row as an example: (prompt, answer), messages, or a text.

    >>> as_example({"instruction": "1 + 1?", "output": "2"}), as_example("a text")
    (('1 + 1?', '2'), 'a text')
    """
    if not isinstance(row, Mapping):
        return tuple(row) if isinstance(row, list) and row and isinstance(row[0], str) else row
    return example_of([row.get(name) for name in (columns or example_columns(list(row)))])


def as_text(example: Any) -> Any:
    """The text of an example, with its tool calls, for a sentence model; other values unchanged.

    >>> as_text([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}])
    'Hi\\n\\nYes?'
    >>> as_text(("1 + 1?", "2")), as_text(("1 + 1?", None))
    ('1 + 1?\\n\\n2', None)
    """
    if isinstance(example, tuple):
        missing = [part for part in example if not isinstance(part, str)]
        return missing[0] if missing else "\n\n".join(example)
    if not isinstance(example, list):
        return example
    turns = [each for each in example if isinstance(each, Mapping)]
    parts = [part for each in turns for part in (each.get("content"), *_calls(each))]
    return "\n\n".join(str(part) for part in parts if part)


def _calls(message: Mapping[str, Any]) -> list[str]:
    """The tools that a message calls, each with its arguments."""
    calls = [call.get("function") or call for call in message.get("tool_calls") or ()]
    return [json.dumps([call.get("name"), call.get("arguments")], default=str) for call in calls]


def is_plain_text(columns: Sequence[str] | None) -> bool:
    """Whether examples of these columns are plain texts, without a prompt.

    `curate` compares such texts by hidden states by default: in every draw of the study
    in docs/curation-results.md the rows they chose trained better than those of gradients.

    >>> is_plain_text(["text"]), is_plain_text(["instruction", "output"])
    (True, False)
    """
    return list(columns or ()) == [TEXT]
