"""The documentation, the examples and the package are tested as people use them."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """What pages and examples claim rests on the usual search."""
    item.add_marker("usual_effort")
