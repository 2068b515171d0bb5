"""From options to the values of a call and to a `Problem`, and from a call to options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.option_values import (
    budgets_of,
    budgets_text,
    counts_text,
    limits_of,
    named_weights,
    number_or_text,
    row_numbers,
    values_by_column,
    values_text,
    weights_text,
)
from uniproto.cli.spec import CurateSpec, SelectSpec, options_of
from uniproto.data.files import possible_path
from uniproto.errors import InvalidInputError
from uniproto.features.compared_rows import opened
from uniproto.features.files import WHOLE_FOLDER
from uniproto.features.model_features import Images, Text
from uniproto.methods import Entropic, Greedy, UniProto, as_method
from uniproto.problem.checks import AUTO, require_distance
from uniproto.problem.near import NearRows, rows_near, vectors_near
from uniproto.problem.problem import Problem, ProblemOptions
from uniproto.problem.values import (
    RBF,
    Balanced,
    Columns,
    Compute,
    Groups,
    Limits,
    TargetSample,
    measure,
    metric_of,
)
from uniproto.runtime.settings import made_of
from uniproto.selection.call import asked_of, recorded

if TYPE_CHECKING:
    from uniproto.methods import Method

_OF_COLUMNS = ("ignore", "categories", "scale", "prepare", "id", "labels", "encoding")
_BY_COLUMN = ("missing", "cyclic", "weights")
_OF_MODELS = ("model", "batch_size", "device", "on_error", "id", "labels", "encoding")
_OF_EXAMPLES = ("adapter", "prompt", "answer", "messages", "template", "max_length", "bf16")
_OF_METHODS = {"seconds", "plan", "gains", "sample"}


def question(spec: SelectSpec) -> dict[str, Any]:
    """The arguments of a `Problem` that options say; files are named, and none is read."""
    usual = spec.bandwidth == RBF.bandwidth
    metric = measure(spec.metric, None if usual else number_or_text(spec.bandwidth))
    groups: Any = spec.groups
    if spec.groups and spec.budgets != Groups.budgets:
        groups = Groups(spec.groups, budgets=budgets_of(spec.budgets))
    compute = Compute(spec.memory, spec.device, spec.neighbours)
    target, sample = None if spec.target is None else Path(spec.target), spec.target_sample
    given = {
        "source": Path(spec.pool),
        "target": target if sample is None else TargetSample(sample, target),
        "features": features_of(spec),
        "metric": metric,
        "target_weights": named_weights(spec.target_weights, spec.labels),
        "groups": groups,
        "limits": limits_of(spec.at_most, spec.at_least, spec.budget),
        "include": row_numbers(spec.include, "include"),
        "exclude": row_numbers(spec.exclude, "exclude"),
        "compute": None if compute == Compute() else compute,
    }
    return {**_plain_options(spec), **given}


def _plain_options(spec: SelectSpec) -> dict[str, Any]:
    """The parameters of a `Problem` that an option says as they are."""
    names = ProblemOptions.__annotations__
    return {name: getattr(spec, name) for name in names if hasattr(spec, name)}


def features_of(spec: SelectSpec) -> Any:
    """How the options say that rows become vectors; None where they say nothing."""
    # The classes of weights are named there.
    labels = None if isinstance(named_weights(spec.target_weights, spec.labels), Balanced) else ...
    spec = spec if labels is ... else replace(spec, labels=None)
    if not spec.embeds:
        given = {name: getattr(spec, name) for name in _OF_COLUMNS if name in spec.given()}
        for name in _BY_COLUMN:
            if values := values_by_column(getattr(spec, name), name):
                given[name] = values
        if spec.column is not None:
            given = {"prepare": False, **given, "use": [spec.column]}
        if spec.columns:
            given["use"] = spec.columns
        return Columns(**given) if given else None
    shared = {name: getattr(spec, name) for name in _OF_MODELS if name in spec.given()}
    cache: Any = False if spec.no_cache else spec.cache or True
    shared |= {"cache": cache, "progress": False if spec.quiet else None}
    if spec.text:
        return Text(spec.text, **shared)
    if spec.images:
        return Images(None if spec.images == WHOLE_FOLDER else spec.images, **shared)
    Gradients, HiddenStates = kinds_of_examples()
    if spec.model is None:
        parameter = "hidden" if spec.hidden else "gradients"
        raise InvalidInputError("needs --model. Name a language model.", parameter=parameter)
    shared |= {name: getattr(spec, name) for name in _OF_EXAMPLES if name in spec.given()}
    if spec.hidden:
        return HiddenStates(**shared)
    is_lora = spec.gradients == "lora"
    if spec.adam and not is_lora:
        raise InvalidInputError("needs the gradients of LoRA layers ('lora').", parameter="adam")
    layer = ("adam" if spec.adam else "lora") if is_lora else spec.layer or "value"
    return Gradients(layer=layer, width=spec.width, **shared)


def kinds_of_examples() -> tuple[type[Any], type[Any]]:
    """The features that language models compute."""
    from uniproto.lm.features.example_values import Gradients, HiddenStates

    return Gradients, HiddenStates


def method_of(spec: SelectSpec) -> Method:
    """The method, with its options."""
    given = {name: getattr(spec, name) for name in _OF_METHODS & spec.given()}
    if spec.plan == "entropic":
        given["plan"] = Entropic(spec.reg, spec.iterations)
    kinds: dict[str, type[Method]] = {UniProto.name: UniProto, Greedy.name: Greedy}
    return kinds[spec.method](**given) if given else as_method(spec.method)


def problem_of(spec: SelectSpec) -> Problem:
    """The problem that options pose, for any k; every command goes through here."""
    spec.check()
    arguments = question(spec)
    problem = Problem(**arguments)
    for given in problem.given.inputs:
        if not isinstance(arguments["target_weights"], str) and spec.target_weights in given.names:
            raise InvalidInputError(
                f"{spec.target_weights} is also the name of a column of {given.name.name}. Rename "
                "the column, or leave it out of the file.",
                parameter="target_weights",
            )
    if spec.exclude_near is None:
        return problem
    path, text = spec.exclude_near
    return problem.excluding(path, near_file(problem, path, distance_of(text)))


def distance_of(text: str) -> float:
    """The distance of --exclude-near."""
    try:
        distance = float(text)
    except ValueError:
        raise InvalidInputError(
            f"must be a file and a distance, such as FILE 0.05, not {text!r}.",
            parameter="exclude_near",
        ) from None
    return require_distance(distance, "exclude_near")


def near_file(problem: Problem, path: str, distance: float) -> NearRows:
    """The rows of a problem that are too close to those of another file."""
    given, metric = problem.given, problem.costs.metric
    source, model = given.inputs[0], given.model
    others = opened(path, "exclude_near", None, given.how)
    if model is not None:
        found = model.embed(model.items(others, source.items))
        return vectors_near(source.embedded, found, distance, metric=metric)
    rows = given.features(source), given.features(others, "exclude_near")
    return rows_near(*rows, distance, metric=metric)


def input_paths(spec: SelectSpec) -> list[str]:
    """What POOL and --target name: paths or patterns, but not addresses in a store."""
    named = (spec.pool, spec.target, spec.exclude_near and spec.exclude_near[0])
    given = [text for text in named if text and "://" not in text]
    return [str(possible_path(text)) for text in given]


# From a call to the options that say it


def spec_of(call: Mapping[str, Any]) -> SelectSpec | None:
    """The options that say a call; None where a command has no words for it."""
    features = call.get("features")
    target: Any = call.get("target")
    is_sample = isinstance(target, TargetSample)
    of = target.of if is_sample else target
    metric = call.get("metric", "auto")
    groups, weights = call.get("groups"), call.get("target_weights")
    limits = call.get("limits") or Limits(None)
    method = as_method(call.get("method", UniProto.name))
    asked: dict[str, Any] = {
        **{name: call.get(name) for name in ProblemOptions.__annotations__},
        "pool": str(call["source"]),
        "k": call["k"],
        "target": of and str(of),
        "target_sample": target.rows if is_sample else None,
        "metric": metric_of(metric),
        "bandwidth": getattr(metric, "bandwidth", None),
        "groups": groups.labels if isinstance(groups, Groups) else groups,
        "budgets": budgets_text(groups.budgets) if isinstance(groups, Groups) else None,
        "target_weights": weights_text(weights),
        "labels": weights.labels if isinstance(weights, Balanced) else None,
        "at_most": counts_text(limits.labels, limits.at_most),
        "at_least": counts_text(limits.labels, limits.at_least),
        **{name: ",".join(map(str, call.get(name, ()))) for name in ("include", "exclude")},
        **{name: call.get(name) for name in ("exclude_near", "certify")},
        **{name: call.get(name) for name in ("engine", "per_part")},
        **vars(call.get("compute") or Compute()),
        "method": method.name,
        **(vars(method) if isinstance(method, UniProto | Greedy) else {}),
    }
    if isinstance(asked.get("plan"), Entropic):
        asked |= {**vars(asked["plan"]), "plan": "entropic"}
    asked |= {name: of for name, of in _options_of_features(features).items() if of is not None}
    if isinstance(asked["bandwidth"], float):
        asked["bandwidth"] = f"{asked['bandwidth']!r}".removesuffix(".0")
    usual = {each.name: each.default for each in fields(SelectSpec)}
    given = {name: of for name, of in asked.items() if name in usual and of not in (None, "", [])}
    found = SelectSpec(**given)
    try:
        says = question(found)
    except InvalidInputError:
        return None
    wanted = {name: call[name] for name in call if name in says}
    each = (recorded(asked_of(one, found.k, method)) for one in (says, wanted))
    return found if next(each) == next(each) and method_of(found) == method else None


def recorded_command(
    call: Mapping[str, Any], manifest: Mapping[str, Any], folder: str
) -> list[str] | None:
    """The words of the command that a folder is from; None where a call in Python made it."""
    own: Mapping[str, Any] = manifest.get("command", {})
    if "earlier" in own:
        words = ["uniproto", "update", own["earlier"], str(call["source"])]
        target = call.get("target")
        target = target.of if isinstance(target, TargetSample) else target
        given = {"--changes": own["changes"], "-k": own["k"], "--target": target}
        words += [str(word) for flag, of in given.items() if of for word in (flag, of)]
        return [*words, "-o", folder]
    near = manifest.get("excluded", {}).get("near", [])
    near = [*map(str, near[0])] if near else None
    spec = spec_of({"exclude_near": near, **own, **call})
    if spec is None:
        return None
    name, options = "select", options_of(spec)
    if "keep_duplicates" in own:
        asked = made_of(CurateSpec, {**vars(spec), **own})
        asked = replace(
            asked,
            gradients=None if asked.gradients == "value" else asked.gradients,
            min_distance=AUTO if asked.keep_duplicates else asked.min_distance,
        )
        name, options = "curate", options_of(asked)
    return ["uniproto", name, spec.pool, "-k", str(spec.k), *options, "-o", folder]


def _options_of_features(features: Any) -> dict[str, Any]:
    if features is None:
        return {}
    if features is False:
        return {"prepare": False}
    if isinstance(features, Columns):
        found = {name: getattr(features, name) for name in _OF_COLUMNS}
        found |= {name: list(found[name]) for name in ("ignore", "categories")}
        found |= {name: values_text(getattr(features, name)) for name in _BY_COLUMN}
        use = features.use
        if use and len(use) == 1 and features.prepare is False:
            return {**found, "column": use[0], "prepare": None}
        return {**found, "columns": None if use is None else list(use)}
    found = {name: getattr(features, name) for name in _OF_MODELS}
    found |= {"no_cache": features.cache is False}
    found |= {"cache": features.cache if isinstance(features.cache, str) else None}
    if isinstance(features, Text):
        column = features.column
        return {**found, "text": column if isinstance(column, str | None) else ",".join(column)}
    if isinstance(features, Images):
        return {**found, "images": features.column or WHOLE_FOLDER}
    found |= {name: getattr(features, name) for name in _OF_EXAMPLES}
    Gradients, _ = kinds_of_examples()
    if not isinstance(features, Gradients):
        return {**found, "hidden": True}
    own: dict[str, dict[str, Any]] = {
        "value": {"gradients": "value"},
        "lora": {"gradients": "lora"},
    }
    own["adam"] = {"gradients": "lora", "adam": True}
    usual = {"gradients": "value", "layer": features.layer}
    return {**found, "width": features.width, **own.get(features.layer, usual)}
