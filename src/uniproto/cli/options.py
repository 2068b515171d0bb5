"""The options of commands that select, each declared once, and how they are added."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from uniproto.cli.parser import gradient_kind, number
from uniproto.cli.parser import seconds as parse_seconds
from uniproto.geometry.costs import METRICS
from uniproto.methods import METHODS, NOT_FOR_A_MODEL, Entropic, Greedy, UniProto
from uniproto.methods.greedy import PLANS
from uniproto.runtime.settings import described, setting, setting_of

ENGINES = ("local", "ray")
ON_ERROR = ("fail", "skip")
SOURCE = "source"  # the column of sources, where none is named
_COLUMNS, _CHOICE, _SIZE = "columns", "what may be chosen", "large inputs"
_LANGUAGE = "examples of a language model"
_EMBEDDING, _RAY = "texts and pictures, embedded first", "many machines (docs/scale.md)"


@dataclass(frozen=True)
class ProblemOptions:
    """Rows, target, columns and conditions: what every problem is made of."""

    target: str | None = setting(
        None, "what the chosen rows must represent (POOL itself)", common=True, metavar="FILE"
    )
    metric: str | None = setting(
        None,
        f"{', '.join(METRICS)} (default: euclidean for tables and up to 20 columns, else cosine)",
        common=True,
    )
    bandwidth: str | None = setting(
        None,
        "σ of rbf, laplacian: a number, 0.25median (auto)",
        common=True,
        metavar="SIGMA",
    )
    column: str | None = setting(
        None,
        "the list column (or .npz array) of features",
        common=True,
        metavar="COLUMN",
    )
    id: str | None = setting(
        None, "a column that names rows; never a feature", common=True, metavar="COLUMN"
    )
    features: list[str] | None = setting(
        None,
        "only these columns are features; may be repeated",
        group=_COLUMNS,
        metavar="A,B,C",
        parse=str,
        repeated=True,
    )
    ignore: list[str] | None = setting(
        None,
        "these columns are no features; like --features",
        group=_COLUMNS,
        metavar="A,B",
        parse=str,
        repeated=True,
    )
    categories: list[str] | None = setting(
        None,
        "numbers of these columns are codes; like --features",
        group=_COLUMNS,
        metavar="A,B",
        parse=str,
        repeated=True,
    )
    encoding: str | None = setting(
        None, "of a .csv file, such as latin-1 (utf-8)", group=_COLUMNS, metavar="NAME"
    )
    prepare: bool | None = setting(
        None,
        "make a table's columns comparable (if no vector)",
        group=_COLUMNS,
    )
    scale: str = setting(
        "robust", "of numbers: robust, standard, minmax, none (robust)", group=_COLUMNS
    )
    groups: str | None = setting(
        None, "select inside each group of this column", group=_COLUMNS, metavar="COLUMN"
    )
    labels: str | None = setting(
        None, "the target's classes; never a feature", group=_COLUMNS, metavar="COLUMN"
    )
    weights: str | None = setting(
        None,
        "of the target: a column; balanced over --labels; or density, such as density:q=30,alpha=4 "
        "(equal)",
        group=_COLUMNS,
        metavar="COLUMN",
    )
    budgets: str | None = setting(
        None,
        "of groups: balanced, or label=3,… (proportional)",
        group=_CHOICE,
    )
    initial: str | None = setting(
        None, "rows already chosen, such as 3,17", group=_CHOICE, metavar="ROWS"
    )
    exclude: str | None = setting(
        None, "rows never to choose, such as 0,5", group=_CHOICE, metavar="ROWS"
    )
    exclude_near: list[str] | None = setting(
        None,
        "no row so near to one of FILE (a benchmark)",
        group=_CHOICE,
        metavar=("FILE", "DISTANCE"),
        parse=str,
    )
    at_most: list[str] | None = setting(
        None,
        "rows of a source: source:gsm=500, or source:*=500",
        group=_CHOICE,
        metavar="COLUMN:LABEL=N",
        parse=str,
        repeated=True,
    )
    at_least: list[str] | None = setting(
        None,
        "the same, that must be chosen",
        group=_CHOICE,
        metavar="COLUMN:LABEL=N",
        parse=str,
        repeated=True,
    )
    budget: list[str] | None = setting(
        None,
        "both at once: exactly so many",
        group=_CHOICE,
        metavar="COLUMN:LABEL=N",
        parse=str,
        repeated=True,
    )
    distinct: bool | float = setting(
        False,
        "no two rows so near (a hundredth of the median)",
        group=_CHOICE,
        metavar="DISTANCE",
        parse=number,
        bare=True,
    )
    memory: str | None = setting(
        None, "working memory, such as 4GB (a quarter of the free)", group=_SIZE
    )
    device: str = setting("auto", "where neighbours are found: cpu, cuda", group=_SIZE)
    lists: str = setting("exact", "neighbours: exact, or approximate by faiss", group=_SIZE)


@dataclass(frozen=True)
class EmbeddingOptions:
    """Texts and pictures, and the model that turns them into vectors."""

    text: str | None = setting(
        None, "the column of texts, which are embedded, or several", common=True, metavar="A,B"
    )
    images: str | None = setting(
        None,
        "the column of pictures, which are embedded (paths or bytes), or the folder of their "
        "files; no value where POOL is a folder",
        common=True,
        metavar="COLUMN",
        bare=".",
    )
    model: str | None = setting(
        None,
        "a sentence-transformers, transformers or timm model (all-MiniLM-L6-v2, "
        "efficientnet-lite0)",
        group=_EMBEDDING,
        metavar="NAME_OR_PATH",
    )
    on_error: str = setting(
        "fail",
        "what cannot be embedded: stop, or skip it (fail)",
        group=_EMBEDDING,
        choices=ON_ERROR,
    )
    batch_size: int | None = setting(None, "items at a time (by model)", group=_EMBEDDING)
    cache: str | None = setting(
        None, "where vectors are saved (the system's cache)", group=_EMBEDDING, metavar="FOLDER"
    )
    no_cache: bool = setting(False, "save no vectors, use no saved ones", group=_EMBEDDING)


@dataclass(frozen=True)
class LanguageOptions:
    """Examples as a language model sees them: its gradients, or its hidden states."""

    gradients: str | None = setting(
        None,
        "by how each example would change --model: the gradient of the last value projection, or "
        "of the LoRA layers of --adapter",
        group=_LANGUAGE,
        metavar="value|lora",
        parse=gradient_kind,
        bare="value",
    )
    hidden: bool = setting(False, "by the mean hidden states of --model", group=_LANGUAGE)
    prompt: str | None = setting(
        None, "the question (instruction)", group=_LANGUAGE, metavar="COLUMN"
    )
    answer: str | None = setting(None, "the answer (output)", group=_LANGUAGE, metavar="COLUMN")
    messages: str | None = setting(
        None, "conversations, by the model's chat template", group=_LANGUAGE, metavar="COLUMN"
    )
    template: str | None = setting(
        None,
        "the prompt, with {instruction} in it; or chat (that of finetune)",
        group=_LANGUAGE,
        metavar="TEXT",
    )
    max_length: int = setting(512, "tokens per example", group=_LANGUAGE)
    adapter: str | None = setting(
        None, "LoRA weights to put on the model", group=_LANGUAGE, metavar="DIR"
    )
    adam: bool = setting(
        False, "gradients lora: as Adam's steps, by the adapter's optimizer.pt", group=_LANGUAGE
    )
    layer: str | None = setting(
        None, "the layer to differentiate (last value projection)", group=_LANGUAGE
    )
    width: int = setting(1024, "numbers per gradient", group=_LANGUAGE)
    bf16: bool = setting(False, "bfloat16 arithmetic (float32)", group=_LANGUAGE)


@dataclass(frozen=True)
class SelectOptions(ProblemOptions, EmbeddingOptions):
    """The options of `uniproto select`."""

    id: str | None = setting_of(
        ProblemOptions, "id", help="a column that names rows, for every output file"
    )
    method: str = setting("uniproto", f"{', '.join(METHODS)} (uniproto)", common=True)
    seconds: float | None = setting_of(
        UniProto, "seconds", common=True, metavar="SECONDS", parse=parse_seconds
    )
    certify: bool = setting(False, "also prove a cost that no K rows can be below", common=True)
    quiet: bool = setting(False, "no progress bar and no summary", common=True)
    plan: str | None = setting_of(
        Greedy, "plan", default=None, group="how to choose", choices=(*PLANS, "entropic")
    )
    gains: str | None = setting_of(Greedy, "gains", default=None, group="how to choose")
    sample: float | None = setting_of(Greedy, "sample", group="how to choose", metavar="EPSILON")
    reg: float | None = setting_of(Entropic, "reg", default=None, group="how to choose")
    iterations: int | None = setting_of(Entropic, "iterations", group="how to choose")
    search: str | None = setting_of(UniProto, "search", default=None, group="how to choose")
    seed: int = setting(0, "of methods that draw at random", group="how to choose")
    time_limit: float | None = setting(
        None,
        "with --certify: for at most so many seconds",
        group="how to choose",
        metavar="SECONDS",
        parse=parse_seconds,
    )
    checkpoint: bool = setting(
        False,
        "save picks; the same command goes on after a kill",
        group=_SIZE,
    )
    target_sample: int | None = setting(
        None,
        "represent so many random rows of the target (all)",
        group=_SIZE,
        metavar="ROWS",
    )
    engine: str = setting(
        "local",
        "ray: select where each .parquet file lies (local)",
        group=_RAY,
        choices=ENGINES,
    )
    address: str | None = setting(None, "ray: auto, HOST:PORT or ray://HOST:PORT", group=_RAY)
    num_cpus: int | None = setting(
        None, "ray: start a local one of this size (all cores)", group=_RAY
    )
    per_part: int | None = setting(
        None, "ray: rows that each file sends on (k)", group=_RAY, metavar="ROWS"
    )


MORE = "more options"


@dataclass(frozen=True)
class CurateOptions(EmbeddingOptions, LanguageOptions):
    """The options of `uniproto curate`."""

    target: str = setting("", "examples of what you want", common=True, metavar="TARGET")
    model: str | None = setting(
        None,
        "the language model you will train, whose gradients (plain texts: hidden states) compare "
        "examples; with --text or --images a model of those",
        common=True,
        metavar="NAME_OR_PATH",
    )
    hidden: bool = setting_of(LanguageOptions, "hidden", common=True)
    source: str | None = setting(
        SOURCE, "where a row comes from, if there is such a column", common=True, metavar="COLUMN"
    )
    at_most: list[str] | None = setting_of(ProblemOptions, "at_most")
    at_least: list[str] | None = setting_of(ProblemOptions, "at_least")
    budget: list[str] | None = setting_of(ProblemOptions, "budget")
    decontaminate: list[str] | None = setting(
        None,
        "drop rows that repeat a prompt or a long answer of FILE (a benchmark), by their words",
        group=_CHOICE,
        metavar="FILE",
        parse=str,
        repeated=True,
    )
    exclude_near: list[str] | None = setting_of(ProblemOptions, "exclude_near")
    distinct: bool | float = setting(
        True,
        "drop copies: rows at most DISTANCE from a chosen one or from the target (a hundredth of "
        "the median)",
        group=_CHOICE,
        metavar="DISTANCE",
        parse=number,
    )
    keep_duplicates: bool = setting(False, "drop no copies", group=_CHOICE)
    method: str = setting(
        "uniproto",
        f"{', '.join(name for name in METHODS if name not in NOT_FOR_A_MODEL)} (uniproto)",
        group="how to choose",
    )
    seconds: float | None = setting_of(
        SelectOptions, "seconds", common=False, group="how to choose"
    )
    seed: int = setting_of(SelectOptions, "seed")
    memory: str | None = setting_of(ProblemOptions, "memory")
    device: str = setting("auto", "of the model and of neighbours: cpu, cuda", common=True)
    no_page: bool = setting(False, "write no page", common=True)
    quiet: bool = setting(False, "no progress bar and no summary", common=True)


def add_settings(
    parser: argparse.ArgumentParser,
    settings: type[Any],
    *,
    required: Iterable[str] = (),
    defaults: bool = False,
) -> None:
    """Add an option for every described field: common ones first, the rest under "more options".

    Options that are not given are not in the namespace, so that defaults and presets stay in one
    place; with `defaults` they are there with their defaults. `required` names the fields that
    must be given on the command line.

    >>> from dataclasses import dataclass
    >>> from uniproto.runtime.settings import setting
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     steps: int = setting(2048, "optimizer steps", common=True)
    ...     bf16: bool = setting(False, "bfloat16 arithmetic")
    >>> parser = argparse.ArgumentParser()
    >>> add_settings(parser, Settings)
    >>> vars(parser.parse_args(["--steps", "8"]))
    {'steps': 8}
    """
    required = set(required)
    kinds = get_type_hints(settings)
    headings: dict[str, Any] = {}
    for each in sorted(described(settings), key=lambda each: not each.metadata["common"]):
        place: Any = parser
        if not each.metadata["common"]:
            heading = MORE if not each.metadata["group"] else f"{MORE}: {each.metadata['group']}"
            if heading not in headings:
                headings[heading] = parser.add_argument_group(heading)
            place = headings[heading]
        option = _add_option(place, each, kinds[each.name], each.name in required)
        if defaults and each.default is not MISSING:
            option.default = each.default


def _add_option(place: Any, each: Field[Any], kind: Any, required: bool) -> argparse.Action:
    about = each.metadata
    kind = str if about["parse"] else _bare(kind)
    options: dict[str, Any] = {
        "dest": each.name,
        "default": argparse.SUPPRESS,
        "required": required,
        "help": about["help"] + _shown_default(each),
    }
    names = [*about["flags"], f"--{each.name.replace('_', '-')}"]
    if kind is bool:
        optional = each.default is not False
        options["action"] = argparse.BooleanOptionalAction if optional else "store_true"
        option: argparse.Action = place.add_argument(*names, **options)
        return option
    if about["off"]:
        place = place.add_mutually_exclusive_group()
    choices = about["choices"]
    if choices is not None:
        options["choices"] = tuple(choices() if callable(choices) else choices)
    elif about["metavar"]:
        options["metavar"] = about["metavar"]
        if isinstance(about["metavar"], tuple):
            options["nargs"] = len(about["metavar"])
    elif kind is int:
        options["metavar"] = "N"
    if about["bare"] is not None:
        options |= {"nargs": "?", "const": about["bare"]}
    if about["repeated"]:
        options["action"] = "append"
    option = place.add_argument(*names, type=about["parse"] or kind, **options)
    if about["off"]:
        flag, text = about["off"]
        unset = {"action": "store_const", "const": None, "default": argparse.SUPPRESS}
        place.add_argument(flag, dest=each.name, help=text, **unset)
    return option


def _bare(kind: Any) -> Any:
    """The type of a value that is given: `int` of `int | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    return kind


def _shown_default(each: Field[Any]) -> str:
    """The default in brackets, unless the help has its own word for it."""
    default = each.default
    if default is MISSING or default is None or default is False or default == "":
        return ""
    if each.metadata["help"].endswith(")"):
        return ""
    return f" ({'yes' if default is True else default})".replace("%", "%%")
