"""The texts of training examples, and their embeddings by row: what SBERT selects by."""

from __future__ import annotations

from typing import Any

import numpy as np

from uniproto.errors import invalid
from uniproto.training.carried import columns_of
from uniproto.training.config import SelectionConfig

_USUAL = (("text",), ("instruction", "output"), ("prompt", "completion"))


def embeddings_of(dataset: Any, config: SelectionConfig, tokenizer: Any = None) -> Any:
    """One vector per row: those given, or of the rows' texts (kept on disk by their content)."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise invalid(
            "train_dataset",
            "must have rows in an order, for embeddings to belong to",
            type(dataset).__name__,
            "Use a data set with a length, or features='gradient'.",
        )
    if config.embeddings is not None:
        vectors = np.asarray(config.embeddings)
        if vectors.ndim != 2 or len(vectors) != len(dataset):
            raise invalid(
                "embeddings",
                f"must have one row per training example, {len(dataset)} in all",
                f"shape {vectors.shape}",
                "Embed the training data in their order.",
            )
        return vectors
    from uniproto.features import embed_text

    options: dict[str, Any] = {}
    if config.embedding_model is not None:
        options["model"] = config.embedding_model
    return embed_text(texts_of(dataset, config.text_column, tokenizer), **options).vectors


def texts_of(
    dataset: Any, columns: str | tuple[str, ...] | None = None, tokenizer: Any = None
) -> list[str]:
    """The text of every row.

    >>> texts_of([{"instruction": "1 + 1?", "output": "2"}])
    ['1 + 1?\\n\\n2']
    """
    present = columns_of(dataset) or []
    if columns is None:
        columns = next((each for each in _USUAL if set(each) <= set(present)), ())
    columns = (columns,) if isinstance(columns, str) else tuple(columns)
    missing = [column for column in columns if column not in present]
    if missing:
        raise invalid(
            "text_column",
            f"must name columns of the training data ({', '.join(present)})",
            ", ".join(missing),
            "Correct the name.",
        )
    rows = (dataset[row] for row in range(len(dataset)))
    if columns:
        return ["\n\n".join(str(row[column]) for column in columns) for row in rows]
    if hasattr(tokenizer, "decode") and "input_ids" in present:
        return [tokenizer.decode(row["input_ids"], skip_special_tokens=True) for row in rows]
    raise invalid(
        "text_column",
        "must name the texts to embed, where the data hold tokens only and no tokenizer is given",
        f"None, and the columns {', '.join(present) or 'none'}",
        "Name a column, pass processing_class=tokenizer, or pass embeddings=vectors.",
    )
