"""Features that a model computes: `Text` and `Images`, and the contract that others fulfil, too."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import is_table
from uniproto.data.columns import arrow_table, value_array
from uniproto.data.tables import Input
from uniproto.errors import InvalidInputError

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded, Model
    from uniproto.features.files import Items


@dataclass(frozen=True, kw_only=True)
class ModelFeatures(ABC):
    """A value of `features=` whose vectors a model computes from the rows.

    A subclass says in `items` what the model looks at. Rows that have no vector stay rows of the
    problem: they are never chosen and weigh nothing.
    """

    batch_size: int | None = None
    device: str = "auto"
    cache: bool | str | os.PathLike[str] = True
    on_error: str = "fail"
    progress: bool | None = None
    encoding: str | None = None
    model_digest: str | None = None
    id: str | None = None
    labels: str | None = None

    @abstractmethod
    def items(self, given: Input, like: Items | None = None) -> Items:
        """What the model looks at in a source, or in a target of a source `like` that."""

    @property
    def named_model(self) -> str | None:
        """The model, unless it is the default one."""
        return getattr(self, "model", None)

    def embed(self, items: Items, spread: Callable[[Model], Model] | None = None) -> Embedded:
        """The vectors of the items that can be read; `spread` is as for `embed_text`."""
        return items.embed(
            self.named_model,
            batch_size=self.batch_size,
            device=self.device,
            cache=self.cache,
            on_error=self.on_error,
            progress=self.progress,
            model_digest=self.model_digest,
            spread=spread,
        )

    def inputs(self, source: Input, target: Input | None) -> tuple[Input, Input | None]:
        """Source and target with their vectors; the target first, which shows what is wrong."""
        items = self.items(source)
        others = None if target is None else self.items(target, items)
        if target is not None and others is not None:
            target = _with_vectors(target, others, self.embed(others))
        return _with_vectors(source, items, self.embed(items)), target

    def vectors(self, given: Input) -> NDArray[np.float32]:
        """The vectors of new rows, all of which must have one."""
        every = replace(self, on_error="fail")
        return every.embed(every.items(given)).vectors


def _with_vectors(given: Input, items: Items, embedded: Embedded) -> Input:
    return replace(
        given,
        content=given.content if given.path is None else items.table,
        sha256=items.sha256 or None,
        feature_columns=items.columns or (items.column,),
        items=items,
        embedded=embedded,
    )


def rows_of(given: Input, column: str) -> Any:
    """The table of a source or target; of a list, one with its values as the only column."""
    content = given.content
    if hasattr(content, "column_names"):  # Arrow, and tables that stay on disk
        return content
    if is_table(content) and hasattr(content, "columns"):
        return arrow_table(content, given.parameter)
    if getattr(content, "ndim", 1) != 1:
        raise InvalidInputError(
            f"needs a table, or a list of values, not {given.parameter!r} of shape "
            f"{content.shape}. Leave it out for vectors.",
            parameter="features",
        )
    return pa.table({column: value_array(list(content))})


@dataclass(frozen=True)
class Text(ModelFeatures):
    """Rows are compared by what their texts mean: `features=Text("review")`.

    Args:
        column: the column of texts or of conversations, or several, which are joined by a blank
            line. Default: the rows are texts, or their table has one column of texts.
        model: as for `uniproto.features.embed_text`, like the rest.
        batch_size: texts at a time.
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: save vectors, and use those saved before: True, False, or a folder.
        on_error: `fail`, or `skip` for rows that cannot be embedded: they are never chosen and
            weigh nothing.
        progress: show a bar; None shows it on a terminal.
        encoding: of a .csv file, such as `latin-1`.
        model_digest: refuse any model but the one with this digest.
        id: the column that names rows; the files of `Selection.save` have it.
        labels: the target's column of classes, which reports show.

    >>> import uniproto
    >>> texts = ["a red apple", "a green apple", "tax law", "income tax law"]
    >>> rows = uniproto.select(texts, 2, features=Text(cache=False)).indices
    >>> sorted(rows // 2)
    [np.int64(0), np.int64(1)]
    """

    column: str | Sequence[str] | None = None
    model: str | None = None

    def items(self, given: Input, like: Items | None = None) -> Items:
        from uniproto.features.files import text_items, usual_column

        column = self.column
        table = rows_of(given, column if isinstance(column, str) else "text")
        if column is None:
            text = None if like is None else like.column
            column = text if text in table.column_names else usual_column(table, given.name)[0]
        if column is None:
            raise InvalidInputError(
                f"must name the column of texts of {given.name}: Text(column).",
                parameter="features",
            )
        return text_items(table, column, given.name, given.sha256 or "")


@dataclass(frozen=True)
class Images(ModelFeatures):
    """Rows are compared by what their pictures show: `features=Images("path")`.

    Args:
        column: the column of pictures or of their paths, or the folder at which the paths of a
            table begin. Default: the source is a folder of pictures, or the rows are paths, or
            their table has one column of pictures.
        model: as for `uniproto.features.embed_images`, like the rest.
        batch_size: pictures at a time.
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: save vectors, and use those saved before: True, False, or a folder.
        on_error: `fail`, or `skip` for rows that cannot be embedded: they are never chosen and
            weigh nothing.
        progress: show a bar; None shows it on a terminal.
        encoding: of a .csv file, such as `latin-1`.
        model_digest: refuse any model but the one with this digest.
        id: the column that names rows; the files of `Selection.save` have it.
        labels: the target's column of classes, which reports show.

    >>> import uniproto
    >>> uniproto.select("photos/", 20, features=Images())  # doctest: +SKIP
    """

    column: str | None = None
    model: str | None = None

    def items(self, given: Input, like: Items | None = None) -> Items:
        from uniproto.features.files import (
            folder_items,
            is_picture_folder,
            picture_items,
            usual_column,
        )

        if given.path is not None and is_picture_folder(given.path):
            return folder_items(given.path, self.column)
        table = rows_of(given, "path")
        column = self.column
        if column is None:
            column = "path" if "path" in table.column_names else None
            column = column or usual_column(table, given.name)[1]
        if column is None:
            raise InvalidInputError(
                f"must name the column of pictures of {given.name}: Images(column).",
                parameter="features",
            )
        return picture_items(table, column, given.name, given.sha256 or "")
