"""What is refused: errors are compared by their type and the parameter that they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from uniproto.errors import UniprotoError


@contextmanager
def refused(
    parameter: str, kind: type[Exception] | tuple[type[Exception], ...] = UniprotoError
) -> Iterator[None]:
    """Expect an error about a parameter, whatever its words."""
    with pytest.raises(kind) as caught:
        yield
    assert getattr(caught.value, "parameter", None) == parameter, str(caught.value)
