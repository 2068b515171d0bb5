"""The examples of a file, as a language model sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uniproto.data.columns import is_list
from uniproto.data.examples import MESSAGES, example_columns, example_of
from uniproto.data.files import possible_path
from uniproto.data.text_tables import as_csv_texts
from uniproto.features.embedded import Embedded
from uniproto.features.files import Items, read_table, require_kind
from uniproto.features.text import is_unicode, what_is_wrong
from uniproto.lm.features.language import LanguageFeatures

NO_ANSWER = "no answer token"


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


def what_is_wrong_with(example: Any) -> str | None:
    """Why an example cannot be learned from.

    >>> what_is_wrong_with(("1 + 1?", "2")), what_is_wrong_with(("1 + 1?", " "))
    (None, 'no answer token')
    >>> what_is_wrong_with([{"role": "user", "content": "Hi"}])
    'no answer token'
    """
    if isinstance(example, tuple):
        if len(example) != 2:
            return f"no prompt and answer but {len(example)} texts"
        for name, text in zip(("prompt", "answer"), example, strict=True):
            if not isinstance(text, str) or not is_unicode(text):
                return f"{name}: {what_is_wrong(text)}"
        return None if example[1].strip() else NO_ANSWER
    if not isinstance(example, list):
        return what_is_wrong(example)
    for message in example:
        if not (isinstance(message, Mapping) and isinstance(message.get("content"), str)):
            return "a message without a text"
        if not isinstance(message.get("role"), str):
            return "a message without a role"
        if not is_unicode(message["content"]):
            return f"a message: {what_is_wrong(message['content'])}"
    answers = [message for message in example if message["role"] == "assistant"]
    return None if any(message["content"].strip() for message in answers) else NO_ANSWER
