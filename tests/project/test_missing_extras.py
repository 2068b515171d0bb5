"""Without an extra, what needs it answers with the line that installs it, and nothing else does."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from base64 import b64decode
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import uniproto

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")

# Packages are hidden as if they had never been installed: `find_spec` gives None for them, and
# their metadata are not found either (transformers asks for both).
HIDE = """
import sys

class Hiding:
    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name, path=None, target=None):
        known = name.partition(".")[0] not in self.hidden
        return self.finder.find_spec(name, path, target) if known else None

    def find_distributions(self, *context):
        for found in self.finder.find_distributions(*context):
            if found.metadata["Name"].lower().replace("-", "_") not in self.hidden:
                yield found

    def invalidate_caches(self):
        self.finder.invalidate_caches()

def hide(hidden):
    sys.meta_path[:] = [
        Hiding(finder, hidden) if hasattr(finder, "find_distributions") else finder
        for finder in sys.meta_path
    ]
"""
# A copy of one process for each case: all of them have the core loaded.
CASES = (
    HIDE
    + """
import os
import uniproto
from uniproto.cli import main

def called(call, extra):
    try:
        exec(call)
    except uniproto.MissingExtraError as error:
        print("uniproto: error:", error, file=sys.stderr)
        return 2 if error.extra == extra else 1

extra, command, call, *cases = sys.argv[1:]
for number, case in enumerate(cases):
    way, hidden = case.split(":")
    if (child := os.fork()) == 0:
        os.dup2(os.open(f"{number}.log", os.O_CREAT | os.O_WRONLY), 2)
        hide(hidden.split(","))
        status = main(command.split()) if way == "command" else called(call, extra)
        sys.stderr.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
)

GREY_PNG = (  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
SELECT = "select vectors.npy -k 3 -o out"
COMMANDS = {
    "compare": f"{SELECT} --method fasterpam",
    "excel": "select sheet.xlsx -k 2 -o out",
    "faiss": f"{SELECT} --neighbours faiss",
    "torch": f"{SELECT} --device cuda",
    "text": "select texts.csv -k 2 --text text -o out",
    "images": "select pictures -k 1 --images -o out",
    "train": "finetune --model model --data tuning.jsonl -o out",
    "judge": "evaluate model --data . --suite gsm8k --allow-partial -o out",
    "jax": "pretrain --size tiny --data texts.txt -o out",
    "ray": "select pool -k 2 --engine ray -o out",
}
CALLS = {
    "text": "uniproto.features.embed_text(['one'])",
    "images": "uniproto.features.embed_images(['pictures/0.png'])",
    "train": "uniproto.lm.SelectionTrainer",
    "judge": "import uniproto.lm.judging; uniproto.lm.judging.evaluate('model', suite='gsm8k', "
    "data='.', out='out', allow_partial=True)",
    "jax": "from uniproto.lm.pretraining import make_step",
    "ray": "import uniproto.scale; uniproto.scale.select('pool/*.parquet', 2)",
}
DOES_WITHOUT = {  # packages that the command tried here needs for other models or data only
    ("images", "transformers"),
    ("judge", "accelerate"),
    ("judge", "peft"),
    ("judge", "sympy"),
}
FOR_MAINTAINERS = {"dev", "docs"}  # of no command
TOGETHER = {"lm"}  # several of the others


PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


def requirements(extra: str) -> set[str]:
    """The packages of an extra, as they are named on the index."""
    return {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]}


@functools.cache
def packages_by_module() -> dict[str, set[str]]:
    """The packages that each module that can be imported comes from."""
    return {
        module: {canonicalize_name(name) for name in names}
        for module, names in packages_distributions().items()
    }


def modules(packages: set[str]) -> set[str]:
    return {module for module, found in packages_by_module().items() if packages & found}


@pytest.fixture
def everything() -> list[str]:
    """The modules of every extra."""
    found = modules(set().union(*map(requirements, COMMANDS)))
    assert {"torch", "transformers", "jax", "ray"} & found, "nothing is hidden here"
    return sorted(found)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One small input for every command, none of which has to search thoroughly."""
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(30, 4)))
    (tmp_path / "texts.csv").write_text("text\none apple\ntwo pears\nthree plums\n")
    (tmp_path / "sheet.xlsx").write_bytes(b"of any content")
    (tmp_path / "texts.txt").write_text("one apple\n\ntwo pears\n\nthree plums\n")
    (tmp_path / "tuning.jsonl").write_text('{"source": "a", "instruction": "1+1", "output": "2"}\n')
    question = '{"dataset": "gsm8k", "question": "1+1?", "answer": "2"}\n'
    (tmp_path / "math_test.jsonl").write_text(question)
    for name in ("pictures", "pool", "model"):
        (tmp_path / name).mkdir()
    (tmp_path / "pictures" / "0.png").write_bytes(b64decode(GREY_PNG))
    table = pa.table({"x": [1.0, 2.0, 3.0], "y": [2.0, 0.0, 1.0]})
    pq.write_table(table, tmp_path / "pool" / "0.parquet")
    return tmp_path


def run(program: str, arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_extra_is_tried_here() -> None:
    assert set(COMMANDS) == set(EXTRAS) - FOR_MAINTAINERS - TOGETHER


@pytest.mark.parametrize("extra", sorted(TOGETHER))
def test_an_extra_of_several_names_those_there_are(extra: str) -> None:
    (line,) = map(Requirement, EXTRAS[extra])
    assert line.name == "uniproto"
    assert line.extras
    assert line.extras <= set(COMMANDS)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("extra", COMMANDS)
def test_command_and_call_say_how_to_install_an_extra(extra: str, folder: Path) -> None:
    """All of it is missing; or one of its packages is, as after an extra grew."""
    packages = requirements(extra)
    needed = [one for one in sorted(packages) if (extra, one) not in DOES_WITHOUT]
    missing = [packages, *({one} for one in needed)] if len(packages) > 1 else [packages]
    cases = [f"command:{','.join(modules(some))}" for some in missing]
    if extra in CALLS:
        cases.append(f"call:{','.join(modules(packages))}")
    codes = run(CASES, [extra, COMMANDS[extra], CALLS.get(extra, ""), *cases], folder).split()
    for number, (case, code) in enumerate(zip(cases, codes[-len(cases) :], strict=True)):
        said = (folder / f"{number}.log").read_text()
        assert code == "2", (case, said)
        assert f"pip install '.[{extra}]'" in said, (case, said)
        assert said.splitlines()[-1].startswith("uniproto: error: ")
        assert "Traceback" not in said
    assert not (folder / "out").exists()


@pytest.mark.slow
def test_the_core_works_without_any_extra(everything: list[str], folder: Path) -> None:
    program = f"""{HIDE}
hide(sys.argv[1:])
from uniproto.cli import main
for command in ({SELECT!r}, "report out", "verify out", "demo -k 5 --quiet"):
    assert main(command.split()) == 0
"""
    run(program, everything, folder)
    assert (folder / "out" / "report.html").exists()
    assert uniproto.Selection.load(folder / "uniproto-demo").k == 5


@pytest.mark.slow
def test_every_help_is_there_without_any_extra(everything: list[str], folder: Path) -> None:
    program = f"""{HIDE}
hide(sys.argv[1:])
from uniproto.cli import _COMMANDS, main
for command in _COMMANDS:
    try:
        main([command.__name__.rpartition(".")[2], "--help"])
    except SystemExit as end:
        assert end.code == 0
"""
    assert run(program, everything, folder).count("usage: uniproto") >= len(EXTRAS)
