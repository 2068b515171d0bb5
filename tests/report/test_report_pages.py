"""The page of thousands of rows: page by page, and where the rows come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uniproto

K, POOL = 230, 600


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    selection = uniproto.select(random.normal(size=(POOL, 6)), K, random.normal(size=(40, 6)))
    sources = np.array(["gsm", "aqua", "none of it"])[np.arange(POOL) % 2]
    sources[selection.indices[0]] = "gsm"
    return selection.report(
        tmp_path_factory.mktemp("page") / "report.html",
        labels=sources,
        text=(
            [f"text number {row}" for row in range(POOL)],
            [f"target {row}" for row in range(40)],
        ),
        random=0,
    )


def test_composition_by_source(page_file: Path) -> None:
    page = page_file.read_text("utf-8")
    section = page.partition('<section id="sources"')[2].partition("</section>")[0]
    assert "<bdi>gsm</bdi>" in section
    assert "<bdi>aqua</bdi>" in section
    assert 'href="#sources"' in page
    counts = [int(part.partition("</td>")[0]) for part in section.split("<td>")[3::4]]
    assert sum(counts) == K


def test_no_composition_where_the_target_has_labels(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(30, 3))
    labels = ["a", "b"] * 15
    page = uniproto.select(rows, 5).report(tmp_path / "page.html", labels=labels, random=0)
    assert 'id="sources"' not in page.read_text("utf-8")


@pytest.mark.slow
def test_pages_of_prototypes(page_file: Path, chromium: Any) -> None:
    page = chromium().new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_selector("html[data-charts=ready]", timeout=60_000)  # they move what is below

    def shown() -> int:
        return int(page.evaluate("document.querySelectorAll('#cards > li:not([hidden])').length"))

    def until(holds: Callable[[], bool]) -> None:
        for _ in range(300):
            if holds():
                return
            page.wait_for_timeout(100)
        raise AssertionError(page.inner_text("#page"))

    assert shown() == 60
    assert page.inner_text("#page") == "1 – 60 of 230"
    assert page.is_disabled("#before")
    for begins in ("61 ", "121 ", "181 "):
        page.click("#after")
        until(partial(lambda begins: page.inner_text("#page").startswith(begins), begins))
    assert (shown(), page.inner_text("#page")) == (50, "181 – 230 of 230")
    assert page.is_disabled("#after")
    page.fill("#search", "no such text")
    until(lambda: page.is_visible("#none"))
    assert shown() == 0
    assert page.is_hidden("#pages")
    page.fill("#search", "")
    until(lambda: page.is_hidden("#none"))
    page.evaluate("location.hash = '#p150'")
    until(lambda: page.inner_text("#page").startswith("121"))
    page.focus("#p180")
    page.keyboard.press("ArrowRight")  # to the next page
    until(lambda: page.inner_text("#page").startswith("181"))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert shown() == 230  # on paper there are no pages to turn
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert shown() == 50
    assert not errors
    page.context.close()
