"""The house: no loose files at the root, no import circles, and arrows that go down only."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import uniproto
from uniproto.geometry.distances import Squares

PACKAGE = Path(__file__).parent.parent / "src" / "uniproto"
FRONT_DOOR = {"__init__", "__main__", "algorithm", "errors", "estimator", "select", "version"}
# Whatever stands in a line may import what stands above it, and its own room.
ORDER = """
errors version
runtime
runs
data
geometry
features
problem
fills
transport
algorithm
methods
certificate
report
selection
select
comparing estimator
scale
lm.models
lm.features
lm.batches
lm.curation
lm.finetune lm.pretraining
lm.judging
lm
cli
__init__ __main__
"""
LEVEL = {room: level for level, line in enumerate(ORDER.split("\n")) for room in line.split()}


def modules() -> dict[str, Path]:
    """Every module of the package by its name, without the package's."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = path
    return found


MODULES = modules()


@functools.cache
def imports(name: str) -> frozenset[str]:
    """The modules of the package that one of them imports, wherever in the file."""
    return frozenset(_imports(name))


def _imports(name: str) -> Iterator[str]:
    for node in _nodes(ast.parse(MODULES[name].read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            targets = [f"{node.module}.{alias.name}" for alias in node.names] or [node.module]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        for target in targets:
            if target.split(".")[0] == "uniproto":
                yield from _module_of(target.removeprefix("uniproto").lstrip("."))


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement that may ever run, which those for type checkers alone do not."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child)


def _module_of(target: str) -> Iterator[str]:
    while target and target not in MODULES:
        target = target.rpartition(".")[0]
    yield target or "__init__"


def room(name: str) -> str:
    """The room of a module; the rooms of language models are floors of their own."""
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] == "lm" else 1])


def test_only_the_front_door_stands_at_the_root() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == FRONT_DOOR


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in MODULES} == set(LEVEL)


def test_arrows_go_down_only() -> None:
    up = [
        f"{name} imports {target}"
        for name in MODULES
        for target in imports(name)
        if room(name) != room(target) and LEVEL[room(target)] >= LEVEL[room(name)]
    ]
    assert not up, "\n".join(up)


def test_only_commands_know_language_models() -> None:
    outside = {
        name
        for name in MODULES
        for target in imports(name)
        if target.startswith("lm.") and not name.startswith("lm")
    }
    assert outside <= {
        f"cli.{name}" for name in ("curate", "evaluate", "finetune", "inputs", "pretrain")
    }


def test_no_import_circle() -> None:
    """Late imports count, too."""
    left = {name: imports(name) - {name} for name in MODULES}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    # What is left stands on a circle or leads to one.
    assert not left, "\n".join(f"{name}: {sorted(on & left.keys())}" for name, on in left.items())


def test_one_class_name_is_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    twice = [f"{name}: {', '.join(found)}" for name, found in homes.items() if len(found) > 1]
    assert not twice, "\n".join(twice)


@pytest.mark.parametrize("rows", [40, 400])
def test_a_call_reaches_its_first_distance_through_few_others(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between `select(array, k)` and the first distances lie at most 12 calls."""
    reached: list[list[str]] = []
    between = Squares.between

    def noting(self: Squares, source: object, target: object) -> object:
        frame: FrameType | None = sys._getframe(1)
        calls = []
        while frame is not None and frame.f_code is not uniproto.select.__wrapped__.__code__:  # type: ignore[attr-defined]
            calls.append(frame.f_code.co_name)
            frame = frame.f_back
        reached.append(calls)
        return between(self, source, target)

    monkeypatch.setattr(Squares, "between", noting)
    points = np.random.default_rng(0).normal(size=(rows, 3))
    uniproto.select(points, 4, metric="euclidean")
    assert len(reached[0]) <= 12, reached[0]
