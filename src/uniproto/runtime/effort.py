"""How much the default search may do, beside what it does by itself."""

from __future__ import annotations

import os

from uniproto.errors import invalid

VARIABLE = "UNIPROTO_EFFORT"


def effort() -> float:
    """The share of the usual work that UNIPROTO_EFFORT asks for, such as 0.1 or 10; 1 if unset.

    Every process that is started from this one inherits it.

    >>> effort() > 0
    True
    """
    given = os.environ.get(VARIABLE) or "1"
    try:
        share = float(given)
    except ValueError:
        share = 0.0
    if not 0 < share < float("inf"):
        raise invalid(VARIABLE, "must be a positive number", repr(given), "Unset it, or try 0.1.")
    return share
