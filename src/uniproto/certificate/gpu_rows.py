"""Bounds and lists of whole rows on a GPU, with torch, as `row_bounds.py` computes on the CPU.

Costs are those of the GPU's lists, in single precision; sums are made in double precision. A
threshold is guessed from some of the targets, which leaves a loss of some hundredths of a per
cent; those of rows that turn out low are corrected.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.row_groups import Bounded
from uniproto.certificate.thresholds import FARTHEST, WINDOW, share_of_squares
from uniproto.geometry.gpu_lists import GpuLists
from uniproto.problem.problem import Problem
from uniproto.runtime.gpu import product
from uniproto.runtime.threads import pieces_of

_TILE_SHARE = 12  # of the free GPU memory: one tile of costs
_LARGEST_TILE = 4 * 2**30
_FEWEST_GUESSED = 4096  # targets from which a threshold is guessed
_FEWEST_BELOW = 150  # of them below it
_DENSITY = 0.8  # of mass near a threshold, in units of mass² / paid: more where targets crowd
_ROOM = 1.05  # times the guess: where a corrected threshold may be at most


def gpu_rows(problem: Problem) -> GpuRows | None:
    """The problem's rows on a GPU, if its lists are built there."""
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
        self.units = float(capacity.sum())
        self.even = bool((capacity == capacity[0]).all())
        self.every = slice(None, None, _guessed_from(problem.n, self.units))
        self.squares = share_of_squares(problem.costs)
        if self.squares is not None:  # append |y|² to y, so that a squared distance is one product
            target = self.index.target
            lengths = (target * target).sum(1, keepdim=True)
            self.target = torch.cat([target, torch.ones_like(lengths), lengths], 1)
            self.sample = self.target[self.every].contiguous()

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
            before = mass_before = torch.nan
            for step in range(corrections + 1):
                value, mass = self._judged(costs, t, last=step == corrections)
                at = torch.where(value > best, t, at)
                best = torch.fmax(best, value)
                if step < corrections:
                    density = (mass - mass_before) / (t - before)
                    guessed = _DENSITY * mass * mass / (t - value)
                    density = torch.where(density > 0, density, guessed)
                    moved = torch.where(density > 0, t + (1 - mass) / density, t)
                    before, mass_before = t, mass
                    moved = torch.maximum(torch.minimum(moved, highest), -highest.abs())
                    t = moved.to(costs.dtype).double()
            # Prices are at least 0, so entries below t, and their rounding errors, are at most t.
            single = 8 * float(np.finfo(self.problem.costs.dtype).eps)
            double = 4 * self.problem.n * float(np.finfo(np.float64).eps)
            best -= (single + double * max(1.0, self.units)) * at.abs()
            places = np.arange(part.start, part.stop)
            yield places, best.cpu().numpy(), at.cpu().numpy()

    def below_limits(
        self, rows: NDArray[np.intp], prices: NDArray[np.float64], share: float
    ) -> Generator[tuple[Any, ...]]:
        """Targets with this share of all mass, the cheapest at these prices, of every row.

        Their counts, columns and costs, and the rows' thresholds, tile by tile, on the GPU.
        """
        torch = self.torch
        on_device = self._prices(prices)
        for part in self._tiles(len(rows)):
            costs = self.index.whole_rows(self._numbers(rows[part]))
            costs += on_device
            some = costs[:, self.every]
            thresholds = self._guessed(some, 1.0)
            limits = self._guessed(some, share * self.units)
            limits = torch.maximum(limits, thresholds).to(costs.dtype)
            listed = (costs <= limits[:, None]) & (self.capacity > 0)
            places = listed.nonzero()
            columns = places[:, 1]
            found = costs[places[:, 0], columns] - on_device[columns]
            yield (
                listed.sum(1),
                columns.int(),
                found.float(),
                thresholds,
            )

    def nearest_targets(
        self, targets: NDArray[np.intp], count: int
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The nearest of these targets to every target by their features, with distances."""
        torch, everything = self.torch, self.index.target
        some = everything.index_select(0, self._numbers(targets))
        distances, places = [], []
        for part in self._tiles(self.problem.n, len(targets)):
            found = torch.cdist(everything[part], some).topk(count, dim=1, largest=False)
            distances.append(found.values.double().cpu().numpy())
            places.append(found.indices.cpu().numpy())
        return np.concatenate(distances), np.concatenate(places)

    def _lowered(self, rows: NDArray[np.intp], prices: Any) -> tuple[Any, Any]:
        """Costs plus prices, lowered by their rounding error, and guessed thresholds.

        Below a threshold t a squared distance is at most t², and off by a share of (2|x| + t)².
        """
        costs = self.problem.costs
        numbers = self._numbers(rows)
        kind = float(np.finfo(costs.dtype).eps)
        if self.squares is None:
            block = self.index.whole_rows(numbers)
            block += prices - (costs.rounding + kind * costs.ceiling)
            return block, self._guessed(block[:, self.every], 1.0)
        source = self.index.source.index_select(0, numbers)
        squares = (source * source).sum(1, keepdim=True)
        sample = _squared(source, squares, self.sample).clamp_(min=0).sqrt_()
        guess = self._guessed(sample.add_(prices[self.every]), 1.0)
        reach = 2.01 * squares.double().sqrt().squeeze(1) + _ROOM * guess
        off = self.squares * (reach + kind * costs.ceiling) ** 2
        block = _squared(source, squares - off.to(squares.dtype)[:, None], self.target)
        return block.clamp_(min=0).sqrt_().add_(prices), guess

    def _guessed(self, some: Any, units: float) -> Any:
        """A threshold with about `units` of mass below it, from the costs of some targets."""
        torch, masses = self.torch, self.capacity[self.every]
        wanted = units * float(masses.sum()) / self.units
        if self.even:
            rank = min(some.shape[1], max(1, round(wanted / float(masses[0]))))
            return some.kthvalue(rank, dim=1).values.double()
        ordered, order = some.sort(dim=1)
        held = masses[order].cumsum(1)
        place = (held < wanted).sum(1, keepdim=True).clamp(max=some.shape[1] - 1)
        return torch.gather(ordered, 1, place).squeeze(1).double()

    def _judged(self, costs: Any, t: Any, *, last: bool) -> tuple[Any, Any]:
        """The values t − Σ a (t − w)⁺, and the mass below t. With `last`, costs are overwritten.

        Computed as Σ a min(w, t) − (Σ a − 1) t, which needs no mask.
        """
        torch = self.torch
        limits = t.to(costs.dtype)[:, None]
        mass = None
        if not last:
            below = costs < limits
            mass = below.sum(1) * self.capacity[0] if self.even else below.double() @ self.capacity
            del below  # a tile is large
        held = torch.minimum(costs, limits, out=costs if last else None)
        if self.even:
            summed = held.sum(1, dtype=torch.float64) * self.capacity[0]
        else:
            summed = held.double() @ self.capacity
        return summed - (self.units - 1) * t, mass

    def _prices(self, prices: NDArray[np.float64]) -> Any:
        return self.torch.from_numpy(prices).to(self.device, self.index.target.dtype)

    def _numbers(self, rows: NDArray[np.intp]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)

    def _tiles(self, count: int, columns: int | None = None) -> list[slice]:
        torch = self.torch
        free = 2**30
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
        tile = min(free // _TILE_SHARE, _LARGEST_TILE)
        wide = self.index.target.element_size() * (1 if self.even else 3)
        return pieces_of(count, max(1, tile // ((columns or self.problem.n) * wide)))


def _squared(source: Any, squares: Any, target: Any) -> Any:
    """|x|² − 2xy + |y|² as one product: the target holds 1 and |y|² next to y."""
    import torch

    return product(torch.cat([-2 * source, squares, torch.ones_like(squares)], 1), target.T)


def _guessed_from(targets: int, units: float) -> int:
    """The stride of the sample of targets from which a threshold is guessed."""
    return max(1, min(targets // _FEWEST_GUESSED, int(targets / units / _FEWEST_BELOW)))


# --- lists of the targets that matter to some rows: see `candidate_lists.py` ----------------------


_AT_ONCE = 2**28  # entries processed at a time
_FREE_SHARE = 3  # lists take at most a third of the free GPU memory
_BYTES = 2 * 8  # of an entry, while lists are built


class GpuCandidateLists:
    """Lists of targets as a padded matrix; padding has infinite cost."""

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
        # Without windows thresholds stay, and this computes the values at the initial ones.
        self.values(np.arange(len(rows)), prices.astype(np.float32), offered)

    def rooms(
        self, prices: NDArray[np.float64], offering: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """For each target, the sum of the rooms of the rows that list it, and their number."""
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
        """The rows' approximate values; updates their thresholds for the prices."""
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
        """The demand for each target, relative to its capacity, if rows have these shares."""
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
            # No more than a unit is taken, even if one target offers more.
            part = torch.where(mass > 2, part / mass.clamp(min=1), part)
            taken.index_add_(0, columns[held], part[:, None].expand(held.shape)[held])
        return np.asarray(taken.cpu().numpy())

    def averages(
        self, of_targets: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The mean of target values over the targets that each row takes."""
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
    """The number of rows whose lists of `entries` targets fit on the GPU."""
    if gpu.device.type != "cuda":
        return 2**31
    free, _ = gpu.torch.cuda.mem_get_info(gpu.device)
    return max(1, free // _FREE_SHARE // (_BYTES * max(1, entries)))
