"""The page of an evaluation in a real browser, offline: filters, search, and nothing that runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import browser

from uniproto.lm.judging.evaluation import Evaluation, render

NASTY = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror=window.hacked=1>",
    "שלום \u202e gnp.exe",
    "half a pair \ud800 and nothing \x00",
    "{{ 7 * 7 }} </bdi>",
]
COUNT = 10_000


def item(number: int) -> dict[str, Any]:
    nasty = NASTY[number % len(NASTY)]
    by_program = number % 2 == 0
    return {
        "dataset": ("gsm8k", "math", "svamp")[number % 3],
        "id": f"item-{number}",
        "question": f"Question {number}: {nasty}",
        "gold": str(number),
        "predicted": str(number) if number % 4 == 0 else None,
        "verdict": "right" if number % 4 == 0 else "wrong",
        "how": "program" if by_program else "no answer",
        "program": f"print({nasty!r})" if by_program else None,
        "program_status": "ok" if by_program else None,
        "printed": nasty,
        "output": nasty + "x" * 300,
        "stopped": "length",
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    settings = {"template": NASTY[1], "contained": False}
    notes = {"svamp": NASTY[0]}
    found = Evaluation(NASTY[1], [item(number) for number in range(COUNT)], notes, settings)
    path.write_text(render(found), "utf-8")
    return path


class Visit(browser.Visit):
    """A page of answers, and what it shows."""

    ready = "items"

    def ids(self) -> list[str]:
        return list(self.page.locator("#list .answer header .quiet").all_inner_texts())

    def count(self) -> str:
        return str(self.page.inner_text("#count"))

    def until_count(self, expected: str) -> None:
        exactly = re.compile(f"^{re.escape(expected)}")  # 11 of 20 is not 1 of 20
        self.page.locator("#count", has_text=exactly).wait_for(timeout=20_000)


@pytest.fixture
def visit(chromium: Any, page: Path) -> Iterator[Any]:
    with browser.visits(lambda **options: Visit(chromium, page, **options)) as start:
        yield start


@pytest.mark.slow
def test_filters_search_and_pages(visit: Any) -> None:
    one = visit()
    assert one.count() == "10,000"
    assert one.ids() == [f"item-{number}" for number in range(25)]
    one.page.click("#next")
    assert one.ids()[0] == "item-25"
    assert one.page.inner_text("#page") == "page 2 of 400"
    options = one.page.locator("#dataset option").all_inner_texts()
    assert options == ["every data set", "GSM8K (3,334)", "MATH (3,333)", "SVAMP (3,333)"]
    one.page.select_option("#dataset", "SVAMP")
    assert one.count() == "3,333 of 10,000"
    assert one.ids()[:2] == ["item-2", "item-5"]
    assert one.page.inner_text("#page") == "page 1 of 134"
    one.page.select_option("#verdict-is", "right")
    assert one.ids()[:2] == ["item-8", "item-20"]
    one.page.select_option("#how", "no answer")
    assert one.page.is_visible("#none")
    assert one.page.is_disabled("#next")
    for filter in ("#dataset", "#verdict-is", "#how"):
        one.page.select_option(filter, "")
    one.page.keyboard.press("Escape")
    one.page.evaluate("document.activeElement.blur()")
    one.page.keyboard.press("/")
    one.page.keyboard.type("QUESTION 1234:")
    one.until_count("1 of 10,000")
    assert one.ids() == ["item-1234"]


def test_what_models_write_is_shown_as_it_is(visit: Any) -> None:
    one = visit()
    for number in range(len(NASTY)):
        shown = one.page.locator("#list .answer").nth(number)
        asked = shown.locator(".asked").text_content()
        assert asked.encode("utf-16", "surrogatepass") == item(number)["question"].encode(
            "utf-16", "surrogatepass"
        )
    assert NASTY[1] in one.page.inner_text("#verdict .eyebrow")
    assert one.page.inner_text("#asked pre") == NASTY[1]
    assert "cannot lock them in" in one.page.inner_text("#verdict")
    assert NASTY[0] in one.page.inner_text("#verdict .gap ul")


@pytest.mark.slow
def test_a_phone_in_the_dark_and_a_picture_for_the_eye(visit: Any, tmp_path: Path) -> None:
    """Kept where UNIPROTO_SCREENSHOTS names a folder: somebody should look at them."""
    one = visit(viewport={"width": 360, "height": 740}, color_scheme="dark", is_mobile=True)
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert one.page.evaluate(wide)
    folder = Path(os.environ.get("UNIPROTO_SCREENSHOTS") or tmp_path)
    one.page.screenshot(path=folder / "evaluation-phone.png")
    one.page.click("#theme")
    assert one.page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.slow
def test_the_policy_would_stop_a_script_that_came_in(chromium: Any, page: Path) -> None:
    evil = page.with_name("evil.html")
    inside = "<script>window.hacked = 1</script></main>"
    evil.write_text(page.read_text("utf-8").replace("</main>", inside, 1), "utf-8")
    one = Visit(chromium, evil)
    assert one.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in complaint for complaint in one.complaints)
    one.context.close()
