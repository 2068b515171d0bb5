"""`import uniproto` is quick: nothing heavy loads before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    "altair",
    "torch",
    "jax",
    "ray",
    "faiss",
    "transformers",
    "matplotlib",
    "numba",
    "sklearn",
    "ot",
    "ot.lp",
)


def _loaded_after(statements: str) -> set[str]:
    """The heavy modules a fresh interpreter holds after running the statements."""
    report = f"import sys; print(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{statements}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


def test_the_probe_sees_a_module_that_is_loaded() -> None:
    assert _loaded_after("import sys; sys.modules['ray'] = sys") == {"ray"}


def test_nothing_heavy_loads_before_it_is_needed() -> None:
    """Not for a command of the core, its rooms, or an option that is misspelt."""
    statements = """
import sys
from uniproto.cli import build_parser
build_parser().parse_args(["select", "pool.csv", "-k", "3", "-o", "out"])
assert not [name for name in sys.modules if name.startswith("uniproto.lm")]
import uniproto, uniproto.lm, uniproto.lm.judging, uniproto.lm.pretraining
uniproto.compare, uniproto.path
try:
    uniproto.select([[1.0, 0.0], [0.0, 1.0]], k=1, metric="cosinus")
except uniproto.UniprotoError:
    pass
"""
    assert _loaded_after(statements) == set()


def test_solving_a_plan_loads_no_framework() -> None:
    """POT loads every framework it finds unless told not to."""
    statements = """
import uniproto
assert uniproto.select([[1.0, 0.0], [0.0, 1.0]], k=1).cost > 0
"""
    loaded = _loaded_after(statements)
    assert "ot.lp" in loaded  # else the plan was not solved by it and this shows nothing
    assert not loaded & {"altair", "torch", "jax", "ray", "faiss", "transformers", "matplotlib"}


@pytest.mark.parametrize("name", ["select", "Selection", "UniProto", "Greedy", "UniprotoError"])
def test_the_public_names_are_there(name: str) -> None:
    import uniproto

    assert name in uniproto.__all__
    assert hasattr(uniproto, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    import uniproto

    with pytest.raises(AttributeError, match="no attribute 'selekt'"):
        _ = uniproto.selekt
