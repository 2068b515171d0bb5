"""What is asked of a cluster, in one object that goes from the front door to every round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.scale.parts import Settings
from uniproto.scale.shards import Shards
from uniproto.scale.target import TargetQuestion


@dataclass(frozen=True)
class Asked:
    """A question about shards, checked as far as it can be before any of them is read."""

    source: Shards
    target: Shards | None
    settings: Settings
    aim: TargetQuestion
    excluded: NDArray[np.int64]
    certify: bool = False
    time_limit: float | None = None
