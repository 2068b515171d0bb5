"""Costs of feature rows under a metric, from memory or from disk, block by block."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import float_type
from uniproto.errors import InvalidInputError
from uniproto.geometry.bandwidth import MedianShare, sampled_pairs
from uniproto.geometry.blocks import (
    COLUMNS_PER_BLOCK,
    EVERY,
    Rows,
    length_of,
    row_blocks,
    rows_in_block,
    within,
)
from uniproto.geometry.distances import refine_small, require_finite_sums
from uniproto.geometry.features import (
    RowsOnDisk,
    greatest_length,
    is_sparse,
    mean_row,
    prepare,
    readable_as_doubles,
    unit_rows,
)
from uniproto.geometry.metrics import OF_FEATURES, Curve, Metric, require_width
from uniproto.geometry.twins import FeatureTwins, TwinFinder, are_within, distances_from
from uniproto.runtime.threads import parallel_for, pieces_of

_CACHED_ENTRIES = 2**24  # of a target in memory, cached in double precision


class FeatureCosts:
    """Costs of feature rows under a metric, dense or sparse, in single or double precision."""

    def __init__(
        self,
        source: Any,
        target: Any,
        metric: str,
        shift: float | None = None,
        reach: float | None = None,
        prepared: bool = False,
        given: tuple[Any, Any] | None = None,
        centre: NDArray[np.float64] | None = None,
        bandwidth: float | MedianShare | None = None,
    ) -> None:
        """`given` and `centre` say what rows that are `prepared` already were prepared from.

        `reach` is an upper bound on every distance that costs are made from.
        """
        self.metric = metric
        self.distance = OF_FEATURES[metric].distance
        self.dtype = np.result_type(float_type(source.dtype), float_type(target.dtype))
        self.shape = (source.shape[0], target.shape[0])
        self._centre = centre
        self._cached_target: Any = None
        self._table: tuple[NDArray[Any], float] | None = None
        self._in_table: tuple[Rows, Rows] = (EVERY, EVERY)
        self.shift = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # such costs are refused below
            self.source, self.target = (
                (source, target) if prepared else self._prepared(source, target)
            )
            # Preparing rows in single precision rounds them: exact costs go back to those given.
            before = given if prepared else (source, target)
            self._originals = before or (source, target)
            self._as_given = before is not None and self.dtype == np.float32
            rows = before if before and self._as_given else (self.source, self.target)
            self._given = tuple(map(readable_as_doubles, rows))
            self._places: tuple[Rows, Rows] = (EVERY, EVERY)  # of the rows it was made from
            self.curve, self.bandwidth = self._curve(bandwidth)
            if shift is not None and reach is not None:
                self.shift, self.reach = shift, reach
            else:
                if metric == "dot":  # cost = max − product: the maximum takes a pass of its own
                    self.shift = self._largest_product()
                self.reach = self.distance.reach(self.source, self.target)
                self._require_range(prepared)
        self.ceiling = self.shift + self._cost_of(self.reach)
        # How far distances may be off in this precision, and so costs.
        scale = self.reach + self.shift + abs(self.shift)
        self.distance_rounding = self._relative_rounding() * scale
        single = self.curve.rounds * float(np.finfo(self.dtype).eps)
        self.rounding = self._cost_of(self.distance_rounding) + single

    def _curve(self, bandwidth: float | MedianShare | None) -> tuple[Curve, float | None]:
        """How costs rise with the distance, and the bandwidth in numbers."""
        if isinstance(bandwidth, MedianShare):
            self.curve = self._metric_apart.curve_for(None)  # for now costs are plain distances
            bandwidth = bandwidth.of(self.exact_block(*sampled_pairs(*self.shape)))
        return OF_FEATURES[self.metric].curve_for(bandwidth), bandwidth

    def _cost_of(self, distance: float) -> float:
        return float(self.curve.of(np.array([distance]))[0])

    @property
    def _metric_apart(self) -> Metric:
        """The metric that tells how far apart two rows are."""
        return OF_FEATURES[OF_FEATURES[self.metric].apart or self.metric]

    def _prepared(self, source: Any, target: Any) -> tuple[Any, Any]:
        unit_length, centre = self.distance.unit_length, None
        if self.distance.centred and not is_sparse(source, target):
            # Distances do not change, and x² + y² − 2xy loses fewer digits near the origin.
            centre = self._centre = mean_row(target)
        ready = prepare(source, self.dtype, unit_length=unit_length, centre=centre)
        if source is target:
            return ready, ready
        return ready, prepare(
            target, self.dtype, unit_length=unit_length, centre=centre, parameter="target"
        )

    @property
    def refines_small_costs(self) -> bool:
        """Whether small exact costs are computed from differences, and keep their digits."""
        return self.distance.refined and not is_sparse(self.source)

    @property
    def on_disk(self) -> bool:
        return isinstance(self.source, RowsOnDisk) or isinstance(self.target, RowsOnDisk)

    def _largest_product(self) -> float:
        """The largest product of two rows, in double precision."""
        largest = np.full(self.shape[0], -np.inf)
        for columns in self.column_blocks():
            part = self.read(EVERY, columns)
            for rows in row_blocks(*part.shape):
                found = -part.block(rows).min(axis=1)  # without a shift yet
                largest[rows] = np.maximum(largest[rows], found)
        slack = 2 * self._relative_rounding() * greatest_length(self.source)
        slack *= greatest_length(self.target)
        overflowed = not np.isfinite(slack + largest.max())  # which is refused by and by
        if self.dtype == np.float64 or overflowed:
            return float(largest.max())
        likely = np.flatnonzero(largest >= largest.max() - slack)
        products = (
            self._exact(0, likely[rows]) @ self._exact(1, columns).T
            for columns in self.column_blocks()
            for rows in row_blocks(len(likely), columns.stop - columns.start)
        )
        return max(float(product.max()) for product in products)

    def _relative_rounding(self) -> float:
        """How far a product of w terms may be off: about w units in the last place."""
        return (self.source.shape[1] + 16) * float(np.finfo(self.dtype).eps)

    def from_table(self, table: NDArray[Any], unit: float) -> FeatureCosts:
        """The same costs, read from a table of all of them in some unit, not computed again."""
        held = copy.copy(self)
        held._table = (table, unit)
        return held

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        if self._table is not None:
            table, unit = self._table
            some, others = within(self._in_table[0], rows), within(self._in_table[1], columns)
            return np.multiply(_part(_part(table, some).T, others).T, unit, order="C")
        if self.on_disk:
            return self._by_parts(rows, columns, exact=False)
        return self._costs(_part(self.source, rows), _part(self.target, columns))

    def block_of_points(self, points: NDArray[Any], columns: Rows = EVERY) -> NDArray[Any]:
        """Costs of free points, in the space of the prepared rows, against some columns."""
        return self._costs(points, _read(self.target, columns))

    def block_to_points(self, rows: Rows, points: NDArray[Any]) -> NDArray[Any]:
        """Costs of some rows against free points in place of targets."""
        return self._costs(_read(self.source, rows), points)

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        if self.on_disk or self.shape[1] * self.target.shape[1] > _CACHED_ENTRIES:
            return self._by_parts(rows, columns, exact=True)
        if self._cached_target is None:
            self._cached_target = self._exact(1, EVERY)
        return self._exact_costs(self._exact(0, rows), _part(self._cached_target, columns))

    def _by_parts(self, rows: Rows, columns: Rows, *, exact: bool) -> NDArray[Any]:
        """Costs for which few rows at a time are read from disk, or turned into doubles."""
        shape = (length_of(rows, self.shape[0]), length_of(columns, self.shape[1]))
        tiles = [
            (some, others)
            for some in _parts(self.source, shape[0], exact)
            for others in _parts(self.target, shape[1], exact)
        ]
        if len(tiles) == 1:
            return self._tile(rows, columns, exact)
        costs = np.empty(shape, np.float64 if exact else self.dtype)

        def fill(tile: tuple[slice, slice]) -> None:
            costs[tile] = self._tile(within(rows, tile[0]), within(columns, tile[1]), exact)

        parallel_for(fill, tiles)
        return costs

    def _tile(self, rows: Rows, columns: Rows, exact: bool) -> NDArray[Any]:
        if exact:
            return self._exact_costs(self._exact(0, rows), self._exact(1, columns))
        return self._costs(_read(self.source, rows), _read(self.target, columns))

    def _costs(self, source: Any, target: Any) -> NDArray[Any]:
        return self.from_distances(self.distance.between(source, target))

    def from_distances(self, distances: NDArray[Any]) -> NDArray[Any]:
        if self.shift:
            distances += distances.dtype.type(self.shift)
        return self.curve.of(distances)

    def _exact(self, side: int, rows: Rows) -> Any:
        """Rows of the source (side 0) or the target (1), prepared in double precision."""
        given = _read(self._given[side], within(self._places[side], rows)).astype(np.float64)
        if self.distance.unit_length:
            return unit_rows(given, ("source", "target")[side])
        if self._centre is None or not self._as_given:
            return given
        return given - self._centre

    def given(self, side: int, rows: Rows = EVERY) -> Any:
        """Rows of the source (side 0) or the target (1) as they were given, in memory."""
        return _read(self._originals[side], within(self._places[side], rows))

    def _exact_costs(self, source: Any, target: Any) -> NDArray[np.float64]:
        distances = self.distance.between(source, target)
        if self.refines_small_costs:
            refine_small(distances, source, target, self.distance.unit_length)
        return np.maximum(self.from_distances(distances), 0.0)

    def restrict(self, rows: Rows, columns: Rows) -> FeatureCosts:
        source = _only(self.source, rows)
        one_set = self.source is self.target and _are_same(rows, columns)
        part = self._between(source, source if one_set else _only(self.target, columns))
        return part._placed(rows, columns)

    def read(self, rows: Rows, columns: Rows) -> FeatureCosts:
        part = self._between(_part(self.source, rows), _part(self.target, columns))
        return part._placed(rows, columns)

    def _between(self, source: Any, target: Any) -> FeatureCosts:
        part = copy.copy(self)
        part.source, part.target, part._cached_target = source, target, None
        part.shape = (source.shape[0], target.shape[0])
        return part

    def _placed(self, rows: Rows, columns: Rows) -> FeatureCosts:
        """Note which of the original rows this new object covers."""
        self._places = within(self._places[0], rows), within(self._places[1], columns)
        if self._table is not None:
            self._in_table = within(self._in_table[0], rows), within(self._in_table[1], columns)
        return self

    def column_blocks(self, most: int = COLUMNS_PER_BLOCK) -> Iterator[slice]:
        if isinstance(self.target, RowsOnDisk):
            # Rows are prepared in double precision on the way.
            most = min(most, rows_in_block(self.target.shape[1] * 8))
        yield from pieces_of(self.shape[1], most)

    def twin_distances(self, row: int, rows: Rows = EVERY) -> NDArray[np.float64]:
        own = self.source[row : row + 1]
        parts = row_blocks(length_of(rows, self.shape[0]), self.source.shape[1])
        return np.concatenate(
            [
                distances_from(own, self.source[within(rows, part)], self._metric_apart)
                for part in parts
            ]
        )

    def twins(self, row: int, distance: float, rows: Rows = EVERY) -> NDArray[np.bool_]:
        own, metric = self.source[row : row + 1], self._metric_apart
        near = np.zeros(length_of(rows, self.shape[0]), np.bool_)

        def look(part: slice) -> None:
            near[part] = are_within(own, self.source[within(rows, part)], metric, distance)

        parallel_for(look, row_blocks(len(near), self.source.shape[1]))
        return near

    def twin_finder(self, distance: float) -> TwinFinder:
        return FeatureTwins(self.source, self._metric_apart, distance)

    def unsaturated(self) -> FeatureCosts:
        """The same rows with costs that tell all distances apart, far ones too."""
        if self.bandwidth is None:
            return self
        part = copy.copy(self)
        part.metric, part.bandwidth = self._metric_apart.name, None
        part.curve = self._metric_apart.curve_for(None)
        part.ceiling = part._cost_of(part.reach)
        part.rounding = part._cost_of(part.distance_rounding)
        return part

    def _require_range(self, prepared: bool) -> None:
        """Refuse features whose costs overflow, or vanish although the features do not."""
        largest = self.shift + (self._cost_of(self.reach) if self.bandwidth is None else self.reach)
        require_finite_sums(largest, self.metric, self.dtype, "Rescale the features.")
        if self.bandwidth is not None:
            require_width(self.curve, self.reach, self.dtype, self.bandwidth)
        if prepared or not self.distance.multiplies:
            return
        kind = np.finfo(self.dtype)
        smallest = float(kind.tiny / kind.eps)  # a square with all its digits
        # Rows that are alike but for rounding are no further apart than that from their mean.
        centre = 0.0 if self._centre is None else float(np.abs(self._centre).max())
        lengths = [greatest_length(side) for side in (self.source, self.target)]
        by_product = self.metric == "dot"
        square = lengths[0] * lengths[1] if by_product else max(lengths) ** 2
        some = min(lengths) > 0 if by_product else max(lengths) > 0
        if some and square < smallest and centre < smallest**0.5:
            raise InvalidInputError(
                f"'source' must have features of at least {smallest**0.5:.2g} in {self.dtype} when "
                f"metric={self.metric!r}. Rescale the features."
            )


def _part(features: Any, rows: Rows) -> Any:
    """Rows in memory, or everything as it is."""
    return features if isinstance(rows, slice) and rows == EVERY else features[rows]


def _parts(features: Any, count: int, exact: bool) -> list[slice]:
    if isinstance(features, RowsOnDisk) or (exact and not sp.issparse(features)):
        return list(row_blocks(count, features.shape[1]))
    return [EVERY]


def _read(features: Any, rows: Rows) -> Any:
    """Rows in memory."""
    return features[rows] if isinstance(features, RowsOnDisk) else _part(features, rows)


def _only(features: Any, rows: Rows) -> Any:
    """Some rows; those on disk stay there, because they may be most of them."""
    if isinstance(features, RowsOnDisk) and not (isinstance(rows, slice) and rows == EVERY):
        which = np.arange(*rows.indices(features.shape[0])) if isinstance(rows, slice) else rows
        return features.only(which)
    return _part(features, rows)


def _are_same(rows: Rows, columns: Rows) -> bool:
    if isinstance(rows, slice) or isinstance(columns, slice):
        return isinstance(rows, slice) and isinstance(columns, slice) and rows == columns
    return np.array_equal(rows, columns)
