"""Values of `features=` for examples: `Gradients` and `HiddenStates` of a language model."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from uniproto.data.tables import Input
from uniproto.features.files import Items
from uniproto.features.model_features import ModelFeatures
from uniproto.lm.features.examples import example_items
from uniproto.lm.features.language import TEMPLATE, LanguageFeatures


@dataclass(frozen=True, kw_only=True)
class ExampleFeatures(ModelFeatures):
    """The options that `Gradients` and `HiddenStates` share."""

    adapter: str | os.PathLike[str] | None = None
    prompt: str | None = None
    answer: str | None = None
    messages: str | None = None
    template: str = TEMPLATE
    max_length: int = 512
    bf16: bool = False

    def __post_init__(self) -> None:
        self.language()  # checks the options

    @abstractmethod
    def language(self) -> LanguageFeatures:
        """The features to compute for each example."""

    def items(self, given: Input, like: Items | None = None) -> Items:
        named = self.prompt, self.answer, self.messages
        columns = () if like is None else like.columns
        return example_items(given, self.language(), named, columns, self.encoding)

    def _shared(self) -> dict[str, Any]:
        names = ("adapter", "template", "max_length", "bf16")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Gradients(ExampleFeatures):
    """Rows are compared by how each would change a model: `features=lm.Gradients("./my-llm")`.

    The arguments are those of `uniproto.lm.gradients`. Examples without an answer token have no
    vector: they are never chosen and weigh nothing.

    >>> Gradients("./my-llm", layer="lora", adapter="./adapter").width
    1024
    """

    model: str
    layer: str = "value"
    width: int = 1024

    def language(self) -> LanguageFeatures:
        return LanguageFeatures.of_gradients(self.layer, width=self.width, **self._shared())


@dataclass(frozen=True)
class HiddenStates(ExampleFeatures):
    """Rows are compared by a model's mean hidden states: `features=lm.HiddenStates("./my-llm")`.

    The arguments are those of `uniproto.lm.hidden_states`.

    >>> HiddenStates("./my-llm", pooling="position").language().kind
    'position'
    """

    model: str
    pooling: str = "mean"

    def language(self) -> LanguageFeatures:
        return LanguageFeatures.of_hidden_states(self.pooling, **self._shared())
