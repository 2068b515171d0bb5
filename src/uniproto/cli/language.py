"""What a model looks at in a file: texts, pictures, or examples of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from uniproto.errors import InvalidInputError

if TYPE_CHECKING:
    from uniproto.cli.spec import SelectSpec
    from uniproto.features.files import Items
    from uniproto.lm.features.language import LanguageFeatures


def language_features(spec: SelectSpec) -> LanguageFeatures | None:
    """What a language model computes; None where texts, pictures or numbers are the features."""
    kind = "hidden" if spec.hidden else spec.gradients
    if kind is None:
        return None
    from uniproto.lm.features.language import TEMPLATE, LanguageFeatures

    if spec.model is None:
        flag = "--hidden" if spec.hidden else "--gradients"
        raise InvalidInputError(f"{flag} needs --model. Name a language model.")
    return LanguageFeatures(
        kind,
        spec.adapter,
        spec.adam,
        spec.layer,
        spec.width,
        spec.template or TEMPLATE,
        spec.max_length,
        spec.bf16,
    )


def read_items(
    spec: SelectSpec, path: str, *, guess: bool = False, like: Sequence[str] = ()
) -> Items:
    """What a model looks at in a file: texts, pictures, or examples of a language model.

    `like` are the columns of other examples.
    """
    features = language_features(spec)
    if features is None:
        from uniproto.features import files

        return files.read_items(path, spec.text, spec.images, guess=guess, encoding=spec.encoding)
    from uniproto.lm.features.examples import read_examples

    named = (spec.prompt, spec.answer, spec.messages)
    return read_examples(path, features, named, like, spec.encoding)
