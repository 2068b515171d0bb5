"""Lists of the targets that matter to some rows, on a GPU: see `candidate_lists.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.gpu_rows import GpuRows
from uniproto.runtime.threads import pieces_of

_AT_ONCE = 2**28  # entries that are looked at together
_FREE_SHARE = 3  # one part in so many of the free GPU memory may hold lists
_BYTES = 2 * 8  # of an entry, while lists are made too


class GpuCandidateLists:
    """Rows with their listed targets side by side, the missing ones infinitely dear."""

    def __init__(
        self,
        gpu: GpuRows,
        rows: NDArray[np.intp],
        prices: NDArray[np.float64],
        share: float,
    ) -> None:
        torch = self.torch = gpu.torch
        self.device, self.even = gpu.device, gpu.even
        counts, columns, costs, thresholds = (
            torch.cat(part) for part in zip(*gpu.below_limits(rows, prices, share), strict=True)
        )
        held = torch.arange(int(counts.max()), device=self.device)[None] < counts[:, None]
        self.columns = torch.zeros(held.shape, dtype=torch.int32, device=self.device)
        self.costs = torch.full(held.shape, torch.inf, device=self.device)
        self.columns[held], self.costs[held] = columns, costs
        self.thresholds = thresholds.float()

    def how_often_listed(self, targets: int) -> NDArray[np.intp]:
        """How many rows list each target."""
        columns = self.columns[self.torch.isfinite(self.costs)]
        return np.asarray(self.torch.bincount(columns, minlength=targets).cpu().numpy())

    def values(
        self,
        rows: NDArray[np.intp],
        prices: NDArray[np.float32],
        capacity: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """About the rows' values; their thresholds follow the prices."""
        torch, (prices_there, offered) = self.torch, self._there(prices, capacity)
        found = []
        for some in self._pieces(rows):
            t = self.thresholds[some]
            w, below, columns = self._below(some, t, prices_there)
            held = below > 0
            if self.even:
                paid, mass = below.sum(1) * offered[0], held.sum(1) * offered[0]
            else:
                masses = offered[columns]
                paid, mass = (below * masses).sum(1), (held * masses).sum(1)
            found.append(t - paid)
            # The next threshold, one step of Newton's: mass lies about this dense near it.
            most = 0.5 * paid
            step = 1.25 * (1 - mass) * paid / (mass * mass).clamp(min=1e-30)
            lowest = w.amin(1)
            risen = lowest + 1e-3 * lowest.abs()  # where all prices have risen
            self.thresholds[some] = torch.where(
                mass > 0, t + torch.minimum(torch.maximum(step, -most), most), risen
            )
        return np.asarray(torch.cat(found).cpu().numpy())

    def taken(
        self,
        rows: NDArray[np.intp],
        shares: NDArray[np.float32],
        prices: NDArray[np.float32],
        capacity: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """How often each target is emptied when these rows are chosen by these shares."""
        torch, (prices_there, offered) = self.torch, self._there(prices, capacity)
        shares_there = torch.from_numpy(shares).to(self.device)
        taken = torch.zeros_like(prices_there)
        start = 0
        for some in self._pieces(rows):
            part = shares_there[start : start + len(some)]
            start += len(some)
            _, below, columns = self._below(some, self.thresholds[some], prices_there)
            held = below > 0
            mass = held.sum(1) * offered[0] if self.even else (held * offered[columns]).sum(1)
            # Where one target offers more than a unit, no more than one is taken.
            part = torch.where(mass > 2, part / mass.clamp(min=1), part)
            taken.index_add_(0, columns[held], part[:, None].expand(held.shape)[held])
        return np.asarray(taken.cpu().numpy())

    def averages(
        self, of_targets: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The mean of something over the targets that each row takes."""
        torch = self.torch
        values = torch.from_numpy(of_targets).to(self.device)
        prices_there = torch.from_numpy(prices).to(self.device)
        found = []
        for some in self._pieces(np.arange(len(self.thresholds))):
            columns = self.columns[some].long()
            w = self.costs[some] + prices_there[columns]
            listed = torch.isfinite(w)
            held = w <= self.thresholds[some][:, None]
            held = torch.where(held.any(1, keepdim=True), held, listed)
            found.append((values[columns] * held).sum(1) / held.sum(1))
        return np.asarray(torch.cat(found).cpu().numpy())

    def _below(self, some: Any, t: Any, prices: Any) -> tuple[Any, Any, Any]:
        """Costs plus prices, how far they are below the thresholds, and whose they are."""
        columns = self.columns[some].long()
        w = self.costs[some] + prices[columns]
        return w, (t[:, None] - w).clamp(min=0), columns

    def _there(self, *arrays: NDArray[np.float32]) -> list[Any]:
        return [self.torch.from_numpy(each).to(self.device) for each in arrays]

    def _pieces(self, rows: NDArray[np.intp]) -> list[Any]:
        there = self.torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)
        at_once = max(1, _AT_ONCE // max(1, self.costs.shape[1]))
        return [there[piece] for piece in pieces_of(len(rows), at_once)]


def most_rows_on_gpu(gpu: GpuRows, entries: int) -> int:
    """Of how many rows the GPU holds lists of so many entries."""
    if gpu.device.type != "cuda":
        return 2**31
    free, _ = gpu.torch.cuda.mem_get_info(gpu.device)
    return max(1, free // _FREE_SHARE // (_BYTES * max(1, entries)))
