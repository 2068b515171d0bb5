"""The documentation, the examples and the package are tested as people use them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def as_people_use_it(usual_effort: None) -> None:
    """What pages and examples claim rests on the usual search."""
