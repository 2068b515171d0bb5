"""An assigner whose passes over all targets run on a GPU, with torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.gpu_lists import GpuIndex
from uniproto.methods.search.assigner import Assigned, Assigner, are_points, slopes
from uniproto.methods.search.cell_plan import RowCosts
from uniproto.methods.search.exact_plan import Rows
from uniproto.problem.problem import Problem
from uniproto.runtime.gpu import product
from uniproto.transport.balance import TargetCosts
from uniproto.transport.gpu_balance import GpuTargetCosts, suits_gpu


def assigner_of(problem: Problem) -> Assigner:
    """An assigner, whose passes over all targets run on a GPU where one suits them."""
    return GpuAssigner(problem) if suits_gpu(problem) else Assigner(problem)


def row_costs_of(problem: Problem) -> RowCosts:
    """What rows cost, computed on a GPU where one suits them."""
    return GpuRowCosts(problem) if suits_gpu(problem, columns=0) else RowCosts(problem)


class GpuAssigner(Assigner):
    """The same steps; columns stay on the GPU, and what goes back are n numbers at a time."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._costs: Any = problem.costs
        index = problem.lists.index(problem.costs)
        assert isinstance(index, GpuIndex)
        self._source, self._target = index.source, index.target
        self._weights = self._moved(self.weights.astype(np.float32))

    def _moved(self, numbers: NDArray[Any]) -> Any:
        import torch

        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self._target.device)

    def _index(self, points: Any, rows: Any) -> GpuIndex:
        return GpuIndex(self._costs, points, rows)

    def fills_exactly(self, k: int) -> bool:
        return False

    def columns(self, prototypes: NDArray[Any]) -> Any:
        rows = self._moved(prototypes)
        points = rows if are_points(prototypes) else self._source.index_select(0, rows)
        found = self._index(self._target, points).every_cost()
        return found.div_(self.unit).float()

    def replaced(self, columns: Any, places: NDArray[np.intp], new: NDArray[Any]) -> Any:
        return columns.index_copy(1, self._moved(places), self.columns(new))

    def target_costs(self, columns: Any) -> TargetCosts:
        return GpuTargetCosts(columns, self._weights)

    def cheapest(
        self, columns: Any, prices: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], float]:
        least, cells = (columns - self._moved(prices.astype(np.float32))).min(1)
        return cells.int().cpu().numpy(), float(least.double() @ self._weights.double())

    def own_costs(self, now: Assigned) -> Any:
        own = now.columns.gather(1, self._moved(now.cells.astype(np.int64))[:, None])
        return own[:, 0] * self.unit

    def costs_to_own(self, points: NDArray[Any], cells: NDArray[np.int32]) -> Any:
        return self.own_costs(Assigned(points, self.columns(points), np.empty(0), cells, 0.0))

    def thinned(self, cells: NDArray[np.int32]) -> tuple[Assigner, NDArray[np.int32]]:
        return self, cells

    def sums(
        self, cells: NDArray[np.int32], own: Any, k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # By a product with all k × n memberships: adding rows one by one has no fixed order.
        counts = (self._weights * slopes(self._costs.curve, own)).to(self._target.dtype)
        membership = self._target.new_zeros(k, self.n)
        membership.scatter_(0, self._moved(cells.astype(np.int64))[None], counts[None])
        sums, totals = product(membership, self._target), membership.sum(1, keepdim=True)
        return sums.double().cpu().numpy(), totals.double().cpu().numpy()

    def totals(
        self, rows: list[NDArray[np.intp]], targets: list[NDArray[np.intp]]
    ) -> list[NDArray[np.float64]]:
        import torch

        def of(some: NDArray[np.intp], others: NDArray[np.intp]) -> Any:
            cell = self._moved(others)
            points = self._source.index_select(0, self._moved(some))
            block = self._index(points, self._target.index_select(0, cell)).every_cost()
            return product(block.float(), self._weights[cell])

        found = [of(some, others) for some, others in zip(rows, targets, strict=True)]
        return list(torch.stack(found).double().cpu().numpy()) if found else []

    def nearest_rows(self, points: NDArray[Any], count: int) -> NDArray[np.intp]:
        rows, everyone = self.problem.candidates, len(self.problem.candidates) == self.problem.m
        among = self._source if everyone else self._source.index_select(0, self._moved(rows))
        index = self._index(self._moved(points), among)
        return rows[index.nearest(np.arange(len(points)), count)[1]].T


class GpuRowCosts(RowCosts):
    """Blocks of costs come from the GPU; what compiled loops read is in main memory."""

    def _of(self, rows: Rows | slice, targets: Any = slice(None)) -> NDArray[Any]:
        import torch

        costs: Any = self.problem.costs
        index = self.problem.lists.index(costs)
        assert isinstance(index, GpuIndex)
        some = np.arange(self.problem.m)[rows] if isinstance(rows, slice) else rows
        device = index.target.device
        if isinstance(targets, slice):
            block = index.whole_rows(torch.from_numpy(some).to(device))
        else:
            points = index.source.index_select(0, torch.from_numpy(some).to(device))
            own = index.target.index_select(0, torch.from_numpy(targets).to(device))
            block = GpuIndex(costs, points, own).every_cost()
        found = torch.empty(block.shape, dtype=block.dtype, pin_memory=block.is_cuda)
        return np.asarray(found.copy_(block.div_(self.unit)).numpy())
