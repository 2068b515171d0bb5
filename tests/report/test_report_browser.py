"""The page in a real browser, without a network: it works, and nothing in its data runs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import browser

import uniproto
from uniproto.cli import main
from uniproto.report.columns import ColumnValues
from uniproto.report.update_page import update_page

RNG = np.random.default_rng(5)
COUNT, K = 60, 12
X = np.concatenate([RNG.normal(place, 0.4, size=(20, 4)) for place in (-3, 0, 3)])
LABELS = np.repeat(["left", "<b>middle</b>", "right"], 20)
MANY, POOL = 230, 600
ROWS = 400
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, ROWS),
        "income": RNG.lognormal(10, 0.5, ROWS).round(2),
        "country": RNG.choice(["DE", "FR", "IT"], ROWS, p=[0.7, 0.28, 0.02]),
        "note": [f"<b>note</b> {row}" for row in range(ROWS)],
    }
)
NASTY = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    '" onmouseover="window.hacked = 1" x="',
    "<img src=x onerror=window.hacked=1>",
    "=HYPERLINK(1)",
    "x" * 1_000_000,
    "שלום \u202e gnp.exe",
    "broken \ud800 and \x00",
    "javascript:window.hacked=1",
    "{{constructor.constructor('window.hacked=1')()}}",
]
TEXTS = [f"{NASTY[row % len(NASTY)]} number {row}" for row in range(COUNT)]


@pytest.fixture(scope="module")
def selection() -> Any:
    return uniproto.select(X, K, metric="euclidean", certify=True)


@pytest.fixture(scope="module")
def pages(selection: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    pictures = RNG.integers(0, 17, (COUNT, 8, 8))
    ids = [f"{NASTY[0]}{row}" for row in range(COUNT)]
    text = selection.report(folder / "t.html", text=TEXTS, labels=LABELS, ids=ids, title=NASTY[1])
    image = selection.report(folder / "i.html", images=pictures, labels=LABELS, groups=LABELS)
    rows = selection.report(folder / "r.html", random=0)
    many = uniproto.select(RNG.normal(size=(POOL, 6)), MANY, RNG.normal(size=(40, 6))).report(
        folder / "m.html",
        labels=np.array(["gsm", "aqua"])[np.arange(POOL) % 2],
        text=(
            [f"text number {row}" for row in range(POOL)],
            [f"target {row}" for row in range(40)],
        ),
        random=0,
    )
    labels = [f"class {row % 150}" for row in range(ROWS)]
    table = uniproto.select(FRAME, 130).report(folder / "f.html", labels=labels, random=0)
    return {"text": text, "images": image, "rows": rows, "many": many, "table": table}


class Visit(browser.Visit):
    """A report, and what can be done with it."""

    def until(self, expression: str) -> None:
        """Wait until an expression holds; the page's policy forbids Playwright's own way."""
        for _ in range(1200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never came true: {expression}")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def visible(self) -> list[int]:
        found = self.page.eval_on_selector_all(
            "#cards > li:not([hidden]) .card", "cards => cards.map(card => Number(card.dataset.p))"
        )
        return [int(place) for place in found]

    def download(self, button: str) -> str:
        with self.page.expect_download() as coming:
            self.page.click(button)
        return Path(coming.value.path()).read_bytes().decode("utf-8-sig")


@pytest.fixture
def visit(chromium: Any, pages: dict[str, Path]) -> Iterator[Any]:
    with browser.visits(lambda name, **options: Visit(chromium, pages[name], **options)) as start:
        yield start


def screen_place(one: Visit, place: int) -> tuple[float, float]:
    """Where a prototype lies on the screen: from the map's own scales."""
    return tuple(  # type: ignore[return-value]
        one.page.evaluate(
            """place => {
                const box = document.querySelector("#chart-map canvas").getBoundingClientRect();
                const data = JSON.parse(document.querySelector("#data").textContent);
                const { x, y } = data.prototypes[place];
                const { view } = window.uniproto.views.map;
                const [left, top] = [box.left + view.padding().left, box.top + view.padding().top];
                const [right, down] = view.origin();
                return [left + right + view.scale("x")(x), top + down + view.scale("y")(y)];
            }""",
            place,
        )
    )


def lit(one: Visit) -> list[int]:
    rows = one.page.evaluate("window.uniproto.views.map.view.data('lit').map(point => point.i)")
    data = json.loads(one.page.text_content("#data"))
    return sorted(data["items"]["row"][place] for place in rows)


@pytest.mark.parametrize("name", ["rows", pytest.param("text", marks=pytest.mark.slow)])
def test_a_click_on_the_map_lights_up_what_the_plan_says(
    name: str, visit: Any, selection: Any, tmp_path: Path
) -> None:
    one = visit(name)
    one.page.locator("#chart-map").scroll_into_view_if_needed()
    plan = selection.plan.toarray()
    clicked = 0
    for place in range(K):
        one.page.keyboard.press("Escape")
        one.until("document.documentElement.dataset.lit === ''")
        one.page.mouse.click(*screen_place(one, place))
        one.until("document.documentElement.dataset.lit")
        rank = one.page.locator("#detail .rank")
        if rank.count() and rank.inner_text() == str(place + 1):  # not hidden under another
            assert lit(one) == np.flatnonzero(plan[place] > 0).tolist()
            clicked += 1
    assert clicked >= K // 2
    one.page.mouse.move(*screen_place(one, 0))
    one.page.wait_for_selector("#tip:not([hidden])")
    assert "prototype" in one.text("#tip")
    shot = tmp_path / "page.png"
    one.page.screenshot(path=shot, full_page=True)
    assert shot.stat().st_size > 10_000


def test_a_click_in_the_gallery_shows_the_prototype(visit: Any, selection: Any) -> None:
    one = visit("text")
    one.page.click("#p4")
    one.until("document.documentElement.dataset.lit")
    assert lit(one) == np.flatnonzero(selection.plan.toarray()[3]).tolist()
    assert one.page.get_attribute("#p4", "aria-current") == "true"
    expected = TEXTS[selection.indices[3]]
    shown = one.page.text_content("#detail .text")
    assert shown.rstrip("…")[:40].replace("\ufffd", "?") == re.sub(
        "[\ud800\x00]", "?", expected[: len(shown.rstrip("…"))][:40]
    )


@pytest.mark.slow
def test_filters_and_search(visit: Any, selection: Any) -> None:
    one = visit("text")
    assert one.visible() == list(range(K))
    right = np.flatnonzero(LABELS[selection.indices] == "<b>middle</b>").tolist()
    options = one.page.locator(".filter option").all_inner_texts()
    assert f"<b>middle</b> ({len(right)})" in options
    one.page.select_option(".filter", label=f"<b>middle</b> ({len(right)})")
    assert one.visible() == right
    assert one.text("#count") == f"{len(right)} of {K}"
    one.until(f"window.uniproto.views.map.view.data('prototypes').length === {len(right)}")
    one.page.select_option(".filter", "")
    row = int(selection.indices[5])
    one.page.fill("#search", f"number {row}")
    one.until("document.querySelectorAll('#cards > li[hidden]').length > 0")
    assert 5 in one.visible()
    one.page.fill("#search", "nothing is called this")
    one.page.wait_for_selector("#none:not([hidden])")


@pytest.mark.slow
def test_exports_hold_what_is_shown(visit: Any, selection: Any) -> None:
    one = visit("text")
    records = json.loads(one.download("#json"))
    assert [record["row"] for record in records] == selection.indices.tolist()
    represents = np.diff(selection.plan.indptr).tolist()
    assert [record["represents"] for record in records] == represents
    assert list(records[0])[:3] == ["row", "rank", "represents"]  # as in prototypes.csv
    assert [record["class"] for record in records] == LABELS[selection.indices].tolist()
    one.page.select_option(".filter", index=1)
    shown = one.visible()
    table = list(csv.DictReader(io.StringIO(one.download("#csv"))))
    assert [int(record["rank"]) - 1 for record in table] == shown
    for record in table:  # no cell begins like a formula
        assert not any(re.match(r"[=+@]", cell) for cell in record.values())


@pytest.mark.slow
def test_the_keyboard_alone_is_enough(visit: Any, selection: Any) -> None:
    one = visit("images")
    one.page.keyboard.press("Tab")
    assert one.page.evaluate("document.activeElement.className") == "skip"
    one.page.focus("#p1")
    for key, rank in (("ArrowRight", 2), ("End", K), ("ArrowLeft", K - 1), ("Home", 1)):
        one.page.keyboard.press(key)
        assert one.page.evaluate("document.activeElement.id") == f"p{rank}"
    one.page.keyboard.press("ArrowDown")
    assert one.page.evaluate("document.activeElement.id") not in ("p1", "")
    one.page.keyboard.press("Home")
    one.page.keyboard.press("Enter")
    one.until("document.documentElement.dataset.lit")
    assert lit(one) == np.flatnonzero(selection.plan.toarray()[0]).tolist()
    one.page.keyboard.press("Escape")
    one.until("document.documentElement.dataset.lit === ''")
    one.page.focus("#chart-map")
    one.page.keyboard.press("ArrowRight")
    one.until("document.documentElement.dataset.lit")
    one.page.keyboard.press("/")
    assert one.page.evaluate("document.activeElement.id") == "search"


@pytest.mark.slow
def test_pictures_charts_and_their_words(visit: Any) -> None:
    one = visit("images")
    one.page.locator("#p1").scroll_into_view_if_needed()
    one.until(
        "[...document.querySelectorAll('#cards img.big')].some(image => image.naturalWidth === 8)"
    )
    charts = one.page.locator(".chart")
    assert charts.count() == 4  # groups are the classes here: told once
    for place in range(charts.count()):
        assert len(charts.nth(place).get_attribute("aria-label")) > 20
    assert one.page.locator("details table").count() == 3
    assert one.page.locator("img:not([alt])").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text", "images"])
def test_a_phone_in_the_dark(name: str, visit: Any) -> None:
    one = visit(
        name,
        viewport={"width": 360, "height": 740},
        color_scheme="dark",
        is_mobile=True,
        has_touch=True,
    )
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert one.page.evaluate(wide)
    paper = "getComputedStyle(document.body).backgroundColor"
    assert sum(map(int, re.findall(r"\d+", one.page.evaluate(paper))[:3])) < 120
    one.page.click("#theme")
    assert sum(map(int, re.findall(r"\d+", one.page.evaluate(paper))[:3])) > 600
    one.page.wait_for_timeout(300)


@pytest.mark.slow
def test_the_policy_would_stop_a_script_that_came_in(chromium: Any, pages: dict[str, Path]) -> None:
    text = pages["text"].read_text("utf-8")
    evil = pages["text"].with_name("evil.html")
    inside = "<script>window.hacked = 1</script><img src='http://127.0.0.1:9/x.png'></main>"
    evil.write_text(text.replace("</main>", inside, 1), encoding="utf-8")
    one = Visit(chromium, evil)
    assert one.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in complaint for complaint in one.complaints)
    one.context.close()


INHERITED = ["constructor", "toString", "valueOf", "__proto__", "hasOwnProperty", "$blue"]


@pytest.mark.slow
def test_names_that_every_object_has(chromium: Any, tmp_path: Path) -> None:
    """Classes, columns and methods called as JavaScript's objects call their own."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 3))
    labels = np.array(INHERITED)[np.arange(60) % len(INHERITED)]
    pool = pa.table(
        {"x": points[:, 0], "y": points[:, 1], "z": points[:, 2], "label": labels}
        | {name: [f"{name} {row}" for row in range(60)] for name in INHERITED}
    )
    pq.write_table(pool, tmp_path / "pool.parquet")
    out = tmp_path / "out"
    command = ["select", str(tmp_path / "pool.parquet"), "-k", "12", "--metric", "euclidean"]
    command += ["--columns", "x,y,z", "--labels", "label", "-o", str(out)]
    assert main([*command, "--quiet"]) == 0
    compared = {"k": 12, "shape": [60, 60], "metric": "euclidean"}
    rows = [{"method": name, "cost": 1.0 + place} for place, name in enumerate(INHERITED)]
    summary = [{**row, "cost_spread": None, "runs": 1} for row in rows]
    record = {**compared, "summary": summary, "rows": rows}
    (out / "comparison.json").write_text(json.dumps(record))
    assert main(["report", str(out), "--quiet"]) == 0
    one = Visit(chromium, out / "report.html")
    for chart in ("coverage-class", "final"):
        shown = one.page.locator(f"#chart-{chart} svg text").all_text_contents()
        assert set(INHERITED) <= set(shown), chart
    marks = one.page.locator("#chart-coverage-class svg .mark-symbol path").count()
    assert marks >= 2 * len(INHERITED)
    for record in json.loads(one.download("#json")):
        for name in INHERITED:
            assert record[name] == f"{name} {record['row']}"
    header = one.download("#csv").splitlines()[0].split(",")
    assert set(INHERITED) <= set(header)
    one.page.select_option(".filter", index=1)
    assert 0 < len(one.visible()) < 12
    one.close()


# Thousands of rows: page by page, and where they come from


def test_composition_by_source(pages: dict[str, Path]) -> None:
    page = pages["many"].read_text("utf-8")
    section = page.partition('<section id="sources"')[2].partition("</section>")[0]
    assert "<bdi>gsm</bdi>" in section
    assert "<bdi>aqua</bdi>" in section
    assert 'href="#sources"' in page
    counts = [int(part.partition("</td>")[0]) for part in section.split("<td>")[3::4]]
    assert sum(counts) == MANY
    assert 'id="sources"' not in pages["text"].read_text("utf-8")  # the target has labels, too


@pytest.mark.slow
def test_pages_of_prototypes(visit: Any) -> None:
    one = visit("many")
    number = "document.querySelector('#page').textContent"
    assert len(one.visible()) == 60
    assert one.text("#page") == "1 – 60 of 230"
    assert one.page.is_disabled("#before")
    for begins in ("61 ", "121 ", "181 "):
        one.page.click("#after")
        one.until(f"{number}.startsWith('{begins}')")
    assert (len(one.visible()), one.text("#page")) == (50, "181 – 230 of 230")
    assert one.page.is_disabled("#after")
    one.page.fill("#search", "no such text")
    one.page.wait_for_selector("#none:not([hidden])")
    assert one.visible() == []
    assert one.page.is_hidden("#pages")
    one.page.fill("#search", "")
    one.until("document.querySelector('#none').hidden")
    one.page.evaluate("location.hash = '#p150'")
    one.until(f"{number}.startsWith('121')")
    one.page.focus("#p180")
    one.page.keyboard.press("ArrowRight")  # to the next page
    one.until(f"{number}.startsWith('181')")
    one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(one.visible()) == 230  # on paper there are no pages to turn
    one.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert len(one.visible()) == 50


# Tables: all columns, their distributions, and other pages like this one


@pytest.mark.slow
def test_a_table_with_every_column_in_pages(visit: Any) -> None:
    opened = visit("table").page
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
def test_distributions_and_what_is_unusual(visit: Any, pages: dict[str, Path]) -> None:
    one = visit("table").page
    names = one.locator("#columns figure strong").all_inner_texts()
    assert sorted(names) == ["age", "country", "income"]  # notes are another text in every row
    assert one.locator("#table td.unusual").count() > 0
    text = pages["table"].read_text("utf-8")
    assert "130 prototypes can be of at most 130 of 150: 20 of the" in text
    assert re.search(r"20 of the \d+ without one \(\d+%\) are unavoidable", text)


@pytest.mark.slow
def test_other_pages_look_alike(chromium: Any, tmp_path: Path) -> None:
    few = FRAME.head(60)
    uniproto.compare(few, 5, methods=["uniproto", "random"], seeds=2, progress=False).save(tmp_path)
    knee = uniproto.path(few, [2, 4, 8], seeds=2, certify=False, progress=False)
    knee.save(tmp_path)
    new = uniproto.Problem(FRAME.head(90))
    later = uniproto.select(few, 5, features=new.given.preparation).update(new, changes=2)
    page = update_page(later, new, title="april.csv", command="uniproto update march april.csv")
    (tmp_path / "update.html").write_text(page, encoding="utf-8")
    pages = (("comparison", 2, 2), ("path", 1, 3), ("update", 2, 2))
    for (name, charts, rows), scheme in itertools.product(pages, ("light", "dark")):
        size = {"width": 390, "height": 800}
        one = Visit(chromium, tmp_path / f"{name}.html", color_scheme=scheme, viewport=size)
        assert one.page.locator(".chart svg").count() == charts
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert one.page.evaluate(wide)
        assert one.page.locator("#numbers tbody tr").count() == rows
        if name == "path":  # the k of the headline is seen in the table without scrolling
            line = one.page.locator("#numbers tbody tr", has_text="knee")
            assert line.locator("th").inner_text() == str(knee.knee)
            box = line.locator("td").first.bounding_box()
            assert box["x"] + box["width"] <= 390
            label = one.page.locator(".chart svg text", has_text=f"knee: k = {knee.knee}")
            box = label.last.bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390
        if name == "update":
            assert one.page.locator("pre").inner_text() == "uniproto update march april.csv"
        one.close()


# Bars of columns: years, ends and whole numbers as a person writes them


def names_of(values: object) -> list[str]:
    column = pa.chunked_array([pa.array(values)])
    chart = ColumnValues(column, column, "x", np.ones(len(column))).chart("")
    return [bar.name for bar in chart.bars]


def test_years_have_no_thousands() -> None:
    assert names_of([2007, 2008, 2009] * 5) == ["2007", "2008", "2009"]
    assert names_of(list(range(1900, 2000)))[0].startswith("1900 – 19")
    assert names_of([1000, 5000, 9000] * 5)[0].startswith("1,000 – ")


def test_few_whole_numbers_have_a_bar_each() -> None:
    assert names_of([1, 2, 2, 3, 4] * 4) == ["1", "2", "3", "4"]
