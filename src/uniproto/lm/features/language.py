"""How a language model looks at examples: what is computed of them, and how they are put to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from uniproto.errors import InputFileError, invalid, require_int, require_name

KINDS = ("value", "lora", "hidden")
# The prompt that 'uniproto finetune' trains with.
TEMPLATE = (
    "Below is an instruction that describes a task. Write a response that answers it.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
CHAT = "chat"  # as a template: the one of the model's tokenizer
_PAIRS = (("instruction", "output"), ("prompt", "completion"), ("question", "answer"))
FURTHER = "input"  # beside an instruction: what it is about, as in the data of Alpaca
MESSAGES, TEXT = "messages", "text"


@dataclass(frozen=True)
class LanguageFeatures:
    """What a language model makes of an example.

    `kind` is `value` (the gradient by the value projection of the last block), `lora` (the
    gradient by all LoRA layers, as LESS takes it) or `hidden` (the mean of the last hidden states).
    """

    kind: str = "value"
    adapter: str | None = None  # a folder that peft has written
    adam: bool = False  # gradients as steps of Adam, by the moments in the adapter's folder
    layer: str | None = None
    width: int = 1024
    template: str = TEMPLATE
    max_length: int = 512
    bf16: bool = False

    def __post_init__(self) -> None:
        require_name("kind", self.kind, KINDS)
        require_int("width", self.width, too_small="1024 is usual.")
        require_int("max_length", self.max_length, 2, too_small="512 is usual.")
        if self.template != CHAT and "{instruction}" not in self.template:
            raise invalid(
                "template",
                f"must hold {{instruction}}, or be {CHAT!r}",
                repr(self.template),
                "Say where the prompt goes.",
            )
        if self.kind != "value" and self.layer is not None:
            raise invalid(
                "layer",
                "is the layer whose gradient is taken instead of the value projection's",
                f"{self.layer!r} for {self.kind} features",
                "Leave it out.",
            )
        if self.kind == "lora" and self.adapter is None:
            raise invalid(
                "adapter",
                "must be given for the gradients of LoRA layers",
                "None",
                "Train one on a few examples with 'uniproto finetune', and name its folder.",
            )
        if self.adam and self.kind != "lora":
            raise invalid("adam", "needs the gradients of LoRA layers", self.kind, "Use 'lora'.")

    def described(self) -> str:
        """Everything but the adapter's weights that vectors depend on."""
        return repr(
            sorted((name, value) for name, value in asdict(self).items() if name != "adapter")
        )


def example_columns(
    present: Sequence[str],
    prompt: str | None = None,
    answer: str | None = None,
    messages: str | None = None,
    *,
    like: Sequence[str] = (),
    where: str = "the rows",
) -> tuple[str, ...]:
    """The columns an example is made of: prompt and answer, messages, or one text.

    Where none is named, they are those of other rows (`like`), or else those with the usual names.
    Beside an `instruction`, a column `input` belongs to the prompt.

    >>> example_columns(["source", "instruction", "output"])
    ('instruction', 'output')
    >>> example_columns(["instruction", "input", "output"])
    ('instruction', 'input', 'output')
    >>> example_columns(["messages", "source"])
    ('messages',)
    >>> example_columns(["messages", "question", "answer"], like=["question", "answer"])
    ('question', 'answer')
    """
    if messages is not None and (prompt is not None or answer is not None):
        raise invalid(
            "messages", "excludes 'prompt' and 'answer'", repr(messages), "Drop one of the two."
        )
    named: tuple[str, ...]
    if prompt is not None or answer is not None:
        named = (prompt or _PAIRS[0][0], answer or _PAIRS[0][1])
        if named[0] == named[1]:
            raise invalid(
                "answer", "must be another column than 'prompt'", repr(named[1]), "Name both."
            )
    elif messages is not None:
        named = (messages,)
    else:
        usual = (tuple(like), (MESSAGES,), *_PAIRS, (TEXT,))
        named = next((each for each in usual if each and set(each) <= set(present)), ())
    missing = [name for name in named if name not in present]
    if missing or not named:
        raise InputFileError(
            f"{where}: the examples must have a prompt and an answer. Got the columns "
            f"{', '.join(map(str, present)) or 'none'} instead"
            f"{', without ' + ', '.join(missing) if missing else ''}. Name them: --prompt and "
            "--answer, or --messages (in Python prompt=, answer=, messages=)."
        )
    if len(named) == 2 and has_further(present, *named):
        return named[0], FURTHER, named[1]
    return named


def has_further(present: Iterable[str], prompt: str, answer: str) -> bool:
    """Whether the prompt goes on in a column of its own.

    >>> has_further(["instruction", "input", "output"], "instruction", "output")
    True
    """
    return prompt == _PAIRS[0][0] and answer != FURTHER and FURTHER in present


def whole_prompt(prompt: Any, further: Any) -> Any:
    """A prompt and what it is about, where there is something.

    >>> whole_prompt("Translate.", "Guten Tag"), whole_prompt("Say hello.", "")
    ('Translate.\\n\\nGuten Tag', 'Say hello.')
    """
    if isinstance(prompt, str) and isinstance(further, str) and further.strip():
        return f"{prompt}\n\n{further}"
    return prompt


def example_of(values: Sequence[Any]) -> Any:
    """The values of an example's columns as the example: (prompt, answer), messages, or a text.

    >>> example_of(["Translate.", "Guten Tag", "Hello"]), example_of(["a text"])
    (('Translate.\\n\\nGuten Tag', 'Hello'), 'a text')
    """
    if len(values) == 1:
        return values[0]
    return whole_prompt(values[0], values[1] if len(values) > 2 else None), values[-1]


def is_plain_text(columns: Sequence[str] | None) -> bool:
    """Whether examples of these columns are plain texts, without a prompt.

    `curate` compares such texts by hidden states unless told otherwise: in every draw of the study
    in docs/curation-results.md the rows they chose trained better than those of gradients.

    >>> is_plain_text(["text"]), is_plain_text(["instruction", "output"])
    (True, False)
    """
    return list(columns or ()) == [TEXT]


def as_example(row: Any, columns: Sequence[str] | None = None) -> Any:
    """A row as an example: (prompt, answer), messages, or a text.

    >>> as_example({"instruction": "1 + 1?", "output": "2"}), as_example("a text")
    (('1 + 1?', '2'), 'a text')
    """
    if not isinstance(row, Mapping):
        return tuple(row) if isinstance(row, list) and row and isinstance(row[0], str) else row
    return example_of([row.get(name) for name in (columns or example_columns(list(row)))])
