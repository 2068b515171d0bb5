"""What is logged of a selection beside the loss: counts, times and costs since the last log."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.training.carried import Pool


class Window:
    """What happened to the selection since the last log."""

    def __init__(self) -> None:
        self._steps: set[int] = set()
        self.kept = self.pooled = self.left_out = 0
        self.selection_seconds = 0.0
        self.began: float | None = None
        self.per_source: Counter[str] = Counter()
        self.record: Any = None

    @property
    def steps(self) -> int:
        return len(self._steps)

    def begin(self, step: int) -> None:
        """The pools of a step are about to be fetched.

        Data without a length may end amid a step or before it: then the same step begins again.
        """
        self._steps.add(step)
        if self.began is None:
            self.began = time.perf_counter()

    def add(
        self, record: Any, pool: Pool, rows: NDArray[np.int64], usable: NDArray[np.bool_]
    ) -> None:
        self.record = record
        self.kept += len(rows)
        self.pooled += pool.size
        self.left_out += pool.size - int(usable.sum())
        if pool.sources is not None:
            self.per_source.update(dict.fromkeys(map(str, pool.sources), 0))
            self.per_source.update(str(pool.sources[row]) for row in rows.tolist())

    def summary(self, processes: int) -> dict[str, float]:
        """Numbers for the log: counts per step over all processes, times of this one."""
        seconds = max(time.perf_counter() - (self.began or 0.0), 1e-9)
        counted = {"kept": self.kept, "pool": self.pooled, "left_out": self.left_out}
        counts = {f"selection/{name}": number for name, number in counted.items()}
        counts |= {f"selected/{source}": self.per_source[source] for source in self.per_source}
        found: dict[str, float] = {
            name: number // self.steps if number % self.steps == 0 else number / self.steps
            for name, number in sorted(_over_processes(counts, processes).items())
        }
        found["selection/left_out"] = round(found["selection/left_out"] * self.steps)
        found["selection/seconds"] = self.selection_seconds / self.steps
        found["selection/step_seconds"] = seconds / self.steps
        found["selection/share"] = min(1.0, self.selection_seconds / seconds)
        if self.record is not None and not math.isnan(self.record.cost):
            found["selection/cost"] = self.record.cost
            found["selection/random_cost"] = self.record.random_cost
        return found


def _over_processes(counts: dict[str, int], processes: int) -> dict[str, int]:
    """Sums over all processes, which log the same steps."""
    if processes <= 1:
        return counts
    from accelerate.utils import gather_object

    together: Counter[str] = Counter()
    for each in gather_object([counts]):
        together.update(each)
    return dict(together)
