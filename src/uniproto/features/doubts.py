"""What the owner of a table should know before believing a comparison of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from uniproto.errors import warn_of_data
from uniproto.features.preparation import Preparation, PreparedColumn

_SAMPLED = 2000  # rows whose distances are looked at
_FEWEST = 30  # rows whose distances tell something
_OTHER_UNIT = 10.0  # times: medians that far apart may be of two units


def warn_of_columns(columns: Sequence[PreparedColumn]) -> None:
    """Say which numbers may be something else."""
    doubts = [f"{column.name} ({column.doubt})" for column in columns if column.doubt]
    if doubts:
        warn_of_data(f"some numbers may be something else: {'; '.join(doubts)}.")


def warn_of_other_columns(missing: Sequence[str], extra: Sequence[str]) -> None:
    """Say which columns only one of source and target has: they may have been renamed."""
    parts = [
        f"the {side} has no column {_listed(names)}"
        for side, names in (("target", missing), ("source", extra))
        if names
    ]
    if parts:
        warn_of_data(f"{', and '.join(parts)}: not compared. Rename what is the same in both.")


def warn_of_units(medians: Mapping[str, tuple[float, float]]) -> None:
    """Say where source and target may measure in different units."""
    apart = [
        f"{name} ({source:.4g} in the source, {target:.4g} in the target)"
        for name, (source, target) in medians.items()
        if source * target > 0 and max(source / target, target / source) >= _OTHER_UNIT
    ]
    if apart:
        warn_of_data(f"medians differ ten times or more: {'; '.join(apart)}. Is that one unit?")


def warn_of_share(table: pa.Table, preparation: Preparation) -> None:
    """Say where one column makes most of the mean distance between rows."""
    count = len(preparation.columns)
    if count < 2 or table.num_rows < _FEWEST:
        return
    rows = np.random.default_rng(0).permutation(table.num_rows)[:_SAMPLED]
    features = preparation.matrix(table.take(rows))
    squares = (features - np.roll(features, 1, axis=0)) ** 2
    distances = np.sqrt(squares.sum(axis=1))
    apart = distances > 0
    if not apart.any():
        return
    of_features = (squares[apart] / distances[apart, None]).sum(axis=0) / distances.sum()
    begins = np.cumsum([0, *(column.width for column in preparation.columns[:-1])])
    shares = np.add.reduceat(of_features, begins)
    most = int(np.argmax(shares))
    if shares[most] > (1 + 1 / count) / 2:  # of two columns one always makes more than half
        name = preparation.columns[most].name
        warn_of_data(
            f"{name!r} makes {shares[most]:.0%} of the mean distance between rows. If it should "
            f"not, leave it out with columns=Columns(ignore=[{name!r}]) (--ignore), or choose "
            "another scale."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
