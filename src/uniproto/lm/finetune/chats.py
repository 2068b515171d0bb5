"""Chats: turns of several roles, laid out by the tokenizer's own chat template."""

from __future__ import annotations

from typing import Any

from uniproto.errors import invalid

Turns = tuple[tuple[str, str], ...]  # (role, text)
ANSWERS = "assistant"


def encoded_chat(tokenizer: Any, turns: Turns) -> tuple[list[int], list[int], list[int]]:
    """The tokens before the last answer, those of that answer, and which of the first (1) belong
    to earlier answers.

    An answer is what a turn adds after the template's prompt for one, its end included.
    """
    before: list[int] = []
    answered: list[int] = []
    answer: list[int] = []
    for place, (role, _) in enumerate(turns):
        if role != ANSWERS:
            continue
        prompt = _laid_out(tokenizer, turns[:place], asks=True)
        whole = _laid_out(tokenizer, turns[: place + 1], asks=False)
        done = before + answer
        if whole[: len(prompt)] != prompt or prompt[: len(done)] != done:
            raise invalid(
                "--template",
                "must be a chat template in which later turns change nothing of earlier ones",
                "the tokenizer's own, which does",
                "Pass rows of one answer each, or a template with {instruction}.",
            )
        answered += [1] * len(answer) + [0] * (len(prompt) - len(done))
        before, answer = prompt, whole[len(prompt) :]
    return before, answer, answered


def chat_prompt(tokenizer: Any) -> str:
    """The tokenizer's chat template as a prompt with {instruction} in it."""
    return str(_laid_out(tokenizer, (("user", "{instruction}"),), asks=True, tokenize=False))


def _laid_out(tokenizer: Any, turns: Turns, asks: bool, tokenize: bool = True) -> Any:
    if not getattr(tokenizer, "chat_template", None):
        raise invalid(
            "--template",
            "must hold {instruction} where the tokenizer has no chat template of its own",
            "a tokenizer without one",
            "Use a model tuned for chats, or leave --messages and --template chat out.",
        )
    messages = [{"role": role, "content": text} for role, text in turns]
    found = tokenizer.apply_chat_template(
        messages, add_generation_prompt=asks, tokenize=tokenize, return_dict=False
    )
    return list(found) if tokenize else found
