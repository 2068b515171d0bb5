"""Neighbour lists on a GPU, with torch."""

from __future__ import annotations

import importlib.util
import math
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InfeasibleError, InvalidInputError, MissingExtraError
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk
from uniproto.runtime.gpu import driver_sees_gpu, product
from uniproto.runtime.progress import Advance, unseen
from uniproto.runtime.threads import parallel_for, pieces_of

_SMALLEST_WORK = 10**7  # entries of the cost matrix below which the CPU is as fast
_TILE_SHARE = 8  # of the free GPU memory: one tile of costs
_LARGEST_TILE = 6 * 2**30
_SMALLEST_TILE_ROWS = 16
_TIES_SETTLED_TOGETHER = 2**26  # costs of whole rows
_PINNED = 64 * 2**20
_HALF_FROM = 200_000  # targets from which half-precision products pay
_SMALLEST_GROUP = 3  # of columns that are processed together
_SPARE = 16  # extra columns that are fetched, to detect ties for the last place
_OVERFETCH = 1.3  # factor on the number of columns fetched with half-precision products
# Rounding unit rows to half precision changes their product by at most 2 · 2^-11, and rounding
# the product itself by 2^-11; a little more for sums of tiny terms.
_HALF_ERROR = 3.5 * 2.0**-11


def gpu_builder(costs: Costs, required: bool) -> GpuLists | None:
    """A builder where torch sees a GPU and the costs suit it; otherwise None, or an error."""
    suits = isinstance(costs, FeatureCosts) and not sp.issparse(costs.source)
    if not suits:
        if required:
            raise InvalidInputError(
                "must be 'cpu' for cost matrices and sparse features. Pass device='cpu', "
                "or dense features.",
                parameter="device",
            )
        return None
    if importlib.util.find_spec("torch") is None:
        if required:
            raise MissingExtraError("device='cuda'", "torch")
        return None
    # Loading torch takes seconds, so only with a GPU and enough work.
    worthwhile = costs.shape[0] * costs.shape[1] >= _SMALLEST_WORK
    if (required or worthwhile) and driver_sees_gpu():
        import torch

        if torch.cuda.is_available():
            return GpuLists()
    if required:
        raise InvalidInputError(
            "is 'cuda', but torch sees no GPU. Pass device='cpu', or install a CUDA build "
            "of torch.",
            parameter="device",
        )
    return None


class GpuLists:
    """Exact lists by matrix products on a GPU; source and target stay there between calls."""

    exact, fills = True, 6

    def __init__(self) -> None:
        self._held: tuple[Costs, Any, Any] | None = None

    def index(self, costs: Costs, columns: NDArray[np.intp] | None = None) -> GpuIndex:
        import torch

        assert isinstance(costs, FeatureCosts)
        if self._held is None or self._held[0] is not costs:
            target = _upload(costs.target)
            source = target if costs.source is costs.target else _upload(costs.source)
            self._held = (costs, source, target)
        _, source, target = self._held
        if columns is not None:
            target = target.index_select(0, torch.from_numpy(columns).to(target.device))
        return GpuIndex(costs, source, target)

    def free_memory(self) -> int:
        """Free bytes of the GPU's memory."""
        import torch

        return int(torch.cuda.mem_get_info()[0])

    def notes(self) -> dict[str, Any]:
        import torch

        return {"device": torch.cuda.get_device_name()}


class GpuIndex:
    """Rows on the GPU, and the targets that are searched for their neighbours."""

    def __init__(self, costs: FeatureCosts, source: Any, target: Any) -> None:
        self.costs, self.dtype = costs, costs.dtype
        self.source, self.target = source, target
        self._squares = (target * target).sum(1) if costs.distance.centred else None
        half = costs.metric == "cosine" and self.dtype == np.float32
        half = half and len(target) >= _HALF_FROM
        self._half = target.half() if half else None

    def nearest(
        self, rows: NDArray[np.intp], length: int, advance: Advance = unseen
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        import torch

        from uniproto.geometry.kernels import order_ties

        length = min(length, len(self.target))
        costs = np.empty((len(rows), length), self.dtype)
        columns = np.empty((len(rows), length), np.int32)
        step = self._rows_per_tile()
        start = 0
        while start < len(rows):
            part = slice(start, min(start + step, len(rows)))
            try:
                found, where = self._tile(rows[part], length)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                if step <= _SMALLEST_TILE_ROWS:
                    raise InfeasibleError(
                        f"Not enough GPU memory for {_SMALLEST_TILE_ROWS} rows of "
                        f"{len(self.target):,} costs. Pass device='cpu'."
                    ) from None
                step = max(_SMALLEST_TILE_ROWS, step // 2)
                continue
            self._download(found, costs[part])
            self._download(where.int(), columns[part])
            advance(part.stop - start)
            start = part.stop

        def settle(piece: slice) -> None:
            order_ties(costs[piece], columns[piece])

        parallel_for(settle, pieces_of(len(rows), 4096))
        return costs, columns

    def _download(self, values: Any, place: NDArray[Any]) -> None:
        """Copy from the GPU through pinned memory, which is several times faster."""
        pinned = _pinned_memory()
        rows = pinned.numel() // (values.shape[1] * values.element_size())
        if rows == 0:  # not even one row fits
            place[:] = values.cpu().numpy()
            return
        for start in range(0, len(values), rows):
            part = values[start : start + rows]
            stop = part.numel() * part.element_size()
            buffer = pinned[:stop].view(part.dtype).view(part.shape)
            buffer.copy_(part)
            place[start : start + rows] = buffer.numpy()

    def _rows_per_tile(self) -> int:
        import torch

        free, _ = torch.cuda.mem_get_info(self.target.device)
        tile = min(free // _TILE_SHARE, _LARGEST_TILE)
        entry = 2 if self._half is not None else self.target.element_size()
        return max(_SMALLEST_TILE_ROWS, tile // (len(self.target) * entry))

    def _tile(self, rows: NDArray[np.intp], length: int) -> tuple[Any, Any]:
        """Costs and columns of the `length` nearest, for rows that fit one tile."""
        import torch

        source = self.source.index_select(0, torch.from_numpy(rows).to(self.source.device))
        fetched = int(_OVERFETCH * length) + 64
        if self._half is None or fetched >= len(self.target) // 4:
            return self._nearest_exactly(source, length)
        products, where = _top(product(source.half(), self._half.T), fetched, largest=True)
        # No omitted column has a product above this, also in single precision.
        limit = products[:, -1].float() + _HALF_ERROR
        exact = torch.empty(where.shape, dtype=torch.float32, device=where.device)
        for part in torch.arange(len(source), device=where.device).split(256):
            exact[part] = product(self.target[where[part]], source[part].unsqueeze(2)).squeeze(2)
        costs = (1 - exact).clamp_(min=0)
        best, order = costs.topk(length + _SPARE, dim=1, largest=False)
        found, columns, tied = _cut(best, where.gather(1, order), length)
        unsure = found[:, -1] >= 1 - limit
        unsure[tied] = True
        unsure = torch.nonzero(unsure).squeeze(1)
        if len(unsure):
            found[unsure], columns[unsure] = self._nearest_exactly(source[unsure], length)
        return found, columns

    def whole_rows(self, rows: Any) -> Any:
        """The costs of some source rows, by a tensor of their numbers, to every target."""
        return self._costs(self.source.index_select(0, rows))

    def every_cost(self) -> Any:
        """The costs of all source rows to every target."""
        return self._costs(self.source)

    def _costs(self, source: Any) -> Any:
        costs = self.costs.distance.on_gpu(source, self.target, self._squares)
        if self.costs.shift:
            costs = costs.add_(self.costs.shift)
        return self.costs.curve.on_gpu(costs)

    def _nearest_exactly(self, source: Any, length: int) -> tuple[Any, Any]:
        costs = self._costs(source)
        fetched = min(length + _SPARE, costs.shape[1])
        found, columns, tied = _cut(*_top(costs, fetched, largest=False), length)
        if fetched < costs.shape[1]:
            for rows in tied.split(max(1, _TIES_SETTLED_TOGETHER // costs.shape[1])):
                columns[rows] = _lowest_columns(costs[rows], found[rows])
        return found, columns


def _top(values: Any, count: int, *, largest: bool) -> tuple[Any, Any]:
    """The `count` first of every row in order of their values, and their columns, as `topk`.

    None of them is outside of the `count` groups of columns whose own first come first, so that
    far fewer are sorted.
    """
    import torch

    width = values.shape[1]
    size = math.isqrt(width // count)
    if size < _SMALLEST_GROUP:
        return values.topk(count, dim=1, largest=largest)
    # Columns of a group are strided, so that neighbouring columns are in different groups.
    apart = width // size
    groups = values[:, : size * apart].unflatten(1, (size, apart))
    firsts = groups.amax(1) if largest else groups.amin(1)
    likely = firsts.topk(count, dim=1, largest=largest).indices
    members = groups.gather(2, likely[:, None, :].expand(-1, size, -1)).flatten(1)
    left = values[:, size * apart :]
    found, place = torch.cat([members, left], 1).topk(count, dim=1, largest=largest)
    inside = place // count * apart + likely.gather(1, place % count)
    return found, torch.where(place < size * count, inside, place + size * (apart - count))


def _cut(costs: Any, columns: Any, length: int) -> tuple[Any, Any, Any]:
    """The `length` cheapest of some columns, sorted by cost; of those that tie, the lowest.

    Also gives the rows in which columns that are not among them may tie for the last place too.
    """
    import torch

    found, nearest = costs[:, :length], columns[:, :length]
    last = found[:, -1]
    tied = torch.nonzero((costs[:, length:] == last[:, None]).any(1)).squeeze(1)
    if len(tied):
        ascending, order = columns[tied].sort(dim=1)
        order = costs[tied].gather(1, order).sort(dim=1, stable=True).indices
        nearest[tied] = ascending.gather(1, order)[:, :length]
    return found, nearest, tied[costs[tied, -1] == last[tied]]


def _lowest_columns(costs: Any, found: Any) -> Any:
    """The columns of the lowest costs `found` in whole rows; of those that tie, the lowest."""
    last = found[:, -1:]
    nearer, tied = costs < last, costs == last
    missing = found.shape[1] - nearer.sum(1, keepdim=True)
    chosen = nearer | (tied & (tied.cumsum(1) <= missing))
    columns = chosen.nonzero()[:, 1].view(found.shape)  # ascending
    order = costs.gather(1, columns).sort(dim=1, stable=True).indices
    return columns.gather(1, order)


@cache
def _pinned_memory() -> Any:
    import torch

    return torch.empty(_PINNED, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def _upload(rows: Any) -> Any:
    import torch

    def moved(part: NDArray[Any]) -> Any:
        return torch.from_numpy(np.require(part, requirements=["C", "W"])).to("cuda")

    try:
        if not isinstance(rows, RowsOnDisk):
            return moved(rows)
        uploaded = moved(rows[:1]).new_empty(rows.shape)
        for part in row_blocks(*rows.shape):
            uploaded[part] = moved(rows[part])
        return uploaded
    except torch.OutOfMemoryError as error:
        raise InfeasibleError(
            f"Not enough GPU memory for {rows.shape[0]:,} rows of {rows.shape[1]} features. Pass "
            "device='cpu'."
        ) from error
