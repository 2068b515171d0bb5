"""What a command was asked, as one value: options of `select`, `compare`, `path` and `curate`.

The parser builds a `SelectSpec`, the manifest stores it, and whoever looks at the result reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from uniproto.cli.option_values import limited_column, names_weights
from uniproto.cli.parser import flag_of, number
from uniproto.cli.parser import seconds as parse_seconds
from uniproto.errors import InvalidInputError
from uniproto.geometry.costs import METRICS
from uniproto.methods import METHODS, Entropic, Greedy, Method, UniProto, as_method
from uniproto.methods.greedy import PLANS, plan_from
from uniproto.problem.weights import density_from
from uniproto.runtime.settings import described, made_of, setting, setting_of

if TYPE_CHECKING:
    from uniproto.cli.inputs import Inputs
    from uniproto.problem.problem import Problem

_COLUMNS, _CHOICE, _HOW = "columns", "what may be chosen", "how to choose"
_common = partial(setting, common=True)
_columns = partial(setting, group=_COLUMNS)
_choice = partial(setting, group=_CHOICE)
_size = partial(setting, group="large inputs")
_embedding = partial(setting, group="texts and pictures")
_language = partial(setting, group="examples of a language model")
_how = partial(setting, group=_HOW)
_ray = partial(setting, group="many machines (docs/scale.md)")


@dataclass(frozen=True)
class ProblemSpec:
    """Rows, target, columns and conditions: what every problem is made of."""

    target: str | None = _common(
        None, "what the chosen rows must represent (default: POOL)", metavar="FILE"
    )
    metric: str | None = _common(
        None,
        f"{', '.join(METRICS)} (default: euclidean for tables and up to 20 columns, else cosine)",
    )
    bandwidth: str | None = _common(
        None, "σ of rbf and laplacian, such as 2 or 0.25median", metavar="SIGMA"
    )
    column: str | None = _common(
        None, "the list column (or .npz array) of features", metavar="COLUMN"
    )
    id: str | None = _common(None, "a column that names rows; never a feature", metavar="COLUMN")
    features: list[str] | None = setting(
        None, "use only these columns; may be repeated", group=_COLUMNS, metavar="A,B,C",
        parse=str, repeated=True,
    )  # fmt: skip
    ignore: list[str] | None = setting(
        None, "leave these columns out; may be repeated", group=_COLUMNS, metavar="A,B",
        parse=str, repeated=True,
    )  # fmt: skip
    categories: list[str] | None = setting(
        None, "columns whose numbers are codes, not amounts", group=_COLUMNS, metavar="A,B",
        parse=str, repeated=True,
    )  # fmt: skip
    encoding: str | None = _columns(
        None, "of a .csv file, such as latin-1 (default: utf-8)", metavar="NAME"
    )
    prepare: bool | None = _columns(None, "make columns comparable (default: if they differ)")
    scale: str = _columns("robust", "robust (default), standard, minmax or none")
    groups: str | None = _columns(None, "select within each group of this column", metavar="COLUMN")
    labels: str | None = _columns(None, "the target's classes; never a feature", metavar="COLUMN")
    weights: str | None = _columns(
        None,
        "of targets: a column, balanced (over --labels) or density, such as density:q=30,alpha=4",
        metavar="COLUMN",
    )
    budgets: str | None = _choice(None, "rows per group: proportional, balanced or label=3,…")
    initial: str | None = _choice(None, "rows already chosen, such as 3,17", metavar="ROWS")
    exclude: str | None = _choice(None, "rows never to choose, such as 0,5", metavar="ROWS")
    exclude_near: list[str] | None = setting(
        None, "exclude rows within DISTANCE of any row of FILE", group=_CHOICE,
        metavar=("FILE", "DISTANCE"), parse=str,
    )  # fmt: skip
    at_most: list[str] | None = setting(
        None, "maximum number from a source: source:gsm=500, or *",
        group=_CHOICE, metavar="COL:LABEL=N", parse=str, repeated=True,
    )  # fmt: skip
    at_least: list[str] | None = setting(
        None, "minimum number of rows from a source", group=_CHOICE, metavar="COL:LABEL=N",
        parse=str, repeated=True,
    )  # fmt: skip
    budget: list[str] | None = setting(
        None, "exact number of rows from a source", group=_CHOICE, metavar="COL:LABEL=N",
        parse=str, repeated=True,
    )  # fmt: skip
    distinct: bool | float = setting(
        False, "choose no two rows within DISTANCE of each other (default: a hundredth of the "
        "median)", group=_CHOICE, metavar="DISTANCE", parse=number, bare=True,
    )  # fmt: skip
    memory: str | None = _size(None, "such as 4GB (default: a quarter of free memory)")
    device: str = _size("auto", "to find neighbours on: cpu, cuda (default: auto)")
    lists: str = _size("exact", "exact neighbours (default), or faiss (approximate)")


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
class SelectSpec(ProblemSpec, EmbeddingSpec, LanguageSpec):
    """What `uniproto select` was asked; also what other commands ask of the files they name.

    >>> SelectSpec.of({"pool": "pool.npy", "k": 30, "metric": "l1"}).command()
    ['uniproto', 'select', 'pool.npy', '-k', '30', '--metric', 'l1']
    """

    pool: str = ""
    k: int | None = None
    output: str | None = None
    id: str | None = setting_of(ProblemSpec, "id", help="a column that names rows in every file")
    method: str = _common("uniproto", ", ".join(METHODS))
    seconds: float | None = setting_of(
        UniProto, "seconds", help="uniproto: improve the result by swapping rows, for at most "
        "SECONDS", common=True, metavar="SECONDS", parse=parse_seconds,
    )  # fmt: skip
    certify: bool = _common(False, "also prove a cost that no K rows can be below")
    quiet: bool = _common(False, "no progress bar and no summary")
    plan: str | None = setting_of(
        Greedy, "plan", default=None, help=f"greedy, between picks: {', '.join(PLANS)}, entropic",
        group=_HOW, choices=(*PLANS, "entropic"), metavar="PLAN",
    )  # fmt: skip
    gains: str | None = setting_of(
        Greedy, "gains", default=None, help="greedy: approx or exact", group=_HOW
    )
    sample: float | None = setting_of(
        Greedy, "sample", help="greedy: compare random samples of rows; such as 0.1", group=_HOW,
        metavar="EPSILON",
    )  # fmt: skip
    reg: float | None = setting_of(
        Entropic, "reg", default=None, help="plan entropic: strength of the entropy", group=_HOW
    )
    iterations: int | None = setting_of(
        Entropic, "iterations", help="plan entropic: most steps of its solver", group=_HOW
    )
    search: str | None = setting_of(
        UniProto, "search", default=None, help="uniproto: auto, multilevel or thorough", group=_HOW
    )
    seed: int = _how(0, "for methods that draw at random")
    time_limit: float | None = setting(
        None, "stop --certify after so many seconds", group=_HOW, metavar="SECONDS",
        parse=parse_seconds,
    )  # fmt: skip
    checkpoint: bool = _size(False, "save progress, to resume after a kill")
    target_sample: int | None = _size(
        None, "represent a random sample of the target", metavar="ROWS"
    )
    engine: str = _ray(
        "local", "ray: where the files are (default: local)", choices=("local", "ray")
    )
    address: str | None = _ray(None, "ray: auto, HOST:PORT or ray://HOST:PORT")
    num_cpus: int | None = _ray(None, "ray: start one here with so many cores")
    per_part: int | None = _ray(
        None, "ray: rows each file contributes (default: K)", metavar="ROWS"
    )
    near_rows: list[int] | None = None  # in a record: what --exclude-near excluded
    model_digest: str | None = None  # of the model on record, which alone is loaded

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SelectSpec:
        """From the options of a command or the arguments of a manifest, as far as they are ours."""
        return made_of(cls, given)

    def record(self) -> dict[str, Any]:
        """What a manifest says was asked."""
        unsaid = {each.name for each in described(LanguageSpec)} | {"near_rows"}
        asked = {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default or each.name not in unsaid
        }
        del asked["quiet"], asked["model_digest"]
        if self.weights is not None and self.weights.startswith("density"):
            # By its numbers, whatever defaults become.
            asked["weights"] = str(density_from(self.weights, "--weights"))
        return asked

    def command(self) -> list[str]:
        """The words of the command that asks this."""
        words = ["uniproto", "select", self.pool, "-k", str(self.k)]
        words += options_of(self)
        return words if self.output is None else [*words, "-o", self.output]

    def check(self) -> None:
        """Refuse an option that needs another one, which is not given, or excludes one that is."""
        usual = {each.name: each.default for each in fields(self)}
        given = {name for name in usual if getattr(self, name) != usual[name]}
        for names in _ONE_OF:
            if len(both := [name for name in names if name in given]) > 1:
                first, second = (flag_of(name) for name in both[:2])
                raise InvalidInputError(f"{first} excludes {second}. Drop one of the two.")
        seen = {each.name for each in described(LanguageSpec)} - {"template", "max_length"}
        if not (self.gradients or self.hidden) and (language := sorted(seen & given)):
            raise InvalidInputError(
                f"{flag_of(language[0])} needs --gradients or --hidden. Add one of them."
            )
        for name in (each for each in _NEEDS if each in given):
            other, allowed = _NEEDS[name]
            value = getattr(self, other)
            if (value not in allowed) if allowed else value in (None, False):
                wanted = f" {' or '.join(allowed)}" if allowed else ""
                raise InvalidInputError(f"{flag_of(name)} needs {flag_of(other)}{wanted}. Add it.")

    def chosen_method(self) -> Method:
        """The method, with its options."""
        given = {
            name: value
            for name in ("seconds", "search", "plan", "gains", "sample")
            if (value := getattr(self, name)) is not None
        }
        if self.plan is not None:
            given["plan"] = plan_from(self.plan, self.reg, self.iterations)
        kinds: dict[str, type[Method]] = {UniProto.name: UniProto, Greedy.name: Greedy}
        return kinds[self.method](**given) if given else as_method(self.method)

    @property
    def embeds(self) -> bool:
        """Whether a model turns rows into vectors."""
        return bool(self.text or self.images or self.gradients or self.hidden)

    def embedding(self) -> dict[str, Any]:
        """How vectors are computed and kept."""
        return {
            "batch_size": self.batch_size,
            "device": self.device,
            "cache": False if self.no_cache else self.cache or True,
            "on_error": self.on_error,
            "progress": False if self.quiet else None,
        }

    def named_columns(self) -> dict[str, str]:
        """The columns that are no features, each with the option that names it."""
        weights = None if names_weights(self.weights) else self.weights
        limited = limited_column(self)
        given = {"id": self.id, "groups": self.groups, "weights": weights, "labels": self.labels}
        found = {name: flag_of(option) for option, name in given.items() if name}
        return found if limited is None else {limited[0]: flag_of(limited[1]), **found}

    def read(self) -> Inputs:
        """Read the files, and make the problem."""
        from uniproto.cli.inputs import read_inputs

        self.check()
        return read_inputs(self)

    def problem(self) -> Problem:
        """The checked problem."""
        problem = self.read().problem
        return problem if self.k is None else problem.with_k(self.k)


_ONE_OF = (  # each says what the features are
    ("features", "ignore", "column", "text", "images", "gradients", "hidden"),
    ("cache", "no_cache"),
)
_NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "bandwidth": ("metric", ("rbf", "laplacian")),
    "budgets": ("groups", ()),
    "search": ("method", (UniProto.name,)),
    "seconds": ("method", (UniProto.name,)),
    "plan": ("method", (Greedy.name,)),
    "gains": ("method", (Greedy.name,)),
    "sample": ("method", (Greedy.name,)),
    "reg": ("plan", ("entropic",)),
    "iterations": ("plan", ("entropic",)),
    "checkpoint": ("method", (UniProto.name, Greedy.name)),
    "time_limit": ("certify", ()),
    "address": ("engine", ("ray",)),
    "num_cpus": ("engine", ("ray",)),
    "per_part": ("engine", ("ray",)),
}


def options_of(spec: Any) -> list[str]:
    """The options of a command line that say what a spec says, where it is not the default."""
    words: list[str] = []
    for each in described(type(spec)):
        value, flag = getattr(spec, each.name), flag_of(each.name)
        # 0 equals False, and yet --distinct 0 is not the default.
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
    decontaminate: list[str] | None = setting(
        None,
        "drop rows that repeat a prompt or a long answer of FILE (a benchmark), by their words",
        group=_CHOICE,
        metavar="FILE",
        parse=str,
        repeated=True,
    )
    exclude_near: list[str] | None = setting_of(ProblemSpec, "exclude_near")
    distinct: bool | float = _choice(
        True,
        "drop copies: rows within DISTANCE of a chosen one or of the target (default: a hundredth "
        "of the median)",
        metavar="DISTANCE",
        parse=number,
    )
    keep_duplicates: bool = _choice(False, "keep copies")
    method: str = _how(
        "uniproto", ", ".join(name for name in METHODS if name not in _NOT_FOR_MODELS)
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
