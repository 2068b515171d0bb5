"""Methods that are compared: their names, whether they draw at random, and a run to warm up."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import numpy as np

from uniproto.errors import UniprotoError, require_name
from uniproto.methods import (
    METHODS,
    FacilityLocation,
    KMedoids,
    Method,
    MMDCritic,
    ProtoDash,
    Stochastic,
    UniProto,
    as_method,
)
from uniproto.problem.problem import Problem
from uniproto.select import run_method

POLISHED = "uniproto+polish"
METHOD_NAMES = (*METHODS, POLISHED)
_WITHOUT_SEED = (UniProto, KMedoids, FacilityLocation, MMDCritic, ProtoDash)
_WARM_UP_ROWS, _WARM_UP_K = 500, 100  # enough for every loop of a method to run once
_WARM_UP_POLISH = 0.5  # seconds


def draws_at_random(method: Method) -> bool:
    """Whether the seed can change a method's picks. A method we do not know may well draw."""
    if isinstance(method, UniProto):
        return isinstance(method.candidates, Stochastic)
    return not isinstance(method, _WITHOUT_SEED)


def method_label(method: Method) -> str:
    """A method's name with the options that are not its defaults.

    >>> method_label(UniProto(polish=True)), method_label(UniProto(plan="resolve", polish=30))
    ('uniproto+polish', 'uniproto(plan=resolve, polish=30)')
    """
    options: dict[str, Any] = {}
    known: tuple[Any, ...] = fields(method) if is_dataclass(method) else ()
    for option in known:
        value = getattr(method, option.name)
        if option.default is MISSING or value != option.default:
            options[option.name] = value
    polish = isinstance(method, UniProto) and options.get("polish") is True
    if polish:
        del options["polish"]
    told = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{method.name}{f'({told})' if told else ''}{'+polish' if polish else ''}"


def as_compared(method: str | Method) -> Method:
    """A method from its name, `uniproto+polish` among them, or from itself."""
    if method == POLISHED:
        return UniProto(polish=True)
    if isinstance(method, str):
        require_name("methods", method, METHOD_NAMES)
    return as_method(method)


def small_problem(problem: Problem) -> Problem:
    """A few rows of the problem, without its conditions."""
    places = [
        np.unique(np.linspace(0, count - 1, min(count, _WARM_UP_ROWS)).astype(np.intp))
        for count in problem.costs.shape
    ]
    k = min(problem.k, _WARM_UP_K, *map(len, places))
    return problem.changed(
        costs=problem.costs.restrict(*places),
        _k=k,
        target_weights=None,
        initial=np.empty(0, np.intp),
        candidates=np.arange(len(places[0])),
        twin_distance=None,
        groups=(),
    )


def warms_up(small: Problem, method: Method) -> bool:
    """Load what the method needs, so that it is not counted as the method's time and memory."""
    if isinstance(method, UniProto) and method.polish:
        method = replace(method, polish=_WARM_UP_POLISH)
    try:
        run_method(small, method, progress=False)
    except UniprotoError:  # the whole problem will say it better
        return False
    return True
