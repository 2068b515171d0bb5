"""Which columns are features: --features and --ignore, beside --column, --text and --images."""

from __future__ import annotations

import argparse
from typing import Any

from uniproto.errors import invalid

_WAYS = ("column", "features", "ignore", "text", "images")


def add_features(parser: argparse.ArgumentParser) -> None:
    """The options that name the features of a table."""
    chosen = parser.add_argument_group("which columns are features, where not all are")
    chosen.add_argument(
        "--features",
        action="append",
        metavar="A,B,C",
        help="only these columns, in this order; may be repeated, also to give a name that has a "
        "comma in it",
    )
    chosen.add_argument(
        "--ignore",
        action="append",
        metavar="A,B",
        help="every column but these and those that other options name; repeated like --features",
    )


def named_features(options: argparse.Namespace) -> dict[str, Any]:
    """What `read_input` is told of them; --column, --text and --images are other ways.

    >>> named_features(argparse.Namespace(column=None, features=["a,b"], ignore=None))
    {'features': ['a,b'], 'ignore': ()}
    """
    # Records of older versions know neither option; compare and path know no --text.
    given = {way: getattr(options, way, None) for way in _WAYS}
    for option in ("features", "ignore"):
        for other in _WAYS:
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
