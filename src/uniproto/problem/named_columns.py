"""Columns of a table that options name: labels, weights and groups, which are no features."""

from __future__ import annotations

from typing import Any

from uniproto.data.arrays import is_table
from uniproto.errors import invalid, unknown_name


class NamedColumns:
    """The values of columns that options name; `aside` says which option names each.

    >>> import pyarrow as pa
    >>> columns = NamedColumns(pa.table({"age": [20, 30], "kind": ["a", "b"]}))
    >>> columns.of_source("kind", "groups"), columns.aside
    (array(['a', 'b'], dtype=object), {'kind': 'named by groups'})
    """

    def __init__(self, source: Any, target: Any = None) -> None:
        self._source, self._target = source, source if target is None else target
        self.has_target = target is not None
        self.aside: dict[str, str] = {}

    def of_source(self, values: Any, parameter: str) -> Any:
        """The source's column of that name; anything but a name as it is."""
        return self._column(self._source, values, parameter, "source")

    def of_target(self, values: Any, parameter: str) -> Any:
        """The target's column of that name; anything but a name as it is."""
        return self._column(self._target, values, parameter, "target")

    def both(self, values: Any, parameter: str) -> tuple[Any, Any]:
        """Labels of the source's rows and of the target's: a name, one sequence, or a pair.

        The second is None where only one sequence is given.
        """
        if isinstance(values, str):
            return self.of_source(values, parameter), self.of_target(values, parameter)
        if isinstance(values, tuple) and len(values) == 2 and self._is_pair(*values):
            return self.of_source(values[0], parameter), self.of_target(values[1], parameter)
        return self.of_source(values, parameter), None

    def _is_pair(self, first: Any, second: Any) -> bool:
        """Whether these are labels of many rows, not those of two."""
        if isinstance(first, str) and isinstance(second, str):
            return bool(_names(self._source))
        return all(hasattr(each, "__len__") for each in (first, second))

    def target_has(self, name: Any) -> bool:
        """Whether the target is a table with a column of that name."""
        return isinstance(name, str) and name in _names(self._target)

    def _column(self, table: Any, name: Any, parameter: str, side: str) -> Any:
        from uniproto.data.frames import arrow_table, column_name

        if not isinstance(name, str):
            if (found := column_name(table, name)) is not None:
                self.aside.setdefault(found, f"named by {parameter}")
            return name
        from uniproto.data.tables import column_values

        names = _names(table)
        if not names:
            raise invalid(
                parameter,
                f"can be the name of a column only where the {side} is a table",
                f"{name!r} beside a {type(table).__name__}",
                "Pass one value per row.",
            )
        if name not in names:
            raise unknown_name(parameter, name, names)
        self.aside.setdefault(name, f"named by {parameter}")
        held = table if hasattr(table, "column_names") else arrow_table(table, side)
        return column_values(held.column(name), name, parameter, f"the {side}")


def _names(table: Any) -> list[str]:
    if hasattr(table, "column_names"):  # Arrow, and tables that stay on disk
        return list(table.column_names)
    return list(map(str, table.columns)) if is_table(table) and hasattr(table, "columns") else []
