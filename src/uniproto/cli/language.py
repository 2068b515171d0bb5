"""The options that say how a language model looks at examples, as `features/` takes them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from uniproto.errors import invalid
from uniproto.runtime.settings import described

if TYPE_CHECKING:
    from uniproto.features.language import LanguageFeatures


def language_features(options: argparse.Namespace) -> LanguageFeatures | None:
    """What a language model computes; None where texts, pictures or numbers are the features."""
    kind = getattr(options, "gradients", None)
    if getattr(options, "hidden", False):
        if kind is not None:
            raise invalid("--hidden", "excludes --gradients", kind, "Drop one of the two.")
        kind = "hidden"
    if kind is None:
        return None
    from uniproto.features.language import TEMPLATE, LanguageFeatures

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


def refuse_language_options(options: argparse.Namespace) -> None:
    """What a language model is told means nothing where none looks at the rows."""
    from uniproto.cli.options import LanguageOptions

    for each in described(LanguageOptions):
        value = getattr(options, each.name, each.default)
        if value != each.default:
            raise invalid(
                f"--{each.name.replace('_', '-')}",
                "needs --gradients or --hidden",
                repr(value),
                "Add one of the two, or leave it out.",
            )


def example_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `read_items` and `read_embedded` about examples."""
    features = language_features(options)
    if features is None:
        return {}
    columns = (options.prompt, options.answer, options.messages)
    return {"language": features, "examples": columns}
