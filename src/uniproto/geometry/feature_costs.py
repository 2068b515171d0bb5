"""Costs of feature rows under a metric, from memory or from disk, block by block."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from fractions import Fraction
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
from uniproto.geometry.distances import (
    error_of_refined,
    exact_product,
    refine_products,
    refine_small,
    require_finite_sums,
    terms_of,
)
from uniproto.geometry.features import (
    RowsOnDisk,
    greatest_length,
    is_sparse,
    middle_row,
    prepare,
    readable_as_doubles,
    unit_rows,
)
from uniproto.geometry.metrics import OF_FEATURES, Curve, Metric, require_width
from uniproto.geometry.twins import FeatureTwins, TwinFinder, are_within, distances_from
from uniproto.runtime.threads import parallel_for, pieces_of

_CACHED_ENTRIES = 2**24  # of a target in memory, cached in double precision
_BYTES_EXACT = 32  # of a number: rows as given, prepared, and on the way, all as doubles
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
_IN_FRACTIONS = 2**14  # numbers of all pairs of rows, up to which products may be fractions
_OF_PRODUCTS = 2.5e-10  # relative error that rounding of products leaves in larger costs
_OF_ANGLES = 1e-10  # relative error of an angle's cost, with a negligible absolute one

Exact = tuple[Any, Any]  # rows prepared in double precision, and rows whose differences count


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
        self._compared_rows: Any = None
        self._table: tuple[NDArray[Any], float] | None = None
        self._in_table: tuple[Rows, Rows] = (EVERY, EVERY)
        self.shift = 0.0
        self._largest: Fraction | None = None  # product, where fractions are used
        with np.errstate(over="ignore", invalid="ignore"):  # such costs are refused below
            self.source, self.target = (
                (source, target) if prepared else self._prepared(source, target)
            )
            # Preparing rows rounds them, so exact costs use the rows as given.
            self._originals = given or (source, target)
            self._given = tuple(map(readable_as_doubles, self._originals))
            self._places: tuple[Rows, Rows] = (EVERY, EVERY)  # of the original rows
            self.curve, self.bandwidth = self._curve(bandwidth)
            if shift is not None and reach is not None:
                self.shift, self.reach = shift, reach
            else:
                if metric == "dot":  # cost = max − product: the maximum needs its own pass
                    self.shift = self._largest_product()
                self.reach = self.distance.reach(self.source, self.target)
                self._require_range(prepared)
        self.ceiling = self.shift + self._cost_of(self.reach)
        # Error bounds of distances, and therefore costs, in this precision.
        scale = self.reach + self.shift + abs(self.shift)
        self.distance_rounding = self._relative_rounding() * scale
        single = self.curve.rounds * float(np.finfo(self.dtype).eps)
        self.rounding = self._cost_of(self.distance_rounding) + single

    @property
    def originals(self) -> tuple[Any, Any]:
        """Source and target as they were given, before anything was moved or scaled."""
        return self._originals

    def _curve(self, bandwidth: float | MedianShare | None) -> tuple[Curve, float | None]:
        """The curve from distance to cost, and the bandwidth as a number."""
        if isinstance(bandwidth, MedianShare):
            self.curve = self._metric_apart.curve_for(None)  # until then, costs are plain distances
            bandwidth = bandwidth.of(self.exact_block(*sampled_pairs(*self.shape)))
        return OF_FEATURES[self.metric].curve_for(bandwidth), bandwidth

    def _cost_of(self, distance: float) -> float:
        return float(self.curve.of(np.array([distance]))[0])

    @property
    def _metric_apart(self) -> Metric:
        """The metric of the distance between two rows."""
        return OF_FEATURES[OF_FEATURES[self.metric].apart or self.metric]

    def _prepared(self, source: Any, target: Any) -> tuple[Any, Any]:
        unit_length, centre = self.distance.unit_length, None
        if self.distance.centred and not is_sparse(source, target):
            # Distances do not change, and x² + y² − 2xy loses fewer digits near the origin.
            centre = self._centre = middle_row(target)
        ready = prepare(source, self.dtype, unit_length=unit_length, centre=centre)
        if source is target:
            return ready, ready
        return ready, prepare(
            target, self.dtype, unit_length=unit_length, centre=centre, parameter="target"
        )

    @property
    def exact_error(self) -> tuple[float, float]:
        """The error of `exact_block`: an absolute part, and a share of the cost.

        Distances from differences of rows as given are off by a share of themselves, unless their
        squares vanish. Scaling rows to length 1 rounds them, by e: that changes a cost c by e²
        and e√(2c), which is at most t·c + e²/t for every t. Products are off by what they sum.
        """
        distance, terms = self.distance, terms_of(self.source, self.target)
        summed = (terms + 16) * _EPS
        if not (distance.refined or distance.absolute):
            exactly = self._largest is not None
            return (0.0, _OF_PRODUCTS) if exactly else (self._error_of_products(), _EPS)
        share = error_of_refined(terms) if distance.refined else summed
        share += self.curve.rounds * _EPS
        if distance.unit_length:
            return summed**2 + (4 * _EPS) ** 2 / _OF_ANGLES, share + _OF_ANGLES
        least = self._cost_of(terms * _TINY) if distance.refined else 0.0
        return (max(least, _TINY) if self.curve.rounds else least), share

    @property
    def zero_is_exact(self) -> bool:
        distance = self.distance
        refined = distance.absolute or (distance.refined and not distance.unit_length)
        return refined or self._largest is not None

    def _error_of_products(self) -> float:
        summed = (terms_of(self.source, self.target) + 16) * _EPS
        return 2 * summed * (self.reach + abs(self.shift))

    @property
    def on_disk(self) -> bool:
        return isinstance(self.source, RowsOnDisk) or isinstance(self.target, RowsOnDisk)

    def _largest_product(self) -> float:
        """The largest product of two rows, in double precision."""
        largest = np.full(self.shape[0], -np.inf)
        for columns in self.column_blocks():
            part = self.read(EVERY, columns)
            for rows in row_blocks(*part.shape):
                found = -part.block(rows).min(axis=1)  # before the shift is known
                largest[rows] = np.maximum(largest[rows], found)
        slack = 2 * self._relative_rounding() * greatest_length(self.source)
        slack *= greatest_length(self.target)
        overflowed = not np.isfinite(slack + largest.max())  # rejected later
        is_small = self.shape[0] * self.shape[1] * self.source.shape[1] <= _IN_FRACTIONS
        in_fractions = is_small and not (self.on_disk or is_sparse(self.source))
        if overflowed or (self.dtype == np.float64 and not in_fractions):
            return float(largest.max())
        likely = np.flatnonzero(largest >= largest.max() - slack)
        if in_fractions:
            self._largest = max(
                exact_product(x, y)
                for x in self._exact(0, likely)[1]
                for y in self._exact(1, EVERY)[1]
            )
            return float(self._largest)
        products = (
            self._exact(0, likely[rows])[0] @ self._exact(1, columns)[0].T
            for columns in self.column_blocks()
            for rows in row_blocks(len(likely), columns.stop - columns.start)
        )
        return max(float(product.max()) for product in products)

    def _relative_rounding(self) -> float:
        """The rounding error of a product of w terms: about w units in the last place."""
        return (self.source.shape[1] + 16) * float(np.finfo(self.dtype).eps)

    def from_table(self, table: NDArray[Any], unit: float) -> FeatureCosts:
        """The same costs, read from a precomputed table in some unit."""
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
        ready, given = self._cached_target
        target = _part(ready, columns), _part(given, columns)
        return self._exact_costs(self._exact(0, rows), target)

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

    def _exact(self, side: int, rows: Rows) -> Exact:
        """Rows of the source (side 0) or the target (1), prepared in double precision."""
        given = _read(self._given[side], within(self._places[side], rows))
        given = given.astype(np.float64, copy=False)
        if self.distance.unit_length:
            given = unit_rows(given, ("source", "target")[side])
        return given if self._centre is None else given - self._centre, given

    def given(self, side: int, rows: Rows = EVERY) -> Any:
        """Rows of the source (side 0) or the target (1) as they were given, in memory."""
        return _read(self._originals[side], within(self._places[side], rows))

    def _exact_costs(self, source: Exact, target: Exact) -> NDArray[np.float64]:
        prepared, given = zip(source, target, strict=True)
        distances = self.distance.between(*prepared)
        if self.distance.refined:
            refine_small(distances, prepared, given, self.distance.unit_length)
        apart = distances > 0 if self.curve.rounds else None
        costs = np.maximum(self.from_distances(distances), 0.0)
        if apart is not None:  # a cost must not underflow to 0 where the distance is positive
            costs[apart & (costs == 0)] = _TINY
        if self._largest is not None:
            below = self._error_of_products() / _OF_PRODUCTS
            refine_products(costs, given, self._largest, below)
        return costs

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
        part.source, part.target = source, target
        part._cached_target = part._compared_rows = None
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
        source, metric = self._compared, self._metric_apart
        own = source[row : row + 1]
        parts = row_blocks(length_of(rows, self.shape[0]), source.shape[1])
        return np.concatenate(
            [distances_from(own, source[within(rows, part)], metric) for part in parts]
        )

    def twins(self, row: int, distance: float, rows: Rows = EVERY) -> NDArray[np.bool_]:
        source, metric = self._compared, self._metric_apart
        own = source[row : row + 1]
        near = np.zeros(length_of(rows, self.shape[0]), np.bool_)

        def look(part: slice) -> None:
            near[part] = are_within(own, source[within(rows, part)], metric, distance)

        parallel_for(look, row_blocks(len(near), source.shape[1]))
        return near

    def twin_finder(self, distance: float) -> TwinFinder:
        return FeatureTwins(self._compared, self._metric_apart, distance)

    @property
    def _compared(self) -> Any:
        """Source rows whose differences count: those given, where moving rows rounded them."""
        if self._centre is None:
            return self.source
        if self._compared_rows is None:
            self._compared_rows = _only(self._given[0], self._places[0])
        return self._compared_rows

    def unsaturated(self) -> FeatureCosts:
        """The same rows with the plain distance as cost, which does not saturate."""
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
        if not self.reach <= kind.max / 4:  # squares, of which costs are roots
            raise InvalidInputError(
                f"must have features below {float(kind.max / 16) ** 0.5:.2g} in {self.dtype} when "
                f"metric={self.metric!r}. Rescale the features.",
                parameter="source",
            )
        smallest = float(kind.tiny / kind.eps)  # a square with all its digits
        # Rows that differ only by rounding are no further from their median than that.
        centre = 0.0 if self._centre is None else float(np.abs(self._centre).max())
        lengths = [greatest_length(side) for side in (self.source, self.target)]
        by_product = self.metric == "dot"
        square = lengths[0] * lengths[1] if by_product else max(lengths) ** 2
        some = min(lengths) > 0 if by_product else max(lengths) > 0
        if some and square < smallest and centre < smallest**0.5:
            raise InvalidInputError(
                f"must have features of at least {smallest**0.5:.2g} in {self.dtype} when "
                f"metric={self.metric!r}. Rescale the features.",
                parameter="source",
            )


def _part(features: Any, rows: Rows) -> Any:
    """Rows in memory, or everything as it is."""
    return features if isinstance(rows, slice) and rows == EVERY else features[rows]


def _parts(features: Any, count: int, exact: bool) -> list[slice]:
    if exact and not sp.issparse(features):
        return pieces_of(count, min(4096, rows_in_block(features.shape[1] * _BYTES_EXACT)))
    if isinstance(features, RowsOnDisk):
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
