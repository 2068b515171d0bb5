"""The record of a question: the arguments of a call as plain values, and the call from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.data.tables import Input
from uniproto.errors import InputFileError
from uniproto.features.model_features import Images, ModelFeatures, Text
from uniproto.features.preparation import Preparation
from uniproto.methods import METHODS, Entropic, Method
from uniproto.problem.problem import is_usual
from uniproto.problem.values import (
    RBF,
    Balanced,
    Columns,
    Compute,
    Groups,
    Laplacian,
    Limits,
    TargetSample,
)
from uniproto.problem.weights import Density

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

_VALUES = (RBF, Laplacian, Balanced, Columns, Groups, Limits, TargetSample, Compute, Density)
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*_VALUES, Text, Images, Entropic, *METHODS.values())
}
_MAPPING = "mapping"
_ALWAYS = (Density,)  # whatever its defaults become
# What changes how long an answer takes, and never the answer.
_OF_MACHINE = ("batch_size", "device", "cache", "progress")


def on_any_machine(features: Any) -> Any:
    """The same features, wherever and however fast they are computed."""
    if not isinstance(features, ModelFeatures):
        return features
    usual: dict[str, Any] = {each.name: each.default for each in fields(features)}
    return replace(features, **{name: usual[name] for name in _OF_MACHINE})


class _NotRecordedError(Exception):
    """A value that a record has no words for, such as labels or a fitted transformer."""


def recorded(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments of a call as a manifest holds them; None where one is data of the caller's.

    >>> recorded({"metric": RBF(2.0), "groups": "kind", "include": [3]})
    {'metric': {'kind': 'RBF', 'bandwidth': 2.0}, 'groups': 'kind', 'include': [3]}
    >>> recorded({"groups": np.array(["a", "b"])}) is None
    True
    """
    try:
        return {name: _plain(value) for name, value in arguments.items()}
    except _NotRecordedError:
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Input) and value.path is not None:
        value = value.path
    if isinstance(value, Path):
        return os.fspath(value)
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        items = [[_plain(name), _plain(each)] for name, each in value.items()]
        return {"kind": _MAPPING, "items": items}
    if isinstance(value, Preparation):
        return {"kind": Preparation.__name__, **value.record()}
    kind = type(value)
    if not (is_dataclass(value) and (kind in _KINDS.values() or isinstance(value, ModelFeatures))):
        raise _NotRecordedError
    given = {
        each.name: _plain(getattr(value, each.name))
        for each in fields(value)
        if each.name != "progress"
        and (kind in _ALWAYS or not _is_default(getattr(value, each.name), each))
    }
    if kind in METHODS.values() and not given:
        return kind.name
    return {"kind": kind.__name__, **given}


def _is_default(value: Any, field: Any) -> bool:
    default = field.default
    if default is MISSING or type(value) is not type(default):
        return False
    return bool(value == default)


def called(record: Mapping[str, Any], *others: type[Any]) -> dict[str, Any]:
    """The arguments that a record holds; `others` are kinds of values that higher rooms have.

    Only our own values are made, of what their classes accept: anything else is an error.

    >>> called({"metric": {"kind": "RBF", "bandwidth": 2.0}})
    {'metric': RBF(bandwidth=2.0)}
    """
    kinds = {**_KINDS, **{kind.__name__: kind for kind in others}}
    return {name: _value(value, kinds) for name, value in record.items()}


def _value(record: Any, kinds: Mapping[str, type[Any]]) -> Any:
    if isinstance(record, list):
        return [_value(each, kinds) for each in record]
    if not isinstance(record, Mapping):
        return record
    given = dict(record)
    name = given.pop("kind")
    if name == _MAPPING:
        return {key: _value(each, kinds) for key, each in given["items"]}
    if name == Preparation.__name__:
        return Preparation.from_record(given)
    return kinds[name](**{key: _value(each, kinds) for key, each in given.items()})


def asked_of(
    problem: Mapping[str, Any], k: int, method: Method, certify: bool | float = False
) -> dict[str, Any]:
    """The arguments of `select`, but for those at their defaults, as they are recorded."""
    asked = {name: of for name, of in problem.items() if not is_usual(name, of)}
    return {**asked, "k": k, "method": method, **({"certify": certify} if certify else {})}


def question_of(selection: Selection, folder: Path) -> dict[str, Any]:
    """What a manifest says of the question: input files, where they lie, the call, excluded rows.

    Nothing where the question holds data of the caller's: such a folder cannot be verified.
    """
    problem, asked = selection._problem, selection.details.asked
    if problem is None or not asked:
        return {}
    arguments = recorded({**problem.asked, "k": selection.k, **asked})
    inputs = problem.identities()
    if arguments is None or inputs is None:
        return {}
    found = {"inputs": inputs, "places": places_of(inputs, folder), "arguments": arguments}
    if problem.near:
        found["excluded"] = {
            "rows": problem.near_rows,
            "near": [[path, near.distance] for path, near in problem.near if not near.rules],
        }
    return found


def require_record(folder: Path, manifest: Mapping[str, Any], remedy: str) -> None:
    """Refuse a result whose inputs are not on record."""
    if "inputs" not in manifest or "arguments" not in manifest:
        raise InputFileError(
            f"{folder}: the folder must be made from files. It was made in Python, from data that "
            f"are not on record. {remedy}"
        )


def places_of(identities: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Where a record's inputs lie, seen from the result: one that moves along with them finds them.

    >>> places_of({"source": {"path": "/data/pool.npy"}, "target": None}, Path("/data/out"))
    {'source': {'relative': '../pool.npy'}, 'target': None}
    """

    def relative(path: str) -> str | None:
        try:
            return None if "://" in path else os.path.relpath(path, output.resolve())
        except ValueError:  # on another drive
            return None

    return {role: one and {"relative": relative(one["path"])} for role, one in identities.items()}
