"""Uniform prototypes: the k examples that, all counting equally, stand best for your data.

>>> import uniproto
>>> sel = uniproto.select([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]], k=2)
>>> sel.indices
array([0, 2])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uniproto.errors import (
    InfeasibleError,
    InputFileError,
    InvalidInputError,
    MissingExtraError,
    OutputError,
    SolverError,
    UniprotoError,
)
from uniproto.methods import (
    FacilityLocation,
    FasterPAM,
    KCenter,
    KMeansNearest,
    KMedoids,
    MMDCritic,
    ProtoDash,
    Random,
    Stochastic,
    UniProto,
)
from uniproto.select import select
from uniproto.selection import Selection

if TYPE_CHECKING:
    from uniproto.estimator import PrototypeSelector

__version__ = "0.1.0"

__all__ = [
    "FacilityLocation",
    "FasterPAM",
    "InfeasibleError",
    "InputFileError",
    "InvalidInputError",
    "KCenter",
    "KMeansNearest",
    "KMedoids",
    "MMDCritic",
    "MissingExtraError",
    "OutputError",
    "ProtoDash",
    "PrototypeSelector",
    "Random",
    "Selection",
    "SolverError",
    "Stochastic",
    "UniProto",
    "UniprotoError",
    "select",
]


def __getattr__(name: str) -> Any:
    if name == "PrototypeSelector":  # scikit-learn takes a second to import: only when asked for
        from uniproto.estimator import PrototypeSelector

        return PrototypeSelector
    raise AttributeError(f"module 'uniproto' has no attribute {name!r}")
