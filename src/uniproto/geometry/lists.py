"""Neighbour lists, built on the processor, on a GPU, or by FAISS."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import require_name
from uniproto.geometry.costs import Costs
from uniproto.geometry.cpu_lists import CpuLists, rows_at_once
from uniproto.runtime.progress import Advance, Progress, unseen
from uniproto.runtime.threads import pieces_of

DEVICES = ("auto", "cpu", "cuda")
LISTS = ("exact", "faiss")
_SHARE_FOR_BUILDING = 8  # of the allowed memory, used while lists are built


class NeighbourIndex(Protocol):
    """A searchable set of columns."""

    def nearest(
        self, rows: NDArray[np.intp], length: int, advance: Advance = unseen
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The `length` cheapest columns of each row: costs and positions, cheapest first.

        Both are (rows, min(length, columns)); equal costs come in the order of their columns.
        `advance` is called with the number of rows done, part by part.
        """
        ...


class ListBuilder(Protocol):
    """Finds nearest columns; `exact` says whether none can be missed.

    `fills` is the length of list that serves best, counted in fills: longer lists last longer,
    shorter ones are cheaper to move and to read.
    """

    exact: bool
    fills: int

    def index(self, costs: Costs, columns: NDArray[np.intp] | None = None) -> NeighbourIndex:
        """An index of these columns (all of them by default)."""
        ...

    def notes(self) -> dict[str, Any]:
        """What the manifest records about these lists."""
        ...


def make_builder(device: str, lists: str, costs: Costs) -> ListBuilder:
    """The builder for `device` and `lists`; "auto" takes a GPU where torch sees one."""
    require_name("device", device, DEVICES)
    require_name("neighbours", lists, LISTS)
    if lists == "faiss":
        from uniproto.geometry.faiss_lists import FaissLists

        return FaissLists(costs)
    if device == "cpu":
        return CpuLists()
    from uniproto.geometry.gpu_lists import gpu_builder

    return gpu_builder(costs, required=device == "cuda") or CpuLists()


def lists_of(
    builder: ListBuilder,
    costs: Costs,
    rows: NDArray[np.intp],
    length: int,
    memory: int,
    progress: Progress,
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The lists of many rows, built group by group within `memory`, with a progress bar."""
    shape = (len(rows), min(length, costs.shape[1]))
    list_costs, list_columns = np.empty(shape, costs.dtype), np.empty(shape, np.int32)
    step = rows_at_once(shape[1], memory // _SHARE_FOR_BUILDING)
    index = builder.index(costs)
    with progress.stage("nearest targets", len(rows)) as advance:
        for piece in pieces_of(len(rows), step):
            list_costs[piece], list_columns[piece] = index.nearest(rows[piece], length, advance)
    return list_costs, list_columns
