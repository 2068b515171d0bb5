"""The examples of a file, as a language model sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uniproto.data.columns import is_list
from uniproto.data.examples import MESSAGES, example_columns, example_of
from uniproto.data.files import possible_path
from uniproto.data.text_tables import as_csv_texts
from uniproto.features.embedded import Embedded
from uniproto.features.files import Items, read_table, require_kind
from uniproto.lm.features.language import LanguageFeatures


@dataclass(frozen=True)
class Examples(Items):
    """The examples of one file."""

    language: LanguageFeatures = field(default_factory=LanguageFeatures)

    def _item(self, row: tuple[Any, ...]) -> Any:
        return example_of(row)

    def embed(self, model: str | None, **options: Any) -> Embedded:
        """What the language model makes of these examples."""
        from uniproto.lm.features.language_features import embed_examples

        assert model is not None
        return embed_examples(self, self.language, model, **options)


def read_examples(
    path: str | Path,
    language: LanguageFeatures | None = None,
    named: tuple[str | None, str | None, str | None] = (None, None, None),
    like: Sequence[str] = (),
    encoding: str | None = None,
) -> Examples:
    """The examples of a file, whose columns are named (prompt, answer, messages) or the usual ones.

    `like` are the columns of other examples, which count before the usual ones.
    """
    path = possible_path(path)
    digest, table = read_table(path, encoding)
    columns = example_columns(table.column_names, *named, like=like, where=str(path))
    if columns in ((MESSAGES,), (named[2],)):
        require_kind(table, columns[0], "--messages", "conversations", path, is_list)
    if path.suffix.lower() == ".csv":
        table = as_csv_texts(table, path, columns, encoding)
    return Examples(
        path, digest, table, "language", ",".join(columns), columns=columns,
        language=language or LanguageFeatures(),
    )  # fmt: skip
