"""The recipe for a new method gives a method that works."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import uniproto

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's Python as a module, in the surroundings of tests/test_methods.py."""
    module = ModuleType("recipe")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look for it
    random = np.random.default_rng(0)
    vars(module).update(
        np=np,
        uniproto=uniproto,
        cdist=cdist,
        SOURCE=random.normal(size=(36, 3)),
        TARGET=random.normal(size=(23, 3)),
        WEIGHTS=random.uniform(0.1, 2.0, 23),
    )
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), vars(module))
    return module


def test_the_recipe_passes_the_test_it_proposes(
    recipe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(uniproto.methods.METHODS, "central", recipe.Central)
    recipe.test_central_against_its_formula()


def test_the_new_method_takes_every_question(
    recipe: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    source, method = recipe.SOURCE, recipe.Central()
    groups = np.arange(len(source)) % 2
    selection = uniproto.select(
        source, 6, method=method, groups=groups, initial=[3], exclude=[4], certify=True
    )
    assert selection.indices[0] == 3
    assert 4 not in selection.indices
    assert selection.cost >= selection.certificate.lower_bound
    uniproto.compare(source, 4, methods=["uniproto", method]).table()
    assert "\ncentral " in capsys.readouterr().out


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text("utf-8")
    makefile = (PAGE.parent / "Makefile").read_text("utf-8")
    for target in re.findall(r"(?m)^make ([\w-]+)", text):
        assert f"\n{target}:" in makefile, target
    for path in (
        "docs/structure.md",
        "docs/api/methods.md",
        "src/uniproto/comparing/compare.py",
    ):
        assert path.removeprefix("src/uniproto/") in text
        assert (PAGE.parent / path).exists(), path
