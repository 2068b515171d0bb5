"""Why a file gives no features: the slip behind a general message, where it can be told."""

from __future__ import annotations

import argparse
from pathlib import Path

from uniproto.errors import InputFileError, UniprotoError

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def refuse_pictures(path: Path) -> None:
    """A folder of pictures without --images: say what is missing, not that a file is."""
    from uniproto.features.files import has_pictures

    if path.is_dir() and next(path.rglob("*.parquet"), None) is None and has_pictures(path):
        raise InputFileError(
            f"{path}: a folder must hold .parquet files, or pictures and --images must be given. "
            "Got pictures without it. Add --images."
        )


def refuse_other_separators(path: Path, error: UniprotoError) -> None:
    """A table whose columns are not separated by commas is read as one column of text."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = file.readline(10_000)
    found = next((name for mark, name in _SEPARATORS.items() if mark in header), None)
    if found and "," not in header:
        raise InputFileError(
            f"{path}: the columns must be separated by commas. Got a first line with {found} "
            "instead. Save the table with commas (and decimal points), or as .parquet."
        ) from error


def refuse_unknown_columns(
    options: argparse.Namespace, path: str, of_pool: bool, error: UniprotoError
) -> None:
    """Where the features make no sense because an option names no column, that is the news."""
    from uniproto.data.tables import read_input

    of_target = not (of_pool and options.target)
    for option, belongs_here in (
        ("id", of_pool),
        ("groups", True),
        ("labels", of_target),
        ("weights", of_target),
    ):
        name = getattr(options, option, None)  # older records know no labels
        if not (name and belongs_here) or (option == "weights" and is_word(name)):
            continue
        try:
            read_input(path, name)
        except InputFileError as missing:
            text = str(missing).replace("'--column'", f"'--{option}'")
            raise InputFileError(text) from error
        except UniprotoError:
            continue  # it is there, but of course it is no column of features


def is_word(text: str | None) -> bool:
    """Whether --weights asks for weights by a word: balanced, density or density:options.

    >>> is_word("density:q=30"), is_word("importance")
    (True, False)
    """
    from uniproto.problem.weights import WEIGHTS

    return text is not None and text.partition(":")[0] in WEIGHTS
