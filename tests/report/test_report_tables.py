"""The page for tables, in a browser: all columns, pages of many prototypes, other pages like it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import uniproto
from uniproto.comparing.path import path_of

RNG = np.random.default_rng(0)
COUNT = 400
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, COUNT),
        "income": RNG.lognormal(10, 0.5, COUNT).round(2),
        "country": RNG.choice(["DE", "FR", "IT"], COUNT, p=[0.7, 0.28, 0.02]),
        "note": [f"<b>note</b> {row}" for row in range(COUNT)],
    }
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = [f"class {row % 150}" for row in range(COUNT)]
    folder = tmp_path_factory.mktemp("page")
    return uniproto.select(FRAME, 130).report(folder / "t.html", labels=labels, random=0)


@pytest.fixture
def opened(chromium: Any, page: Path) -> Any:
    context = chromium(viewport={"width": 1280, "height": 900})
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("console", lambda message: complaints.append(message.text))
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    shown.goto(page.as_uri())
    shown.wait_for_selector("html[data-charts=ready]", timeout=60_000)
    yield shown
    context.close()
    assert complaints == []


@pytest.mark.slow
def test_a_table_with_every_column_in_pages(opened: Any) -> None:
    heads = opened.locator("#table thead th").all_inner_texts()
    assert heads == ["", "row", "class", *FRAME.columns, "represents", "away"]
    assert opened.locator("#table tbody tr").count() == 60
    row = int(opened.locator("#table tbody tr td").first.inner_text())
    shown = opened.locator("#table tbody tr").first.locator("td").all_inner_texts()
    assert shown[2:6] == [str(FRAME[name][row]) for name in ("age",)] + [
        f"{FRAME['income'][row]:.6g}",
        FRAME["country"][row],
        FRAME["note"][row],
    ]
    assert opened.inner_text("#page") == "1 – 60 of 130"
    opened.click("#after")
    opened.locator("#page", has_text="61 – 120 of 130").wait_for()
    opened.click("#after")
    opened.locator("#page", has_text="121 – 130 of 130").wait_for()
    assert opened.locator("#table tbody tr").count() == 10
    assert opened.is_disabled("#after")
    opened.locator("#table tbody tr").first.click()
    assert opened.inner_text("#detail .rank") == "121"
    opened.click("#as-cards")
    assert opened.locator("#cards > li:not([hidden])").count() == 10
    opened.focus("#p121")
    opened.keyboard.press("Home")
    assert opened.evaluate("document.activeElement.id") == "p1"


@pytest.mark.slow
def test_the_panel_is_never_empty_and_there_is_one_legend(opened: Any) -> None:
    assert opened.inner_text("#detail .rank") == "1"
    assert opened.locator("#legend .shape").count() == 3
    opened.keyboard.press("Escape")
    assert opened.inner_text("#detail .rank") == "1"


@pytest.mark.slow
def test_distributions_and_what_is_unusual(opened: Any, page: Path) -> None:
    assert opened.locator("#columns figure").count() == 3  # notes are another text in every row
    assert opened.locator("#columns figure strong").all_inner_texts() == [
        "age",
        "income",
        "country",
    ]
    assert opened.locator("#table td.unusual").count() > 0
    text = page.read_text("utf-8")
    assert "130 prototypes can be of at most 130 of 150: 20 of the" in text
    assert re.search(r"20 of the \d+ without one \(\d+%\) are unavoidable", text)


@pytest.mark.slow
def test_other_pages_look_alike(chromium: Any, tmp_path: Path) -> None:
    few = FRAME.head(60)
    methods = ["uniproto", "random"]
    uniproto.compare(few, 5, methods=methods, seeds=2, progress=False).save(tmp_path)
    path_of(uniproto.Problem(few), [2, 4, 8], random_seeds=2, certify=False, progress=False).save(
        tmp_path
    )
    for name, charts in (("comparison", 2), ("path", 1)):
        for scheme in ("light", "dark"):
            context = chromium(color_scheme=scheme, viewport={"width": 390, "height": 800})
            shown = context.new_page()
            complaints: list[str] = []
            shown.on("console", lambda message, told=complaints: told.append(message.text))
            shown.goto((tmp_path / f"{name}.html").as_uri())
            shown.wait_for_selector("html[data-charts=ready]", timeout=60_000)
            assert shown.locator(".chart svg").count() == charts
            wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert shown.evaluate(wide)
            assert shown.locator("#numbers tbody tr").count() == (2 if name == "comparison" else 3)
            context.close()
            assert complaints == []
