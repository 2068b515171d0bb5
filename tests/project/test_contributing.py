"""The recipes in CONTRIBUTING.md, followed as printed, in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
TEXT = PAGE.read_text("utf-8")

METHOD = """
import numpy as np
import uniproto
from scipy.spatial.distance import cdist
from uniproto.methods.central import Central

random = np.random.default_rng(0)
SOURCE, TARGET = random.normal(size=(36, 3)), random.normal(size=(23, 3))
WEIGHTS = random.uniform(0.1, 2.0, 23)
{proposed}
test_central_against_its_formula()
selection = uniproto.select(
    SOURCE, 6, method=Central(), groups=np.arange(36) % 2, include=[3], exclude=[4], certify=True
)
assert selection.indices[0] == 3
assert 4 not in selection.indices
assert selection.cost >= selection.certificate.lower_bound
uniproto.compare(SOURCE, 4, methods=["uniproto", "central"]).table()
"""

METRIC = """
import numpy as np
import scipy.sparse as sp
import uniproto
from scipy.spatial.distance import cdist

source = np.random.default_rng(0).normal(size=(40, 3))
matrix = cdist(source, source, "chebyshev")
expected = uniproto.select(matrix, 5, metric="precomputed", certify=True)
for rows in (source, sp.csr_array(source)):
    selection = uniproto.select(rows, 5, metric="chebyshev", certify=True)
    np.testing.assert_array_equal(selection.indices, expected.indices)
    np.testing.assert_allclose(selection.cost, expected.cost, rtol=1e-12)
    assert selection.certificate.lower_bound <= expected.cost
fifth = np.sort(matrix, axis=1)[:, 5]
density = uniproto.Density()
weights = uniproto.Problem(source, metric="chebyshev", target_weights=density).target_weights
np.testing.assert_allclose(weights, fifth**2 / (fifth**2).sum())
apart = uniproto.select(source, 5, metric="chebyshev", min_distance=1.0).indices
assert matrix[np.ix_(apart, apart)][~np.eye(5, dtype=bool)].min() > 1.0
"""

COMMAND = """
import uniproto
from uniproto.cli import main

uniproto.select([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]], 2).save("out")
assert main(["show", "out"]) == 0
assert main(["show", "nowhere"]) == 2
"""

OPTION = """
import json
import numpy as np
from uniproto import Selection
from uniproto.cli import main

np.save("pool.npy", np.random.default_rng(0).normal(size=(30, 3)))
assert main("select pool.npy -k 4 --first 9 -o out --quiet".split()) == 0
assert Selection.load("out").indices.max() < 9
assert json.load(open("out/manifest.json"))["arguments"]["first"] == 9
for command in ("certify", "verify", "report"):
    assert main([command, "out"]) == 0
assert "select pool.npy -k 4 --first 9 -o out" in open("out/report.html").read()
assert main("compare pool.npy -k 4 --first 9 --methods greedy --quiet".split()) == 0
"""


def section(heading: str) -> str:
    """One recipe of the page."""
    return TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def follow(recipe: str, root: Path) -> Path:
    """Write the files that a recipe prints and make its edits, in a copy of the package."""
    package = root / "src" / "uniproto"
    shutil.copytree(ROOT / "src" / "uniproto", package, ignore=shutil.ignore_patterns("*.pyc"))
    printed = r"`(src/\S+\.py)`(?:(?!```).)*```python\n(.*?)```"
    for name, text in re.findall(printed, recipe, re.S):
        assert not (root / name).exists(), name
        (root / name).write_text(text, "utf-8")
    for block in re.findall(r"```diff\n(.*?)```", recipe, re.S):
        apply_edits(block, root)
    return package.parent


def apply_edits(block: str, root: Path) -> None:
    """Make the edits of a block: every one must fit exactly one place of its file."""
    header, *hunks = block.split("@@\n")
    path = root / header.removeprefix("+++ ").strip()
    text = path.read_text("utf-8")
    for hunk in hunks:
        lines = [line or " " for line in hunk.splitlines()]
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"{path.name} has no such lines, or several:\n{old}"
        text = text.replace(old, new)
    path.write_text(text, "utf-8")


def run(program: str, source: Path, folder: Path) -> str:
    """Run a program with a copy of the package, without compiling its loops anew."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_recipe_for_a_method(tmp_path: Path) -> None:
    recipe = section("Add a method")
    proposed = re.findall(r"```python\n(def test.*?)```", recipe, re.S)[0]
    printed = run(METHOD.format(proposed=proposed), follow(recipe, tmp_path), tmp_path)
    assert "\ncentral " in printed


@pytest.mark.slow
def test_the_recipe_for_a_metric(tmp_path: Path) -> None:
    run(METRIC, follow(section("Add a metric"), tmp_path), tmp_path)


@pytest.mark.slow
def test_the_recipe_for_a_command(tmp_path: Path) -> None:
    printed = run(COMMAND, follow(section("Add a command"), tmp_path), tmp_path)
    assert printed.startswith("2 prototypes of 3 source rows")


@pytest.mark.slow
def test_the_recipe_for_an_option(tmp_path: Path) -> None:
    run(OPTION, follow(section("Add an option to `select`"), tmp_path), tmp_path)


def test_every_make_target_on_the_page_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"(?m)^make ([\w-]+)", TEXT)
    assert targets
    for target in targets:
        assert f"\n{target}:" in makefile, target


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", TEXT))))
def test_every_page_that_is_linked_exists(link: str) -> None:
    assert (ROOT / link).exists()


def test_every_name_in_the_sources_that_the_page_mentions_is_there() -> None:
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    for name in ("draws: ClassVar[bool]", "require_memory", "need_features", "pick_greedily"):
        assert f"`{name}" in TEXT
        assert name in sources, name
