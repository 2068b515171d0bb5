"""What is published: a wheel with all it needs and nothing else, and sources that build it."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement

import uniproto

ROOT = Path(__file__).parents[2]
EXTRAS = {"compare", "excel", "faiss", "torch", "text", "images", "train", "judge", "lm", "jax"}
EXTRAS |= {"ray"}
FOR_MAINTAINERS = {"dev", "docs"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def _files(folder: Path) -> set[str]:
    return {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_the_experiments_and_nothing_else(wheel: Path) -> None:
    wanted = {f"uniproto/{file}" for file in _files(ROOT / "src" / "uniproto")}
    wanted |= {f"uniproto/experiments/{file}" for file in _files(ROOT / "experiments")}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == wanted
    for needed in (
        "py.typed",
        "report/template.html.j2",
        "report/style.css",
        "report/page.js",
        "lm/judging/page.html.j2",
        "lm/judging/answers/helper_main.py",
        "lm/judging/sandbox/inside/launch.py",
        "experiments/synthetic.py",
        "experiments/support/runs.py",
    ):
        assert f"uniproto/{needed}" in names


@pytest.mark.slow
def test_the_wheel_works_away_from_its_sources(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, "--target", site, wheel], check=True, capture_output=True)
    program = """
import sys
sys.path.insert(0, "site")
import uniproto
from uniproto.cli import main
print(uniproto.__file__)
for command in ("experiment list", "select vectors.npy -k 3 -o out", "report out"):
    assert main(command.split()) == 0
"""
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(20, 4)))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},  # compiling anew would take a minute
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]) == site / "uniproto" / "__init__.py"
    assert "synthetic" in done.stdout
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_the_sdist_holds_what_it_takes_to_test_and_document(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    for needed in (
        "src/uniproto/select.py",
        "tests/project/test_packaging.py",
        "docs/benchmarks.md",
        "examples/README.md",
        "experiments/synthetic.py",
        "benchmarks/requirements.txt",
        "Makefile",
        "constraints.txt",
        ".ci/run",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "CONTRIBUTING.md",
    ):
        assert needed in names
    tops = {name.partition("/")[0] for name in names}
    assert not tops & {".venv", ".hypothesis", "carried", "dist", "out", "uniproto-demo"}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.slow
def test_the_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "uniproto"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert set(metadata.get_all("Provides-Extra", [])) == EXTRAS | FOR_MAINTAINERS


@pytest.mark.slow
def test_the_core_has_fewer_than_ten_dependencies(metadata: Message) -> None:
    lines = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    core = [line.name for line in lines if not line.marker or line.marker.evaluate({"extra": ""})]
    assert 0 < len(core) < 10
    assert not {"torch", "transformers", "jax", "ray", "faiss-cpu", "matplotlib"} & set(core)


@pytest.mark.slow
def test_the_version_comes_from_one_place(metadata: Message) -> None:
    assert metadata["Version"] == uniproto.__version__
    assert not re.search(r"(?m)^version\s*=", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert f"\n## {uniproto.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_github_runs_what_everyone_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
