"""How many cases a property runs: a few on every change, many in `make fuzz`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

_FACTOR = float(os.environ.get("FUZZ_FACTOR", "1"))


def cases(count: int) -> Callable[[Any], Any]:
    """This many cases, times FUZZ_FACTOR; always the same ones unless a seed is given."""
    return settings(
        deadline=None,  # the watchdog has a better one
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        max_examples=max(1, round(count * _FACTOR)),
        derandomize=_FACTOR == 1,
        database=None,
    )
