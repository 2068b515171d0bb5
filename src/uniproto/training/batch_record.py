"""What the last call of a `BatchSelector` did, for logs and for people."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.masses import whole_masses
from uniproto.training.batch_methods import Part
from uniproto.transport.exact import partial_plan

_RANDOM_DRAWS = 8


@dataclass(frozen=True, eq=False)
class BatchRecord:
    """One selection: what was chosen, what was left out and why that many of each source.

    `cost` and `random_cost` are computed when first asked for (a few milliseconds each), from the
    features of the call, which the record holds until the next one takes its place. Both are
    measured with the selector's metric, so they compare with each other, not across metrics.
    """

    indices: NDArray[np.int64]
    pool: Part = field(repr=False)
    usable: NDArray[np.int64] = field(repr=False)
    sources: NDArray[Any] | None = field(repr=False)
    blocks: list[tuple[NDArray[np.int64], int]] = field(repr=False)  # rows, and how many of them
    seed: tuple[int, ...] = field(repr=False)
    seconds: float

    @cached_property
    def left_out(self) -> NDArray[np.int64]:
        """Examples that could not be used: NaN or infinity in what was given of them."""
        return np.setdiff1d(np.arange(self.pool.size), self.usable)

    @cached_property
    def per_source(self) -> dict[Hashable, int]:
        """How many examples of each source of the pool were chosen; empty without sources."""
        if self.sources is None:
            return {}
        chosen = self.sources[self.indices].tolist()
        names = dict.fromkeys(sorted(set(self.sources.tolist())), 0)
        for name in chosen:
            names[name] += 1
        return names

    @cached_property
    def cost(self) -> float:
        """Exact transport cost between the chosen examples, all counting equally, and the pool.

        NaN where no features were given to measure by.
        """
        return self._cost(self.indices)

    @cached_property
    def random_cost(self) -> float:
        """What a random choice of as many examples (of each source) costs: the mean of 8 draws."""
        random = np.random.default_rng(self.seed)
        return float(np.mean([self._cost(self._drawn(random)) for _ in range(_RANDOM_DRAWS)]))

    @cached_property
    def _costs(self) -> NDArray[np.float64] | None:
        if self.pool.features is None:
            return None
        return self.pool.only(self.usable).costs.astype(np.float64)

    def _drawn(self, random: np.random.Generator) -> NDArray[np.int64]:
        return np.concatenate(
            [random.choice(rows, count, replace=False) for rows, count in self.blocks]
        )

    def _cost(self, chosen: NDArray[np.int64]) -> float:
        if self._costs is None:
            return math.nan
        masses = whole_masses(len(chosen), len(self.usable))
        rows = self._costs[np.searchsorted(self.usable, chosen)]
        return partial_plan(rows, masses.offer, masses.need).cost / masses.total
