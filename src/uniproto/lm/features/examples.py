"""Examples for a language model, read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from uniproto.data.columns import is_list
from uniproto.data.examples import MESSAGES, TEXT, example_columns, example_of
from uniproto.data.files import possible_path
from uniproto.data.tables import Input
from uniproto.data.text_tables import as_csv_texts
from uniproto.features.embedded import Embedded
from uniproto.features.files import Items, read_table, require_kind
from uniproto.features.model_features import rows_of
from uniproto.lm.features.language import LanguageFeatures


@dataclass(frozen=True)
class LanguageExamples(Items):
    """The examples of one file."""

    language: LanguageFeatures = field(default_factory=LanguageFeatures)

    def _item(self, row: tuple[Any, ...]) -> Any:
        return example_of(row)

    def embed(self, model: str | None, **options: Any) -> Embedded:
        """The features of these examples."""
        from uniproto.lm.features.language_features import embed_examples

        assert model is not None
        return embed_examples(self, self.language, model, **options)


def read_examples(
    path: str | Path, named: tuple[str | None, str | None, str | None] = (None, None, None)
) -> LanguageExamples:
    """The examples of a file, from the `named` columns (prompt, answer, messages) or the usual
    ones.
    """
    path = possible_path(path)
    digest, table = read_table(path)
    return example_items(Input(table, path, digest), LanguageFeatures(), named)


def example_items(
    given: Input,
    language: LanguageFeatures,
    named: tuple[str | None, str | None, str | None],
    like: Sequence[str] = (),
    encoding: str | None = None,
) -> LanguageExamples:
    """The examples in the rows of a file, a table or a list of plain texts.

    `like` are the columns of other examples, which are preferred to the usual ones.
    """
    table = rows_of(given, TEXT)
    columns = example_columns(table.column_names, *named, like=like, where=str(given.name))
    if columns in ((MESSAGES,), (named[2],)):
        require_kind(table, columns[0], "messages", "conversations", given.name, is_list)
    if given.path is not None and given.path.suffix.lower() == ".csv":
        table = as_csv_texts(table, given.path, columns, encoding)
    table = _numbers_as_texts(table, columns)
    return LanguageExamples(
        given.name, given.sha256 or "", table, "language", ",".join(columns), columns=columns,
        language=language,
    )  # fmt: skip


def _numbers_as_texts(table: Any, columns: Sequence[str]) -> Any:
    """The table with whole numbers of some columns as texts: an answer may be one."""
    for name in columns:
        if pa.types.is_integer(table.schema.field(name).type):
            place = table.column_names.index(name)
            table = table.set_column(place, name, table.column(name).cast(pa.string()))
    return table
