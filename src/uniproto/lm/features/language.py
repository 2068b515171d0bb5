"""Which features a language model computes for examples, and how their prompts are laid out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from uniproto.errors import InvalidInputError, require_int, require_name
from uniproto.features.text import is_unicode, what_is_wrong

KINDS = ("value", "lora", "hidden", "position")
POOLING = {"mean": "hidden", "position": "position"}  # and the kinds of features they are
MOMENTS = ("optimizer", "pool", "example")  # explained in `adam_moments.py`, which needs torch
_OF_ADAPTERS = ("lora", "adam")  # as a layer: all of an adapter
# The prompt that 'uniproto finetune' trains with.
TEMPLATE = (
    "Below is an instruction that describes a task. Write a response that answers it.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
NO_ANSWER = "no answer token"
CHAT = "chat"  # as a template: the one of the model's tokenizer


@dataclass(frozen=True)
class LanguageFeatures:
    """The features that a language model computes for an example.

    `kind` is `value` (the gradient by the value projection of the last block), `lora` (the
    gradient by all LoRA layers, as LESS takes it), `hidden` (the mean of the last hidden states)
    or `position` (their mean weighted by position, as RDS+ takes it).
    """

    kind: str = "value"
    adapter: str | os.PathLike[str] | None = None  # a folder that peft has written
    adam: bool = False  # gradients as steps of Adam, by the moments in the adapter's folder
    layer: str | None = None
    width: int = 1024
    template: str = TEMPLATE
    max_length: int = 512
    bf16: bool = False

    def __post_init__(self) -> None:
        require_name("kind", self.kind, KINDS)
        if self.adapter is not None:
            object.__setattr__(self, "adapter", os.fspath(self.adapter))
        require_int("width", self.width, too_small="1024 is usual.")
        require_int("max_length", self.max_length, 2, too_small="512 is usual.")
        require_template("template", self.template)
        if self.kind == "lora" and self.adapter is None:
            raise InvalidInputError(
                "Gradients of LoRA layers need an adapter. Train one on a few examples with "
                "'uniproto finetune', and name its folder."
            )
        if self.adam and self.kind != "lora":
            raise InvalidInputError(
                "needs the gradients of LoRA layers ('lora').", parameter="adam"
            )

    @classmethod
    def of_gradients(cls, layer: str, **options: Any) -> LanguageFeatures:
        """Gradients by a layer: `value`, `lora`, `adam`, or the name of another one."""
        kind = "lora" if layer in _OF_ADAPTERS else "value"
        own = None if layer in ("value", *_OF_ADAPTERS) else layer
        return cls(kind, adam=layer == "adam", layer=own, **options)

    @classmethod
    def of_hidden_states(cls, pooling: str, **options: Any) -> LanguageFeatures:
        """Hidden states, averaged over tokens: `mean`, or by `position`."""
        require_name("pooling", pooling, POOLING)
        return cls(POOLING[pooling], **options)

    def described(self) -> str:
        """All options that vectors depend on; the adapter's weights have a digest of their own."""
        return repr(
            sorted((name, value) for name, value in asdict(self).items() if name != "adapter")
        )


def require_template(parameter: str, template: str) -> None:
    if template != CHAT and "{instruction}" not in template:
        raise InvalidInputError(
            f"must hold {{instruction}}, where the prompt goes, or be {CHAT!r} for the "
            "tokenizer's own.",
            parameter=parameter,
        )


def what_is_wrong_with(example: Any) -> str | None:
    """Why an example cannot be used; None if it can.

    >>> what_is_wrong_with(("1 + 1?", "2")), what_is_wrong_with(("1 + 1?", " "))
    (None, 'no answer token')
    >>> what_is_wrong_with([{"role": "user", "content": "Hi"}])
    'no answer token'
    """
    if isinstance(example, tuple):
        if len(example) != 2:
            return f"no prompt and answer but {len(example)} texts"
        for name, text in zip(("prompt", "answer"), example, strict=True):
            if not isinstance(text, str) or not is_unicode(text):
                return f"{name}: {what_is_wrong(text)}"
        return None if example[1].strip() else NO_ANSWER
    if not isinstance(example, list):
        return what_is_wrong(example)
    for message in example:
        if isinstance(message, Mapping) and isinstance(message.get("content"), list):
            return "a message with parts such as images; only texts are read"
        if not isinstance(message, Mapping):
            return "a message without a text"
        calls, content = message.get("tool_calls"), message.get("content")
        if not isinstance(content, str) and not (calls and content is None):
            return "a message without a text"
        if not isinstance(message.get("role"), str):
            return "a message without a role"
        if content is not None and not is_unicode(content):
            return f"a message: {what_is_wrong(content)}"
    answers = [message for message in example if message["role"] == "assistant"]
    has_answer = any(message.get("tool_calls") or message["content"].strip() for message in answers)
    return None if has_answer else NO_ANSWER
