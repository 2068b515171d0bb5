"""One file that options name: its features, or why there are none."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.language import language_features, read_rows
from uniproto.cli.limits import limited_column
from uniproto.cli.option_values import names_weights
from uniproto.errors import InputFileError, InvalidInputError, UniprotoError, invalid

if TYPE_CHECKING:
    from uniproto.data.tables import InputData

_FEATURE_OPTIONS = ("column", "features", "ignore", "text", "images")


def read_file(
    options: argparse.Namespace, path: str, named: list[str], like: InputData | None
) -> InputData:
    """One file: its features, or the vectors of the texts or pictures in it."""
    from uniproto.data.files import possible_path
    from uniproto.data.tables import read_input
    from uniproto.geometry.costs import MATRIX_METRICS

    possible_path(path)
    chosen = named_features(options)
    text, images = getattr(options, "text", None), getattr(options, "images", None)
    if text is None and images is None and language_features(options) is None:
        refuse_pictures(Path(path))
        try:
            has_target = like is None and options.target is not None
            return read_input(
                path,
                options.column,
                named,
                like,
                **chosen,
                has_target=has_target,
                memory=getattr(options, "memory", None),
                encoding=getattr(options, "encoding", None),
                raw=getattr(options, "prepare", None) is not False
                and options.metric not in MATRIX_METRICS,
            )
        except InvalidInputError as error:
            _refuse_unknown_columns(options, path, like is None, error)
            raise
    from uniproto.features.files import embedded_data

    option = "--images" if images is not None else "--text"
    if options.column is not None:
        raise invalid(option, "excludes --column", repr(options.column), "Drop one of the two.")
    if options.metric in MATRIX_METRICS:
        raise invalid(
            option, "needs a metric of vectors", f"--metric {options.metric}", "Use cosine."
        )
    return embedded_data(
        read_rows(options, path, like=() if like is None else like.feature_columns),
        options.model,
        batch_size=getattr(options, "batch_size", None),
        device=options.device,
        cache=False
        if getattr(options, "no_cache", False)
        else getattr(options, "cache", None) or True,
        on_error=options.on_error,
        model_digest=getattr(options, "model_digest", None),
        progress=False if getattr(options, "quiet", False) else None,
    )


def named_features(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `read_input` that name features; the other ways are refused beside them.

    >>> named_features(argparse.Namespace(column=None, features=["a,b"], ignore=None))
    {'features': ['a,b'], 'ignore': ()}
    """
    # compare and path know no --text.
    given = {way: getattr(options, way, None) for way in _FEATURE_OPTIONS}
    for option in ("features", "ignore"):
        for other in _FEATURE_OPTIONS:
            if other != option and given[option] is not None and given[other] is not None:
                raise invalid(
                    f"--{option}",
                    f"excludes --{other}: each says what the features are",
                    f"both ({_shown(given[option])} and {_shown(given[other])})",
                    "Drop one of the two.",
                )
    return {"features": given["features"] or (), "ignore": given["ignore"] or ()}


def _shown(value: Any) -> str:
    return repr(",".join(value) if isinstance(value, list) else value)


def refuse_pictures(path: Path) -> None:
    """A folder of pictures without --images: say what is missing, not that a file is."""
    from uniproto.features.files import has_pictures

    if path.is_dir() and next(path.rglob("*.parquet"), None) is None and has_pictures(path):
        raise InputFileError(
            f"{path}: a folder must hold .parquet files, or pictures and --images must be given. "
            "Got pictures without it. Add --images."
        )


def _refuse_unknown_columns(
    options: argparse.Namespace, path: str, of_pool: bool, error: UniprotoError
) -> None:
    """Where the features make no sense because an option names no column, that is the news."""
    from uniproto.data.tables import read_input

    of_target = not (of_pool and options.target)
    limits = {"at_most": limited_column(options)}
    for option, belongs_here in (
        ("id", of_pool),
        ("at_most", of_pool),
        ("groups", True),
        ("labels", of_target or "minority" in options),  # compare needs those of both
        ("weights", of_target),
    ):
        name = limits.get(option) or getattr(options, option)
        if not (name and belongs_here) or (option == "weights" and names_weights(name)):
            continue
        try:
            read_input(path, name)
        except InputFileError as missing:
            text = str(missing).replace("'--column'", f"'--{option.replace('_', '-')}'")
            raise InputFileError(text) from error
        except UniprotoError:
            continue  # it is there, but of course it is no column of features
