"""The documentation: it builds without warnings, needs no network, and names what exists."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from uniproto.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = [
    "uniproto",
    "uniproto.methods",
    "uniproto.features",
    "uniproto.lm",
    "uniproto.lm.pretraining",
    "uniproto.lm.judging",
    "uniproto.scale",
]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
MOST_WORDS = 1_200  # of a page that tells people what to do
PAPER_MAP = (DOCS / "paper-map.md").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, somewhere else."""
    pytest.importorskip("material", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings_handlers.python", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    return folder


class Seen(HTMLParser):
    """What a page fetches when it is opened, and the anchors it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        if given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given.get(FETCHED.get(tag, "")) or "")


@pytest.mark.slow
def test_no_page_needs_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        outside = [url for url in Seen(page).fetched if re.match(r"(https?:)?//", url)]
        assert not outside, f"{page.name}: {outside}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference(package: str, site: Path) -> None:
    anchors = {anchor for page in site.glob("api/*.html") for anchor in Seen(page).anchors}
    described = {anchor.rpartition(".")[2] for anchor in anchors}
    assert set(importlib.import_module(package).__all__) <= described


def named(dotted: str) -> Any:
    """The object of that name, wherever its module ends and its attributes begin."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError as error:
            if not dotted.startswith(error.name or ""):
                pytest.skip(f"needs {error.name}")
        except MissingExtraError as error:
            pytest.skip(str(error))
        else:
            for attribute in parts[split:]:
                found = getattr(found, attribute)
            return found
    raise ImportError(dotted)


def names_in_the_map() -> set[str]:
    """Dotted names in backticks; those of the map begin at the package."""
    begun = {f"uniproto.{name}" for name in re.findall(r"`([A-Za-z]\w*(?:\.\w+)+)`", PAPER_MAP)}
    whole = set(re.findall(r"`(uniproto(?:\.\w+)+)`", (DOCS / "structure.md").read_text()))
    return {name.replace("uniproto.uniproto", "uniproto") for name in begun} | whole


@pytest.mark.parametrize("dotted", sorted(names_in_the_map()))
def test_every_function_that_is_named_can_be_imported(dotted: str) -> None:
    assert named(dotted) is not None


def test_every_line_of_the_algorithm_and_every_equation_has_a_place() -> None:
    for number in range(1, 9):
        assert re.search(rf"\bEq\. {number}\b", PAPER_MAP)
    for line in ("1", "2", "3, as printed", "4", "5", "6, 7"):
        assert re.search(rf"^\| {line} \|", PAPER_MAP, re.MULTILINE)
    for lemma in range(1, 6):
        assert f"Lemma {lemma}" in PAPER_MAP


def test_every_test_that_is_named_exists() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for page in DOCS.glob("*.md"):
        for name in re.findall(r"`(test_\w+)`", page.read_text()):
            assert f"def {name}(" in tests, f"{page.name}: {name}"


def pages_to_use() -> list[str]:
    """The pages that tell people what to do, by the site's menu: all but results and reference."""
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    used = re.sub(r"  - (Results|Reference):\n(      .*\n?)+", "", f"{menu}\n")
    return re.findall(r"([\w-]+\.md)$", used, re.MULTILINE)


@pytest.mark.parametrize("page", pages_to_use())
def test_a_page_to_use_is_short(page: str) -> None:
    assert len((DOCS / page).read_text().split()) <= MOST_WORDS


def test_every_file_the_readme_links_to_exists() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text()):
        assert (ROOT / link).exists(), link


def test_every_experiment_and_every_benchmark_has_a_line() -> None:
    scripts = [path.stem for path in (ROOT / "experiments").glob("[a-z]*.py")]
    page = (DOCS / "experiments.md").read_text()
    assert [name for name in scripts if f"| `{name}` |" not in page] == []
    listed = (ROOT / "benchmarks" / "__main__.py").read_text().partition("\n\n\n")[0]
    measured = (DOCS / "benchmarks.md").read_text()
    names = re.findall(r'"(\w+)"', listed.partition("NAMES = ")[2])
    assert [name for name in names if f"| `{name}`" not in measured] == []


def test_the_tree_on_the_page_is_that_of_the_package_in_the_order_of_its_imports() -> None:
    structure = (ROOT / "tests" / "test_structure.py").read_text()
    order = structure.partition('ORDER = """')[2].partition('"""')[0].split()
    folders = [room for room in order if (ROOT / "src" / "uniproto" / room).is_dir()]
    tree = (DOCS / "structure.md").read_text().partition("```\n")[2].partition("```")[0]
    assert re.findall(r"^  (\w+)/ ", tree, re.MULTILINE) == folders


def test_every_file_the_page_about_structure_names_exists() -> None:
    there = {path.name for path in (ROOT / "src").rglob("*.py")}
    named_files = re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", (DOCS / "structure.md").read_text())
    assert len(named_files) > 10
    assert set(named_files) - there <= {path.name for path in (ROOT / "tests").rglob("*.py")}
