"""Lists of the targets that matter to some rows, on a GPU: see `candidate_lists.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.gpu_rows import GpuRows
from uniproto.certificate.thresholds import FARTHEST, WINDOW
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
        self.windows = torch.zeros_like(self.thresholds)
        offered = gpu.capacity.float().cpu().numpy()
        # Without windows no threshold moves: this tells only what is paid at the first ones.
        self.values(np.arange(len(rows)), prices.astype(np.float32), offered)

    def rooms(
        self, prices: NDArray[np.float64], offering: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The rooms of the rows that list a target, summed, and how many they are."""
        torch = self.torch
        prices_there = torch.from_numpy(prices).to(self.device)
        rooms = torch.zeros_like(prices_there)
        counts = torch.zeros(len(prices), dtype=torch.int64, device=self.device)
        for some in self._pieces(np.arange(len(self.thresholds))):
            columns = self.columns[some].long()
            w = self.costs[some] + prices_there[columns]
            listed = torch.isfinite(w)
            room = torch.where(listed, w, -torch.inf).amax(1) - self.thresholds[some]
            room = torch.where(listed.sum(1) < offering, room.clamp(min=0), torch.inf)
            rooms.index_add_(0, columns[listed], room[:, None].expand(listed.shape)[listed])
            counts += torch.bincount(columns[listed], minlength=len(prices))
        return np.asarray(rooms.cpu().numpy()), np.asarray(counts.cpu().numpy())

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
            t, window = self.thresholds[some], self.windows[some]
            columns = self.columns[some].long()
            above = self.costs[some] + prices_there[columns] - t[:, None]
            masses = offered[0] if self.even else offered[columns]
            paid = (above.clamp(max=0) * -masses).sum(1)
            mass, lower, upper = (
                ((above < limit) * masses).sum(1)
                for limit in (0, -window[:, None], window[:, None])
            )
            found.append(t - paid)
            self.windows[some] = WINDOW * paid
            down = torch.where(lower < 1, (mass - 1) / (mass - lower), FARTHEST)
            up = torch.where(upper > 1, (1 - mass) / (upper - mass), FARTHEST)
            moved = t + window * torch.where(mass > 1, -down, up)
            lowest = t + above.amin(1)
            risen = lowest + 1e-3 * lowest.abs()  # where all prices have risen
            self.thresholds[some] = torch.where(mass > 0, moved, risen)
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
            columns = self.columns[some].long()
            held = self.costs[some] + prices_there[columns] < self.thresholds[some][:, None]
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
