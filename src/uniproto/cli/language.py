"""The options that say how a language model looks at examples, as `features/` takes them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from uniproto.cli.options import LanguageOptions
from uniproto.errors import invalid
from uniproto.runtime.settings import described

if TYPE_CHECKING:
    from uniproto.features.files import Items
    from uniproto.lm.features.language import LanguageFeatures


def language_features(options: argparse.Namespace) -> LanguageFeatures | None:
    """What a language model computes; None where texts, pictures or numbers are the features."""
    kind = getattr(options, "gradients", None)
    if getattr(options, "hidden", False):
        if kind is not None:
            raise invalid("--hidden", "excludes --gradients", kind, "Drop one of the two.")
        kind = "hidden"
    if kind is None:
        return None
    from uniproto.lm.features.language import TEMPLATE, LanguageFeatures

    flag = "--hidden" if kind == "hidden" else "--gradients"
    for other in ("text", "images", "column"):
        if (value := getattr(options, other, None)) is not None:
            raise invalid(
                flag,
                f"excludes --{other}: each says what the features are",
                repr(value),
                "Name the columns by --prompt and --answer, or --messages.",
            )
    if options.model is None:
        raise invalid("--model", f"must be given with {flag}", "none", "Name a language model.")
    return LanguageFeatures(
        kind,
        options.adapter,
        options.adam,
        options.layer,
        options.width,
        options.template or TEMPLATE,
        options.max_length,
        options.bf16,
    )


def refuse_language_options(options: argparse.Namespace, but: tuple[str, ...] = ()) -> None:
    """Refuse options about what a language model sees, where none looks at the rows."""
    for each in described(LanguageOptions):
        value = getattr(options, each.name)
        if each.name not in but and value != each.default:
            raise invalid(
                f"--{each.name.replace('_', '-')}",
                "needs --gradients or --hidden",
                repr(value),
                "Add one of them, or leave it out.",
            )


def read_rows(
    options: argparse.Namespace, path: str, *, guess: bool = False, like: Sequence[str] = ()
) -> Items:
    """What a model looks at in a file: texts, pictures, or examples of a language model.

    `like` are the columns of other examples.
    """
    features, encoding = language_features(options), getattr(options, "encoding", None)
    if features is None:
        from uniproto.features.files import read_items

        return read_items(path, options.text, options.images, guess=guess, encoding=encoding)
    from uniproto.lm.features.examples import read_examples

    named = (options.prompt, options.answer, options.messages)
    return read_examples(path, features, named, like, encoding)
