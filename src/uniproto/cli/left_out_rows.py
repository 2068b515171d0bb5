"""Rows that embedding left out: a file counts them, a question about its vectors does not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uniproto.errors import invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.cli.question import Question
    from uniproto.data.tables import InputData
    from uniproto.features.files import EmbeddedData
    from uniproto.selection.selection import Selection


def in_file_rows(question: Question, selection: Selection) -> Selection:
    """The selection with rows numbered as in the files, where embedding left some out.

    A target that was left out has an empty column in the plan, and the price 0.
    """
    source, aim = question.pool, question.target or question.pool
    if not (_left_out(source) or _left_out(aim)):
        return selection
    (rows, m), (columns, n) = _file_rows(source), _file_rows(aim)
    return selection.renumbered(rows, columns, (m, n))


def with_every_row(question: Question) -> Question:
    """The same question with rows numbered as in the files, as a saved result numbers them.

    Rows that were left out may not be chosen and weigh nothing; they are given the values of the
    first row that was kept, on which then nothing depends.
    """
    pool, target = question.pool, question.target
    aim = target or pool
    if not (_left_out(pool) or _left_out(aim)):
        return question
    import numpy as np

    asked, kept = question.conditions, question.problem()
    (rows, m), (columns, n) = _file_rows(pool), _file_rows(aim)

    def widened(values: Any, numbers: NDArray[Any], count: int) -> Any:
        if values is None:
            return None
        wide = np.repeat(np.asarray(values)[:1], count, axis=0)
        wide[numbers] = values
        return wide

    weights = np.zeros(n)
    weights[columns] = kept.masses.weights
    absent = np.setdiff1d(np.arange(m), rows)
    barred = [] if asked["exclude"] is None else rows[asked["exclude"]].tolist()
    whole = {
        **asked,
        "source": widened(asked["source"], rows, m),
        "target": widened(asked["target"], columns, n),
        "target_weights": weights,
        "target_labels": None,
        "groups": widened(asked["groups"], rows, m),
        "target_groups": widened(asked["target_groups"], columns, n),
        "initial": None if asked["initial"] is None else rows[asked["initial"]].tolist(),
        "exclude": [*barred, *absent.tolist()],
        "distinct": False if kept.twin_distance is None else kept.twin_distance,
    }
    return replace(
        question,
        pool=_whole(pool, whole["source"]),
        target=target and _whole(target, whole["target"]),
        conditions=whole,
    )


def kept_rows(rows: list[int] | None, pool: InputData, parameter: str) -> list[int] | None:
    """Rows of a file as rows of the question, which does not have those that were left out."""
    if rows is None or not _left_out(pool):
        return rows
    numbers, count = _file_rows(pool)
    places = {int(row): place for place, row in enumerate(numbers)}
    for row in rows:
        if not 0 <= row < count:
            raise invalid(
                parameter, f"must hold row numbers from 0 to {count - 1}", row, "Count from 0."
            )
        if row not in places and parameter == "--initial":
            raise invalid(
                parameter, "must hold rows that have a vector", f"row {row}, left out", "Drop it."
            )
    return [places[row] for row in rows if row in places]


def _left_out(data: InputData) -> bool:
    embedded = getattr(data, "embedded", None)
    return bool(embedded is not None and embedded.left_out)


def _file_rows(data: InputData) -> tuple[NDArray[Any], int]:
    """The numbers that rows of an input have in its file, and how many the file has."""
    import numpy as np

    if not _left_out(data):
        return np.arange(len(data.features)), len(data.features)
    embedded: EmbeddedData = data  # type: ignore[assignment]
    assert embedded.embedded is not None
    assert embedded.items is not None
    return embedded.embedded.rows, len(embedded.items)


def _whole(data: InputData, features: Any) -> InputData:
    """An input with every row of its file."""
    if not _left_out(data):
        return data
    from uniproto.data.tables import InputData

    items = data.items  # type: ignore[attr-defined]
    return InputData(data.path, data.sha256, features, items.table, data.feature_columns)
