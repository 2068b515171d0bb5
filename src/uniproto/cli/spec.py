"""The options of `select`, `compare`, `path` and `curate`, as one value.

Options have the names and defaults of the parameters and fields that they stand for; `inputs.py`
makes the arguments of a call from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from uniproto.cli.parser import distance, flag_of
from uniproto.cli.parser import seconds as parse_seconds
from uniproto.errors import InvalidInputError
from uniproto.geometry.costs import METRICS
from uniproto.methods import METHODS, Entropic, Greedy, UniProto
from uniproto.methods.greedy import PLANS
from uniproto.problem.checks import AUTO
from uniproto.problem.problem import Problem
from uniproto.problem.values import RBF, Balanced, Columns, Compute, Groups, Limits
from uniproto.runtime.settings import described, made_of, setting, setting_of
from uniproto.select import select

_COLUMNS, _CHOICE, _HOW = "columns", "what may be chosen", "how to choose"
_LIST: dict[str, Any] = {"parse": str, "repeated": True}
_NAMES: dict[str, Any] = {**_LIST, "group": _COLUMNS}
_VALUES: dict[str, Any] = {**_NAMES, "metavar": "COL=VALUE"}
_COUNTS: dict[str, Any] = {**_LIST, "group": _CHOICE, "metavar": "COL:LABEL=N"}
_common = partial(setting, common=True)
_embedding = partial(setting, group="texts and pictures")
_language = partial(setting, group="examples of a language model")
_ray = partial(setting, group="many machines (docs/scale.md)")


def _of(
    declaration: Callable[..., Any], name: str, help: str, group: str | None = None, **more: Any
) -> Any:
    """The option of a parameter or of a value's field, with the default that it has in Python."""
    return setting_of(declaration, name, help=help, group=group, common=group is None, **more)


_columns = partial(_of, group=_COLUMNS)
_choice = partial(_of, group=_CHOICE)
_size = partial(_of, group="large inputs")
_how = partial(_of, group=_HOW)


@dataclass(frozen=True)
class ProblemSpec:
    """Rows, target, columns and conditions: what every problem is made of."""

    target: str | None = _of(
        Problem, "target", "what the chosen rows must represent (default: POOL)", metavar="FILE"
    )
    metric: str = _of(
        Problem, "metric", f"{', '.join(METRICS)} (default: euclidean; for many columns cosine)"
    )
    bandwidth: str = _of(
        RBF, "bandwidth", "of rbf, laplacian: 2, 0.25median, auto (default)", metavar="SIGMA"
    )
    column: str | None = _common(
        None, "the list column (or .npz array) of features", metavar="COLUMN"
    )
    id: str | None = _of(
        Columns, "id", "a column that names rows; never a feature", metavar="COLUMN"
    )
    columns: list[str] | None = setting_of(
        Columns, "use", help="use only these columns; may be repeated", metavar="A,B,C", **_NAMES
    )
    ignore: list[str] | None = setting_of(
        Columns, "ignore", help="leave these columns out; may be repeated", metavar="A,B", **_NAMES
    )
    categories: list[str] | None = setting_of(
        Columns, "categories", help="columns whose numbers are codes, not amounts", metavar="A,B",
        **_NAMES,
    )  # fmt: skip
    encoding: str | None = _columns(
        Columns, "encoding", "of a .csv file, such as latin-1 (default: utf-8)", metavar="NAME"
    )
    prepare: bool | None = _columns(
        Columns, "prepare", "make columns comparable (default: if they differ)"
    )
    scale: str = _columns(Columns, "scale", "robust (default), standard, minmax or none")
    missing: list[str] | None = setting_of(
        Columns, "missing", help="a number that stands for a gap, such as income=-999", **_VALUES
    )
    cyclic: list[str] | None = setting_of(
        Columns, "cyclic", help="the period of a column, such as hour=24", **_VALUES
    )
    weights: list[str] | None = setting_of(
        Columns, "weights", help="the weight of a column, such as age=2", **_VALUES
    )
    groups: str | None = _columns(
        Problem, "groups", "select within each group of this column", metavar="COLUMN"
    )
    labels: str | None = _columns(
        Balanced, "labels", "the target's classes; never a feature", metavar="COLUMN"
    )
    target_weights: str | None = _columns(
        Problem, "target_weights", "a column; balanced, over --labels; or density:q=30",
        metavar="COLUMN",
    )  # fmt: skip
    budgets: str = _choice(Groups, "budgets", "proportional (default), balanced or label=3,…")
    include: str | None = _choice(
        Problem, "include", "rows already chosen, such as 3,17", metavar="ROWS"
    )
    exclude: str | None = _choice(
        Problem, "exclude", "rows never to choose, such as 0,5", metavar="ROWS"
    )
    exclude_near: list[str] | None = setting(
        None, "exclude rows within DISTANCE of any row of FILE", group=_CHOICE,
        metavar=("FILE", "DISTANCE"), parse=str,
    )  # fmt: skip
    at_most: list[str] | None = setting_of(
        Limits, "at_most", help="maximum number from a source: source:gsm=500, or *", **_COUNTS
    )
    at_least: list[str] | None = setting_of(
        Limits, "at_least", help="minimum number of rows from a source", **_COUNTS
    )
    budget: list[str] | None = setting(None, "exact number of rows from a source", **_COUNTS)
    min_distance: float | str | None = _choice(
        Problem, "min_distance", "choose no two rows within DISTANCE of each other (without a "
        "value: a hundredth of the median)", metavar="DISTANCE", parse=distance, bare=AUTO,
    )  # fmt: skip
    memory: str | None = _size(Compute, "memory", "such as 4GB (default: a quarter of free memory)")
    device: str = _size(Compute, "device", "for neighbours: cpu, cuda (default: auto)")
    neighbours: str = _size(
        Compute, "neighbours", "exact neighbours (default), or faiss (approximate)"
    )


@dataclass(frozen=True)
class EmbeddingSpec:
    """Texts and pictures, and the model that turns them into vectors."""

    text: str | None = _common(None, "column(s) of texts to embed", metavar="A,B")
    images: str | None = _common(
        None,
        "column or folder of pictures to embed; without a value where the input is such a folder",
        metavar="COLUMN",
        bare=".",
    )
    model: str | None = _embedding(
        None,
        "a sentence-transformers, transformers or timm model (default: all-MiniLM-L6-v2, "
        "efficientnet-lite0)",
        metavar="NAME_OR_PATH",
    )
    on_error: str = _embedding(
        "fail", "if a row cannot be embedded (default: fail)", choices=("fail", "skip")
    )
    batch_size: int | None = _embedding(None, "rows to embed at a time")
    cache: str | None = _embedding(
        None, "where to save vectors (default: the system's cache)", metavar="FOLDER"
    )
    no_cache: bool = _embedding(False, "neither save vectors nor use saved ones")


@dataclass(frozen=True)
class RowsSpec(ProblemSpec, EmbeddingSpec):
    """Everything about the rows and how they are compared."""


@dataclass(frozen=True)
class LanguageSpec:
    """Examples as a language model sees them: its gradients, or its hidden states."""

    gradients: str | None = _language(
        None,
        "compare by how each example would change --model: the gradient of the last value "
        "projection, or of the LoRA layers of --adapter",
        metavar="value|lora",
        choices=("value", "lora"),
        bare="value",
    )
    hidden: bool = _language(False, "compare by the mean hidden states of --model")
    prompt: str | None = _language(None, "the question (default: instruction)", metavar="COLUMN")
    answer: str | None = _language(None, "the answer (default: output)", metavar="COLUMN")
    messages: str | None = _language(
        None, "conversations, for the model's chat template", metavar="COLUMN"
    )
    template: str | None = _language(
        None,
        "the prompt, with {instruction} in it, or chat (default: as in finetune)",
        metavar="TEXT",
    )
    max_length: int = _language(512, "tokens per example")
    adapter: str | None = _language(None, "LoRA weights to put on the model", metavar="DIR")
    adam: bool = _language(False, "gradients lora: as Adam's steps, by the adapter's optimizer.pt")
    layer: str | None = _language(
        None, "the layer to differentiate (default: last value projection)"
    )
    width: int = _language(1024, "numbers per gradient")
    bf16: bool = _language(False, "compute in bfloat16 (default: float32)")


@dataclass(frozen=True)
class SelectSpec(RowsSpec, LanguageSpec):
    """What `uniproto select` was asked; also what other commands ask of the files they name.

    >>> options_of(SelectSpec.of({"pool": "pool.npy", "k": 30, "metric": "l1"}))
    ['--metric', 'l1']
    """

    pool: str = ""
    k: Any = None
    output: str | None = None
    id: str | None = setting_of(ProblemSpec, "id", help="a column that names rows in every file")
    method: str = _of(select, "method", ", ".join(METHODS))
    seconds: float | None = _of(
        select, "seconds", "keep searching until SECONDS have passed", metavar="SECONDS",
        parse=parse_seconds,
    )  # fmt: skip
    certify: bool | float = _of(
        select, "certify", "also prove a lower bound on the cost of any K rows, for at most "
        "SECONDS", metavar="SECONDS", parse=parse_seconds, bare=True,
    )  # fmt: skip
    quiet: bool = _common(False, "no progress bar and no summary")
    plan: str = _how(
        Greedy, "plan", f"greedy: {', '.join(PLANS)}, entropic (default: extend)",
        choices=(*PLANS, "entropic"), metavar="PLAN",
    )  # fmt: skip
    gains: str = _how(Greedy, "gains", "greedy: approx or exact")
    sample: float | None = _how(
        Greedy, "sample", "greedy: compare random samples of rows; such as 0.1", metavar="EPSILON"
    )
    reg: float = setting_of(Entropic, "reg", group=_HOW)
    iterations: int | None = setting_of(Entropic, "iterations", group=_HOW)
    seed: int = _how(Problem, "seed", "for methods that draw at random")
    checkpoint: bool = setting(False, "save progress, to resume after a kill", group="large inputs")
    target_sample: int | None = setting(
        None, "represent a random sample of the target", group="large inputs", metavar="ROWS"
    )
    engine: str = _ray(
        "local",
        "ray: on a cluster, where the files are (default: local)",
        choices=("local", "ray"),
    )
    address: str | None = _ray(None, "ray: auto, HOST:PORT or ray://HOST:PORT")
    num_cpus: int | None = _ray(None, "start a local Ray cluster with N cores")
    per_part: int | None = _ray(
        None, "ray: rows each file contributes (default: K)", metavar="ROWS"
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SelectSpec:
        """From the options of a command, as far as they are ours."""
        return made_of(cls, given)

    def given(self) -> set[str]:
        """The options that are not at their default."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}

    def check(self) -> None:
        """Refuse an option that needs another one, which is not given, or excludes one that is."""
        given = self.given()
        for names in _ONE_OF:
            if len(both := [name for name in names if name in given]) > 1:
                raise InvalidInputError(
                    f"excludes {flag_of(both[1])}. Drop one of the two.", parameter=both[0]
                )
        seen = {each.name for each in described(LanguageSpec)} - {"template", "max_length"}
        if not (self.gradients or self.hidden) and (language := sorted(seen & given)):
            raise InvalidInputError(
                "needs --gradients or --hidden. Add one of them.", parameter=language[0]
            )
        for name in (each for each in _NEEDS if each in given):
            other, allowed = _NEEDS[name]
            value = getattr(self, other)
            if (value not in allowed) if allowed else value in (None, False):
                wanted = f" {' or '.join(allowed)}" if allowed else ""
                raise InvalidInputError(f"needs {flag_of(other)}{wanted}. Add it.", parameter=name)

    @property
    def embeds(self) -> bool:
        """Whether a model turns rows into vectors."""
        return bool(self.text or self.images or self.gradients or self.hidden)


_ONE_OF = (  # each says what the features are
    ("columns", "ignore", "column", "text", "images", "gradients", "hidden"),
    ("cache", "no_cache"),
)
_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bandwidth": ("metric", ("rbf", "laplacian")),
    "budgets": ("groups", ()),
    "seconds": ("method", (UniProto.name,)),
    "plan": ("method", (Greedy.name,)),
    "gains": ("method", (Greedy.name,)),
    "sample": ("method", (Greedy.name,)),
    "reg": ("plan", ("entropic",)),
    "iterations": ("plan", ("entropic",)),
    "checkpoint": ("method", (UniProto.name, Greedy.name)),
    "address": ("engine", ("ray",)),
    "num_cpus": ("engine", ("ray",)),
    "per_part": ("engine", ("ray",)),
}


def options_of(spec: Any) -> list[str]:
    """The options of a command line that say what a spec says, where it is not the default."""
    words: list[str] = []
    for each in described(type(spec)):
        value, flag = getattr(spec, each.name), flag_of(each.name)
        if (type(value), value) == (type(each.default), each.default):
            continue
        if isinstance(each.metadata["metavar"], tuple):
            words += [flag, *map(str, value)]
            continue
        for given in value if isinstance(value, list) else [value]:
            if given is False:
                words += [flag.replace("--", "--no-", 1)]
            else:
                words += [flag] if given is True else [flag, str(given)]
    return words


# What `uniproto curate` was asked: a selection by a model, and what becomes of it.


SOURCE = "source"  # the column of sources, where none is named
# Refused: rows are vectors of a model, and the target is another file.
_NOT_FOR_MODELS = ("dsir", "fasterpam")


@dataclass(frozen=True)
class CurateSpec(EmbeddingSpec, LanguageSpec):
    """The options of `uniproto curate`."""

    pool: str = ""
    k: int = 0
    output: str = ""
    target: str = _common("", "examples of what you want", metavar="TARGET")
    model: str | None = _common(
        None,
        "the language model you will train, whose gradients (plain texts: hidden states) compare "
        "examples; with --text or --images a model of those",
        metavar="NAME_OR_PATH",
    )
    hidden: bool = setting_of(LanguageSpec, "hidden", common=True)
    source: str | None = _common(
        SOURCE, "the column that says where a row comes from", metavar="COLUMN"
    )
    at_most: list[str] | None = setting_of(ProblemSpec, "at_most")
    at_least: list[str] | None = setting_of(ProblemSpec, "at_least")
    budget: list[str] | None = setting_of(ProblemSpec, "budget")
    benchmarks: list[str] | None = setting(
        None,
        "drop rows that repeat a question or a long answer of FILE, in words; may be repeated",
        group=_CHOICE,
        metavar="FILE",
        parse=str,
        repeated=True,
    )
    decontaminate: str = setting(
        "words",
        "how repeats of --benchmarks are found: words (default), or words+meaning (paraphrases "
        "too, by sentence embeddings)",
        group=_CHOICE,
        choices=("words", "words+meaning"),
    )
    exclude_near: list[str] | None = setting_of(ProblemSpec, "exclude_near")
    min_distance: float | str | None = _choice(
        Problem, "min_distance", "drop copies: rows within DISTANCE of a chosen one or of the "
        "target (default: a hundredth of the median)", default=AUTO, metavar="DISTANCE",
        parse=distance,
    )  # fmt: skip
    keep_duplicates: bool = setting(False, "keep copies", group=_CHOICE)
    method: str = _how(
        select, "method", ", ".join(name for name in METHODS if name not in _NOT_FOR_MODELS)
    )
    seconds: float | None = setting_of(SelectSpec, "seconds", common=False, group=_HOW)
    seed: int = setting_of(SelectSpec, "seed")
    memory: str | None = setting_of(ProblemSpec, "memory")
    device: str = _common("auto", "for the model and for neighbours: cpu or cuda")
    no_page: bool = _common(False, "write no page")
    quiet: bool = _common(False, "no progress bar and no summary")

    def select_spec(self) -> SelectSpec:
        """What is asked of `select`."""
        spec = SelectSpec.of(vars(self))
        if not (spec.text or spec.images or spec.hidden):
            spec = replace(spec, gradients=spec.gradients or "value")
        if self.keep_duplicates and self.min_distance != AUTO:
            raise InvalidInputError(
                "excludes --keep-duplicates. Drop one of the two.", parameter="min_distance"
            )
        return replace(spec, min_distance=None) if self.keep_duplicates else spec


# Recorded: what a call of `select` does not say.
OWN = ("source", "benchmarks", "decontaminate", "exclude_near", "keep_duplicates", "no_page")
