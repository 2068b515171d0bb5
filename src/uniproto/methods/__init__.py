"""Selection methods, one file each or one for a family, behind one contract."""

from __future__ import annotations

from uniproto.errors import InvalidInputError, require_name
from uniproto.methods.contract import Method, Picks
from uniproto.methods.dsir import DSIR
from uniproto.methods.fasterpam import FasterPAM
from uniproto.methods.greedy import Entropic, Greedy
from uniproto.methods.kcenter import KCenter
from uniproto.methods.kernel_methods import MMDCritic, ProtoDash
from uniproto.methods.kmeans import KMeansNearest
from uniproto.methods.kmedoids import FacilityLocation, KMedoids
from uniproto.methods.less import LESS
from uniproto.methods.nearest import NearestInTurn, NearestOnAverage, NearestToAny
from uniproto.methods.random import Random
from uniproto.methods.tsds import TSDS
from uniproto.methods.uniproto import UniProto

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        UniProto,
        Greedy,
        KMedoids,
        FacilityLocation,
        FasterPAM,
        MMDCritic,
        ProtoDash,
        KMeansNearest,
        KCenter,
        NearestToAny,
        NearestOnAverage,
        NearestInTurn,
        DSIR,
        TSDS,
        LESS,
        Random,
    )
}

# Chosen by similarity to a target alone: compared only where somebody names them.
FOR_A_TASK = (
    "nearest_to_any", "nearest_on_average", "nearest_in_turn", "dsir", "tsds", "less",
)  # fmt: skip


def as_method(method: str | Method, parameter: str = "method") -> Method:
    """A method object from itself, or from its name with default options."""
    if isinstance(method, str):
        require_name(parameter, method, METHODS)
        return METHODS[method]()
    if isinstance(method, type) or not hasattr(method, "pick"):
        raise InvalidInputError(
            f"must be a method's name or a method object such as Greedy(), not {method!r}.",
            parameter="method",
        )
    return method


__all__ = [
    "DSIR",
    "FOR_A_TASK",
    "LESS",
    "METHODS",
    "TSDS",
    "Entropic",
    "FacilityLocation",
    "FasterPAM",
    "Greedy",
    "KCenter",
    "KMeansNearest",
    "KMedoids",
    "MMDCritic",
    "Method",
    "NearestInTurn",
    "NearestOnAverage",
    "NearestToAny",
    "Picks",
    "ProtoDash",
    "Random",
    "UniProto",
    "as_method",
]
