"""Where the prototypes of an earlier selection are among new rows: by their ids or their values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, dense, take_rows
from uniproto.data.columns import arrow_table
from uniproto.data.tables import Input
from uniproto.errors import InvalidInputError
from uniproto.features.model_features import Images, Text
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.problem.problem import Problem
from uniproto.problem.values import NamedColumns

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

_MISSING = -1


def found_again(selection: Selection, problem: Problem, ids: Any = None) -> NDArray[np.intp]:
    """For each prototype its row among the new ones; -1 where it is not there any more.

    `ids` are names of rows that last: a column of both tables, or a pair of sequences, of the rows
    selected from and of the new ones. By default they are the column that `features` names as `id`;
    without it, a prototype is a row of the same values, or of the same text or picture.
    """
    given, chosen = problem.given, _prototypes(selection)
    if ids is not None:
        return by_ids(*_both_ids(selection, problem, ids))
    if given.id in Input(chosen).names:
        return by_ids(*(each.astype(str) for each in _both_ids(selection, problem, given.id)))
    if selection.details.metric in MATRIX_METRICS:
        raise InvalidInputError(
            "must name the rows, as a matrix of costs does not identify them. Pass a "
            "pair: names of the rows selected from, and of the new ones.",
            parameter="ids",
        )
    if (texts := _texts(selection, problem)) is not None:
        return by_names(*texts)
    if needs_data(selection, problem):
        raise InvalidInputError(
            "This selection was loaded without its prototypes' values. Pass the rows it was made "
            "from, Selection.load(folder, source=…), or 'ids'."
        )
    return by_values(selection.details.given.features(chosen), given.features(given.source))


def needs_data(selection: Selection, problem: Problem) -> bool:
    """Whether only its data tell which of the new rows the prototypes of a selection are."""
    given, table = selection.details.given, selection.details.prototypes
    if given.source is not None or problem.given.id in Input(table).names:
        return False
    return table is None or bool(problem.given.model and _texts(selection, problem) is None)


def _texts(selection: Selection, problem: Problem) -> tuple[list[str], list[str]] | None:
    """The texts or pictures of the prototypes and of the new rows, as their tables hold them."""
    chosen, pool = _prototypes(selection), problem.given.inputs[0]
    read = [name for name in pool.feature_columns if name in Input(chosen).names]
    if not (isinstance(problem.given.model, Text | Images) and read and pool.table is not None):
        return None
    tables = (arrow_table(each, "source").select(read) for each in (chosen, pool.table))
    old, new = ([str(sorted(row.items())) for row in each.to_pylist()] for each in tables)
    return old, new


def _prototypes(selection: Selection) -> Any:
    """The prototypes as rows of what they were selected from; None where that is not known."""
    source = selection.details.given.source
    if source is None:
        return selection.details.prototypes
    return take_rows(source, selection.indices)


def by_ids(old: NDArray[Any], new: NDArray[Any]) -> NDArray[np.intp]:
    """The row of each id among new ones, which must be unique.

    >>> by_ids(np.array(["ann", "bob"]), np.array(["bob", "cyd"]))
    array([-1,  0])
    """
    place: dict[Hashable, int] = {}
    for row, name in enumerate(new.tolist()):
        if place.setdefault(name, row) != row:
            raise InvalidInputError(
                f"must be different for all rows: {name!r} stands in rows {place[name]} and "
                f"{row}. Use a column that names every row once.",
                parameter="ids",
            )
    return np.array([place.get(name, _MISSING) for name in old.tolist()], np.intp)


def by_names(old: Sequence[str], new: Sequence[str]) -> NDArray[np.intp]:
    """The first row of each name among new ones, which may repeat; each row is used once.

    >>> by_names(["a", "b", "a"], ["b", "a", "a"])
    array([1, 0, 2])
    """
    rows: dict[str, list[int]] = {}
    for row in range(len(new) - 1, -1, -1):
        rows.setdefault(new[row], []).append(row)
    found = [rows[name].pop() if rows.get(name) else _MISSING for name in old]
    return np.array(found, np.intp)


def by_values(old: Any, new: Any) -> NDArray[np.intp]:
    """The first row of new features that equals each of the old ones; each is used once.

    >>> by_values(np.array([[1.0, 2.0], [5.0, 6.0]]), np.array([[5.0, 6.0], [5.0, 6.0]]))
    array([-1,  0])
    """
    if old.shape[1] != new.shape[1]:
        raise InvalidInputError(
            f"must have the features of the prototypes, {old.shape[1]} (got {new.shape[1]}).",
            parameter="source",
        )
    wanted = _keys(old)
    found, used = np.full(len(wanted), _MISSING), set[int]()
    keys = _keys(new)
    rows = np.flatnonzero(np.isin(keys, wanted))
    for place, key in enumerate(wanted):
        for row in rows[keys[rows] == key].tolist():
            if row not in used and np.array_equal(dense(old[[place]]), dense(new[[row]])):
                found[place] = row
                used.add(row)
                break
    return found


def _keys(rows: Any) -> NDArray[np.uint64]:
    """A number for every row, the same for equal rows; zeros of sparse ones count nothing."""
    factors = np.random.default_rng(0).integers(2**63, size=rows.shape[1], dtype=np.uint64) * 2 + 1
    keys = np.zeros(rows.shape[0], np.uint64)
    if sp.issparse(rows):
        entries = rows.tocoo()
        np.add.at(keys, entries.row, _bits(entries.data) * factors[entries.col])
        return keys
    for part in row_blocks(*rows.shape):
        keys[part] = (_bits(rows[part]) * factors).sum(axis=1, dtype=np.uint64)
    return keys


def _bits(values: Any) -> NDArray[np.uint64]:
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)  # of -0.0 those of 0.0
    return bits ^ (bits >> np.uint64(29))


def _both_ids(
    selection: Selection, problem: Problem, ids: Any
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The ids of the prototypes, and those of all new rows."""
    if isinstance(ids, str):
        chosen = _prototypes(selection)
        if chosen is None:
            raise InvalidInputError(
                "can name a column only where the selection holds its prototypes as a table.",
                parameter="ids",
            )
        named = (
            NamedColumns(Input(rows)).of_source(ids, "ids")
            for rows in (chosen, problem.given.source)
        )
        old, new = (as_labels(values, "ids", len(values)) for values in named)
        return old, new
    if not (isinstance(ids, tuple) and len(ids) == 2):
        raise InvalidInputError(
            "must be the name of a column, or a pair: names of the rows selected from, and "
            "of the new ones.",
            parameter="ids",
        )
    old = as_labels(ids[0], "ids", selection.details.shape[0])
    return old[selection.indices], as_labels(ids[1], "ids", problem.m)
