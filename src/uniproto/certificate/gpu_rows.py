"""Bounds and lists of whole rows on a GPU, with torch: what `row_bounds.py` does on the processor.

Costs are those of the GPU's lists, in single precision; sums are made in double precision. A
threshold is guessed from every sixteenth target, which leaves a loss of some hundredths of a per
cent; rows that turn out low are corrected once more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.least_blocks import own_lengths, share_of_squares
from uniproto.certificate.row_groups import Bounded
from uniproto.geometry.gpu_lists import GpuLists
from uniproto.problem.problem import Problem

_TILE_SHARE = 12  # of the free GPU memory: one tile of costs
_LARGEST_TILE = 4 * 2**30
_GUESSED_FROM = 16  # one target in so many
_FEWEST_GUESSED = 4096
_ROOM = 1.05  # times the guess: where a corrected threshold may be at most


def gpu_rows(problem: Problem) -> GpuRows | None:
    """The problem's rows on a GPU, where its lists are built there."""
    return GpuRows(problem, problem.lists) if isinstance(problem.lists, GpuLists) else None


class GpuRows:
    """Rows of a problem whose features lie on a GPU."""

    def __init__(self, problem: Problem, lists: GpuLists) -> None:
        import torch

        self.problem, self.torch = problem, torch
        self.index = lists.index(problem.costs)
        self.device = self.index.target.device
        capacity = problem.masses.offer / problem.masses.need
        self.capacity = torch.from_numpy(capacity).to(self.device)
        self.even = bool((capacity == capacity[0]).all())
        guessed = max(1, min(_GUESSED_FROM, problem.n // _FEWEST_GUESSED))
        self.every = slice(None, None, guessed)
        self.squares = share_of_squares(problem.costs)

    def values(
        self, rows: NDArray[np.intp], prices: NDArray[np.float64], corrections: int
    ) -> Generator[Bounded]:
        """Bounds of the rows' values, by positions in `rows`, and thresholds, tile by tile.

        Prices are at least 0.
        """
        torch = self.torch
        on_device = self._prices(prices)
        for part in self._tiles(len(rows)):
            costs, guess = self._lowered(rows[part], on_device)
            t, best = guess, torch.full_like(guess, -torch.inf)
            at, highest = t, guess + (_ROOM - 1) * guess.abs()
            for step in range(corrections + 1):
                paid, mass = self._paid_below(costs, t, last=step == corrections)
                value = t - paid
                at = torch.where(value > best, t, at)
                best = torch.maximum(best, value)
                if step < corrections:
                    density = 0.8 * mass * mass / paid.clamp(min=1e-300)
                    t = t + torch.where(paid > 0, (1 - mass) / density.clamp(min=1e-300), 0.0)
                    t = torch.minimum(t, highest).to(costs.dtype).double()
            # Prices are at least 0: whatever lies below t is at most t, and so is its rounding.
            single = 8 * float(np.finfo(self.problem.costs.dtype).eps)
            best -= (single + 4 * self.problem.n * float(np.finfo(np.float64).eps)) * at.abs()
            places = np.arange(part.start, part.stop)
            yield places, best.cpu().numpy(), at.cpu().numpy()

    def below_limits(
        self, rows: NDArray[np.intp], prices: NDArray[np.float64], share: float
    ) -> Generator[tuple[Any, ...]]:
        """Targets with this share of all mass, the cheapest at these prices, of every row.

        Their counts, columns and costs, and the rows' thresholds, tile by tile.
        """
        torch = self.torch
        on_device = self._prices(prices)
        for part in self._tiles(len(rows)):
            costs = self.index.whole_rows(self._numbers(rows[part]))
            costs += on_device
            thresholds = self._guessed(costs, 1.0)
            limits = self._guessed(costs, share * float(self.capacity.sum()))
            limits = torch.maximum(limits, thresholds).to(costs.dtype)
            listed = (costs <= limits[:, None]) & (self.capacity > 0)
            places = listed.nonzero()
            columns = places[:, 1]
            found = costs[places[:, 0], columns] - on_device[columns]
            yield (
                listed.sum(1).cpu().numpy(),
                columns.int().cpu().numpy(),
                found.float().cpu().numpy(),
                thresholds.cpu().numpy(),
            )

    def _lowered(self, rows: NDArray[np.intp], prices: Any) -> tuple[Any, Any]:
        """Costs plus prices, the least they may really be, and guessed thresholds.

        Below a threshold t a squared distance is at most t², and off by a share of (2|x| + t)².
        """
        costs, torch = self.problem.costs, self.torch
        block = self.index.whole_rows(self._numbers(rows))
        kind = float(np.finfo(costs.dtype).eps)
        if self.squares is None:
            block -= costs.rounding + kind * costs.ceiling
            block += prices
            return block, self._guessed(block, 1.0)
        block += prices
        guess = self._guessed(block, 1.0)
        block -= prices
        lengths = torch.from_numpy(own_lengths(costs, rows)).to(self.device)
        off = self.squares * (2.01 * lengths + _ROOM * guess + kind * costs.ceiling) ** 2
        block.square_().sub_(off.to(block.dtype)[:, None]).clamp_(min=0).sqrt_()
        block += prices
        return block, guess

    def _guessed(self, costs: Any, units: float) -> Any:
        """Where about so many units of mass lie below, judged by some of the targets."""
        torch = self.torch
        some, masses = costs[:, self.every], self.capacity[self.every]
        wanted = units * float(masses.sum() / self.capacity.sum())
        if self.even:
            rank = min(some.shape[1], max(1, round(wanted / float(masses[0]))))
            return some.kthvalue(rank, dim=1).values.double()
        ordered, order = some.sort(dim=1)
        held = masses[order].cumsum(1)
        place = (held < wanted).sum(1, keepdim=True).clamp(max=some.shape[1] - 1)
        return torch.gather(ordered, 1, place).squeeze(1).double()

    def _paid_below(self, costs: Any, t: Any, *, last: bool) -> tuple[Any, Any]:
        """What thresholds pay, and the mass below them; the last time costs are used up."""
        torch = self.torch
        limits = t.to(costs.dtype)[:, None]
        below = torch.sub(limits, costs, out=costs) if last else limits - costs
        mass = None
        if not last:
            taken = below > 0
            mass = taken.sum(1).double() * self.capacity[0]
            mass = mass if self.even else taken.double() @ self.capacity
        below.clamp_(min=0)
        if self.even:
            paid = below.sum(1, dtype=torch.float64) * self.capacity[0]
        else:
            paid = (below.double() * self.capacity).sum(1)
        return paid, mass

    def _prices(self, prices: NDArray[np.float64]) -> Any:
        return self.torch.from_numpy(prices).to(self.device, self.index.target.dtype)

    def _numbers(self, rows: NDArray[np.intp]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)

    def _tiles(self, count: int) -> list[slice]:
        from uniproto.runtime.threads import pieces_of

        torch = self.torch
        free = 2**30
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
        tile = min(free // _TILE_SHARE, _LARGEST_TILE)
        wide = self.index.target.element_size() * (1 if self.even else 3)
        return pieces_of(count, max(1, tile // (self.problem.n * wide)))
