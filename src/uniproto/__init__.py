"""Uniform prototypes: the k examples that, with equal weights, best represent your data.

>>> import uniproto
>>> sel = uniproto.select([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]], k=2)
>>> sel.indices
array([0, 2])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import uniproto.runtime.early  # noqa: F401 (before what takes long)
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
    DSIR,
    LESS,
    TSDS,
    Entropic,
    FacilityLocation,
    FasterPAM,
    Greedy,
    KCenter,
    KMeansNearest,
    KMedoids,
    MMDCritic,
    NearestInTurn,
    NearestOnAverage,
    NearestToAny,
    ProtoDash,
    Random,
    UniProto,
)
from uniproto.problem.problem import Problem
from uniproto.problem.values import RBF, Balanced, Columns, Compute, Groups, Laplacian, Limits
from uniproto.problem.weights import Density
from uniproto.runtime.late import late_names
from uniproto.select import cost, select
from uniproto.selection.selection import Selection
from uniproto.version import __version__ as __version__

if TYPE_CHECKING:
    from uniproto.comparing.compare import compare
    from uniproto.comparing.path import path
    from uniproto.comparing.results import Comparison, KPath
    from uniproto.estimator import PrototypeClassifier, PrototypeSelector
    from uniproto.features.model_features import Images, Text


__all__ = [
    "DSIR",
    "LESS",
    "RBF",
    "TSDS",
    "Balanced",
    "Columns",
    "Comparison",
    "Compute",
    "Density",
    "Entropic",
    "FacilityLocation",
    "FasterPAM",
    "Greedy",
    "Groups",
    "Images",
    "InfeasibleError",
    "InputFileError",
    "InvalidInputError",
    "KCenter",
    "KMeansNearest",
    "KMedoids",
    "KPath",
    "Laplacian",
    "Limits",
    "MMDCritic",
    "MissingExtraError",
    "NearestInTurn",
    "NearestOnAverage",
    "NearestToAny",
    "OutputError",
    "Problem",
    "ProtoDash",
    "PrototypeClassifier",
    "PrototypeSelector",
    "Random",
    "Selection",
    "SolverError",
    "Text",
    "UniProto",
    "UniprotoError",
    "compare",
    "cost",
    "path",
    "select",
]

_LATE = {  # loaded when asked for: scikit-learn and Arrow take a second to import
    "Comparison": "uniproto.comparing.results",
    "Images": "uniproto.features.model_features",
    "KPath": "uniproto.comparing.results",
    "PrototypeClassifier": "uniproto.estimator",
    "PrototypeSelector": "uniproto.estimator",
    "Text": "uniproto.features.model_features",
    "compare": "uniproto.comparing.compare",
    "path": "uniproto.comparing.path",
}
_ROOMS = {  # available without an import of their own
    "data": "uniproto.data",
    "evaluation": "uniproto.comparing.accuracy",
    "features": "uniproto.features",
    "lm": "uniproto.lm",
}


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])


__getattr__ = late_names(__name__, _LATE, _ROOMS)
