"""Approximate neighbour lists with FAISS, with their recall measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, needing
from uniproto.geometry.blocks import spread_rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.cpu_lists import nearest
from uniproto.geometry.distances import Angles, Products
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import greatest_length
from uniproto.geometry.metrics import OF_FEATURES
from uniproto.runtime.progress import Advance, unseen

_SUITABLE = tuple(
    metric.name for metric in OF_FEATURES.values() if metric.distance.by_product is not None
)
_PROBES = 32  # cells searched for each row
_LARGEST_SQUARE = float(np.finfo(np.float32).max) / 16
_ROWS_CHECKED = 64  # rows whose lists are compared with exact ones


class FaissLists:
    """Lists from an inverted-file index, which searches only the cells nearest to a row.

    Costs are computed exactly for the columns found; columns in other cells are missed. The share
    that was found, measured on a sample of rows, is in the notes as `list_recall`.
    """

    exact, fills = False, 8

    def __init__(self, costs: Costs) -> None:
        if not (
            isinstance(costs, FeatureCosts)
            and costs.metric in _SUITABLE
            and not sp.issparse(costs.source)
        ):
            raise InvalidInputError(
                f"must be 'exact' unless features are dense and the metric is one of {_SUITABLE}.",
                parameter="neighbours",
            )
        reach = max(greatest_length(side) for side in (costs.source, costs.target))
        if not reach**2 < _LARGEST_SQUARE:  # FAISS would abort the process
            raise InvalidInputError(
                f"must be 'exact' for rows of length {reach:.3g}, or rescale the features.",
                parameter="neighbours",
            )
        with needing("neighbours='faiss'", "faiss"):
            import faiss  # noqa: F401
        self._found = self._wanted = 0

    def index(self, costs: Costs, columns: NDArray[np.intp] | None = None) -> _FaissIndex:
        assert isinstance(costs, FeatureCosts)
        part = costs if columns is None else costs.restrict(slice(None), columns)
        return _FaissIndex(self, part)

    def count(self, found: int, wanted: int) -> None:
        self._found += found
        self._wanted += wanted

    def notes(self) -> dict[str, Any]:
        return {"list_recall": self._found / self._wanted if self._wanted else 1.0}


class _FaissIndex:
    def __init__(self, builder: FaissLists, costs: FeatureCosts) -> None:
        import faiss

        self.builder, self.costs = builder, costs
        n, width = costs.target.shape
        target = np.ascontiguousarray(costs.target[:], np.float32)
        by_product = bool(costs.distance.by_product)
        kind = faiss.METRIC_INNER_PRODUCT if by_product else faiss.METRIC_L2
        cells = max(1, min(int(np.sqrt(n)), n // 39))  # too few points for good centres
        quantiser = faiss.IndexFlatIP(width) if by_product else faiss.IndexFlatL2(width)
        self.index = faiss.IndexIVFFlat(quantiser, width, cells, kind)
        self.index.cp.seed = 0
        self.index.cp.min_points_per_centroid = 1  # do not warn about few targets
        self.index.train(target)
        self.index.add(target)
        self.index.nprobe = min(_PROBES, cells)

    def nearest(
        self, rows: NDArray[np.intp], length: int, advance: Advance = unseen
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        from uniproto.geometry.kernels import order_ties

        length = min(length, self.costs.shape[1])
        queries = np.ascontiguousarray(self.costs.source[rows], np.float32)
        scores, columns = self.index.search(queries, length)
        short = np.flatnonzero((columns < 0).any(axis=1))  # too few columns in the cells searched
        costs = self._costs(rows, scores)
        if short.size:
            costs[short], columns[short] = nearest(self.costs, rows[short], length)
        order = np.argsort(costs, axis=1, kind="stable")
        list_costs = np.take_along_axis(costs, order, axis=1)
        list_columns = np.take_along_axis(columns, order, axis=1).astype(np.int32)
        order_ties(list_costs, list_columns)
        self._measure(rows, list_columns, length)
        advance(len(rows))
        return list_costs, list_columns

    def _costs(self, rows: NDArray[np.intp], scores: NDArray[np.float32]) -> NDArray[Any]:
        distance, scores = self.costs.distance, scores.astype(self.costs.dtype)
        if isinstance(distance, Angles | Products):
            return self.costs.from_distances(distance.of_products(scores))
        return self.costs.from_distances(np.maximum(scores, 0))

    def _measure(self, rows: NDArray[np.intp], columns: NDArray[Any], length: int) -> None:
        sample = spread_rows(len(rows), _ROWS_CHECKED)
        _, true = nearest(self.costs, rows[sample], length)
        found = sum(len(np.intersect1d(a, b)) for a, b in zip(columns[sample], true, strict=True))
        self.builder.count(found, true.size)
