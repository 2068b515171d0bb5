"""Files as inputs of a question."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from uniproto.data.tables import Input, read_content


def read_input(
    path: str | Path,
    column: str | None = None,
    aside: Collection[str] = (),
    *,
    use: Sequence[str] | None = None,
) -> Input:
    """A file; what is compared is `column`, the columns to `use`, or all that are not `aside`."""
    digest, content = read_content(Path(path), column)
    found = Input(content, Path(path), digest)
    if not found.names:
        return found
    return found.with_features(use if column is None else [column], aside=aside)
