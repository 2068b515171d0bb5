"""Prices that balance the targets, on a GPU, with torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.gpu_lists import GpuIndex, GpuLists
from uniproto.problem.problem import Problem
from uniproto.runtime.gpu import product
from uniproto.transport.balance import Dual, TargetCosts, balance

_FEWEST_PAIRS = 500_000  # of prototypes and targets, below which the processor is as quick
_HELD = 8  # arrays of n × k numbers at most, at a time


def suits_gpu(problem: Problem, columns: int | None = None) -> bool:
    """Whether rows are searched on a GPU that has room for the columns of k prototypes, or of
    fewer.
    """
    costs = problem.costs
    if not isinstance(problem.lists, GpuLists) or not isinstance(costs, FeatureCosts):
        return False
    if problem.n * problem.k < _FEWEST_PAIRS or costs.on_disk:
        return False
    has_means = costs.distance.centred or costs.distance.unit_length
    needed = costs.dtype.itemsize * (sum(problem.costs.shape) * costs.source.shape[1])
    needed += 4 * _HELD * problem.n * (problem.k if columns is None else columns)
    return has_means and needed < problem.lists.free_memory()


def prices_on_gpu(problem: Problem, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """Prices that nearly balance these prototypes; None where their costs cannot be told apart."""
    import torch

    index = problem.lists.index(problem.costs)
    assert isinstance(index, GpuIndex)
    assert isinstance(problem.costs, FeatureCosts)
    device = index.target.device
    points = index.source.index_select(0, torch.from_numpy(rows).to(device))
    columns = GpuIndex(problem.costs, index.target, points).every_cost()
    unit = problem.costs.ceiling or 1.0
    weights = torch.from_numpy(problem.masses.weights.astype(np.float32)).to(device)
    found = balance(GpuTargetCosts(columns.div_(unit).float(), weights))
    return None if found is None else found.prices * unit


@dataclass(frozen=True)
class GpuTargetCosts(TargetCosts):
    """Costs and weights as tensors."""

    def part(self, targets: Any) -> TargetCosts:
        weights = self.weights[targets]
        return GpuTargetCosts(self.costs[targets], weights / (float(weights.sum()) or 1.0))

    def numbers(self) -> NDArray[np.float64]:
        return self.costs.double().cpu().numpy()

    def smoothed_dual(self, prices: NDArray[np.float64], smoothing: float) -> Dual:
        import torch

        reduced = self.costs - torch.from_numpy(prices).to(self.costs)
        least = reduced.min(1, keepdim=True).values
        likely = reduced.sub_(least).div_(-smoothing).exp_()
        total = likely.sum(1, keepdim=True)
        likely.div_(total)
        weighted = likely * self.weights[:, None]
        overlap = product(weighted.T, likely).double()
        shares = weighted.sum(0, dtype=torch.float64)
        value = (self.weights[:, None] * (least - smoothing * total.log())).sum(dtype=torch.float64)
        sums = torch.cat([value[None], shares, overlap.flatten()]).cpu().numpy()
        k = len(prices)
        return float(sums[0] + prices.mean()), sums[1 : k + 1], sums[k + 1 :].reshape(k, k)
