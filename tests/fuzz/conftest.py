"""One memory limit around all cases of this folder, and a tally for the long run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .guard import memory_limit
from .outcomes import TALLY
from .saved import sound_results


@pytest.fixture(scope="module", autouse=True)
def limited_memory() -> Iterator[None]:
    """Refuse memory beyond what these small cases can need."""
    import polars  # noqa: F401  # its threads and those of torch are no case's doing
    import torch  # noqa: F401

    sound_results()  # what the first solve imports draws random numbers, which no strategy may
    with memory_limit():
        yield


def pytest_sessionfinish() -> None:
    if path := os.environ.get("FUZZ_TALLY"):
        Path(path).write_text(json.dumps(TALLY))
