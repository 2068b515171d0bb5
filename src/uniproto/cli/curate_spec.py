"""What `uniproto curate` was asked: a selection by a language model, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from uniproto.cli.parser import number
from uniproto.cli.spec import EmbeddingSpec, LanguageSpec, ProblemSpec, SelectSpec, options_of
from uniproto.errors import InvalidInputError
from uniproto.methods import METHODS
from uniproto.runtime.settings import made_of, setting, setting_of

SOURCE = "source"  # the column of sources, where none is named
# Refused: rows are vectors of a model, and the target is another file.
_NOT_FOR_MODELS = ("dsir", "fasterpam")
_CHOICE, _HOW = "what may be chosen", "how to choose"


@dataclass(frozen=True)
class CurateSpec(EmbeddingSpec, LanguageSpec):
    """The options of `uniproto curate`."""

    pool: str = ""
    k: int = 0
    output: str = ""
    target: str = setting("", "examples of what you want", common=True, metavar="TARGET")
    model: str | None = setting(
        None,
        "the language model you will train, whose gradients (plain texts: hidden states) compare "
        "examples; with --text or --images a model of those",
        common=True,
        metavar="NAME_OR_PATH",
    )
    hidden: bool = setting_of(LanguageSpec, "hidden", common=True)
    source: str | None = setting(
        SOURCE, "the column that says where a row comes from", common=True, metavar="COLUMN"
    )
    at_most: list[str] | None = setting_of(ProblemSpec, "at_most")
    at_least: list[str] | None = setting_of(ProblemSpec, "at_least")
    budget: list[str] | None = setting_of(ProblemSpec, "budget")
    decontaminate: list[str] | None = setting(
        None,
        "drop rows that repeat a prompt or a long answer of FILE (a benchmark), by their words",
        group=_CHOICE,
        metavar="FILE",
        parse=str,
        repeated=True,
    )
    exclude_near: list[str] | None = setting_of(ProblemSpec, "exclude_near")
    distinct: bool | float = setting(
        True,
        "drop copies: rows within DISTANCE of a chosen one or of the target (default: a hundredth "
        "of the median)",
        group=_CHOICE,
        metavar="DISTANCE",
        parse=number,
    )
    keep_duplicates: bool = setting(False, "keep copies", group=_CHOICE)
    method: str = setting(
        "uniproto", ", ".join(name for name in METHODS if name not in _NOT_FOR_MODELS), group=_HOW
    )
    seconds: float | None = setting_of(SelectSpec, "seconds", common=False, group=_HOW)
    seed: int = setting_of(SelectSpec, "seed")
    memory: str | None = setting_of(ProblemSpec, "memory")
    device: str = setting("auto", "for the model and for neighbours: cpu or cuda", common=True)
    no_page: bool = setting(False, "write no page", common=True)
    quiet: bool = setting(False, "no progress bar and no summary", common=True)

    def select_spec(self) -> SelectSpec:
        """What is asked of `select`."""
        spec = SelectSpec.of(vars(self))
        if not (spec.text or spec.images or spec.hidden):
            spec = replace(spec, gradients=spec.gradients or "value")
        if self.keep_duplicates and self.distinct is not True:
            raise InvalidInputError("--distinct excludes --keep-duplicates. Drop one of the two.")
        return replace(spec, distinct=False) if self.keep_duplicates else spec


OWN = ("source", "decontaminate", "keep_duplicates", "no_page")  # which `select` does not know


def recorded_command(arguments: Mapping[str, Any]) -> list[str]:
    """The command that the arguments of a manifest are from, with its options."""
    if "keep_duplicates" not in arguments:
        return SelectSpec.of(arguments).command()
    spec = made_of(CurateSpec, arguments)
    said = replace(
        spec,
        gradients=None if spec.gradients == "value" else spec.gradients,
        distinct=spec.distinct is False or spec.distinct,
    )
    words = ["uniproto", "curate", spec.pool, "-k", str(spec.k), *options_of(said)]
    return [*words, "-o", spec.output]
