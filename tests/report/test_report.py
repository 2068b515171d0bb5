"""The page: what it says is what the selection is, and every text on it is only text."""

from __future__ import annotations

import base64
import builtins
import html.parser
import io
import json
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.errors import InvalidInputError, MissingExtraError, OutputError
from uniproto.features.pictures import UnreadableError
from uniproto.problem.problem import Problem
from uniproto.report.charts import save_curves
from uniproto.report.content import Content
from uniproto.report.examples import Examples, examples
from uniproto.report.figures import figures
from uniproto.report.page import as_json, render
from uniproto.report.pictures import as_pixels, data_uri, png
from uniproto.report.targets import MOST_DRAWN, is_one_set
from uniproto.report.words import cut, page_text
from uniproto.selection.details import Details
from uniproto.selection.selection import Selection
from uniproto.transport.prototypes import Transport

pytestmark = pytest.mark.usefixtures("inside")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
Y = RNG.normal(size=(30, 3))
LABELS = np.array(["a", "b", "c", "d"])[np.arange(40) % 4]

NASTY = [
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    '" onmouseover="window.hacked = 1',
    "' autofocus onfocus='window.hacked = 1",
    "<img src=x onerror='window.hacked = 1'>",
    "<!-- --><!--> ]]> {{ 7 * 7 }} {% raw %} ${alert(1)}",
    "x" * 1_000_000,
    "שלום עולם \u202eright to left\u202c",
    "lone \ud800 surrogate, \x00 nothing, \x1b[31m red",
    "line\u2028separator\u2029paragraph\r\n\ttab",
    "$orange",
    "",
]


class Page(html.parser.HTMLParser):
    """The page as a parser sees it: its elements, and the text of those with a class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.data = ""
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "p" and dict(attrs).get("class") == "text":
            self.texts.append("")
            self._inside.append("text")
        elif tag == "script" and dict(attrs).get("id") == "data":
            self._inside.append("data")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag in ("p", "script"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "text":
            self.texts[-1] += data
        elif self._inside:
            self.data += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def content_of(selection: Selection, random: int | None = 0, **known: Any) -> Content:
    m, n = selection.details.shape
    source = examples(m, **known)
    problem = selection._problem
    same = is_one_set(problem, selection.details.shape)
    return Content(
        selection,
        source,
        source if same else Examples(n),
        problem=problem,
        title="Test",
        commands=[("This page", "a command")],
        random=random,
    )


# What the page says


def test_lights_are_exactly_what_the_plan_says() -> None:
    selection = uniproto.select(X, 6)
    content = content_of(selection)
    assert content.drawn == 40
    plan = selection.plan.toarray()
    for place, card in enumerate(content.cards):
        rows = [content.items[item].row for item in card.lights]
        assert sorted(rows) == np.flatnonzero(plan.argmax(axis=0) == place).tolist()
        assert card.targets == len(rows)
        assert (card.rank, card.row) == (place + 1, selection.indices[place])
        assert card.gain == selection.details.gains[place]
        shown = [content.items[one.item].row for one in card.represented]
        assert card.row not in shown
        assert (plan[place, shown] > 0).all()
        shares = [one.share for one in card.represented]
        assert shares == sorted(shares, reverse=True)
        np.testing.assert_allclose(shares, plan[place, shown] * 6)


@pytest.mark.usual_effort
def test_more_rows_than_targets_represent_parts_of_them() -> None:
    selection = uniproto.select(X, 6, X[:4] + 0.1)
    plan = selection.plan.toarray()
    for place, card in enumerate(content_of(selection).cards):
        assert card.targets == len(card.lights) == np.count_nonzero(plan[place]) > 0


@pytest.mark.usual_effort
def test_the_verdict_in_words_and_numbers() -> None:
    selection = uniproto.select(X, 6, certify=True)
    content = content_of(selection, random=None)
    tiles = {tile.name: tile for tile in content.verdict.tiles}
    assert float(tiles["Cost"].value) == pytest.approx(selection.cost, rel=1e-3)
    draws = [uniproto.select(X, 6, method="random", seed=seed).cost for seed in range(5)]
    mean, spread = map(float, tiles["Random"].value.split(" ± "))
    assert mean == pytest.approx(np.mean(draws), rel=1e-3)
    assert spread == pytest.approx(np.std(draws, ddof=1), rel=2e-2)
    assert selection.certificate is not None
    assert float(tiles["Best possible"].value.removeprefix("≥ ")) == pytest.approx(
        selection.certificate.lower_bound, rel=1e-3
    )
    assert "no choice of 6 costs less (proven)" in content.verdict.sentence
    assert content.verdict.headline == "6 examples represent 40"
    assert tiles["Targets"].value == "40"
    assert content.curve is not None
    assert content.curve.values[-1] >= selection.cost - 1e-12
    assert [rival.name for rival in content.rivals] == ["this selection", "random"]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 150.0, 1e6])
def test_costs_of_any_size_can_be_told(scale: float) -> None:
    values = X * [1.0, 10.0, 100.0] * scale
    selection = uniproto.select(values, 4, metric="euclidean", certify=True)
    content = content_of(selection, random=5)
    assert render(content)
    domain = figures(content)["final"]["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert domain[0] >= 0
    assert domain[0] <= selection.certificate.lower_bound  # type: ignore[union-attr]


def test_without_certificate_the_page_says_how_to_get_one() -> None:
    content = content_of(uniproto.select(X, 4, method=uniproto.Greedy()))
    assert content.lower_bound is None
    assert "'selection.certify()'" in content.verdict.tiles[1].words
    assert "No lower bound is known: &#39;selection.certify()&#39; proves one." in render(content)


def test_a_proven_optimum_is_said_to_be_one() -> None:
    content = content_of(uniproto.select(X[:12], 2, exclude=[0]))
    tile = next(tile for tile in content.verdict.tiles if tile.name == "Best possible")
    assert "costs less: each of 55 sets of rows" in tile.words
    assert "costs less (proven)" in render(content)


def test_the_worst_covered_targets() -> None:
    selection = uniproto.select(X, 5, metric="euclidean")
    content = content_of(selection)
    costs = np.linalg.norm(X[selection.indices][:, None] - X[None], axis=2)
    by_target = (selection.plan.toarray() * costs).sum(axis=0) * 40
    order = np.argsort(-by_target)[:24]
    assert [content.items[one.item].row for one in content.worst] == order.tolist()
    np.testing.assert_allclose([one.cost for one in content.worst], by_target[order])
    for one, row in zip(content.worst, order, strict=True):
        places = np.flatnonzero(selection.plan.toarray()[:, row]) + 1
        assert one.prototypes == places.tolist()


def test_coverage_marks() -> None:
    labels = np.array(["big"] * 24 + ["middle"] * 12 + ["small"] * 4)
    selection = uniproto.select(X, 10, include=list(range(10)))
    coverage = content_of(selection, labels=labels).coverage[0]
    found = {share.name: share for share in coverage.shares}
    assert found["big"].mark == "over"
    assert found["middle"].mark == found["small"].mark == "missing"
    assert (found["big"].target_share, found["big"].prototype_share) == (pytest.approx(0.6), 1.0)
    assert (found["small"].targets, found["small"].prototypes) == (4, 0)
    assert found["small"].own == 0


def test_coverage_says_how_much_of_a_class_its_own_prototypes_represent() -> None:
    labels = np.asarray(LABELS)
    selection = uniproto.select(X, 8)
    for share in content_of(selection, labels=LABELS).coverage[0].shares:
        rows = labels[selection.indices] == share.name
        mass = selection.plan.toarray()[rows][:, labels == share.name].sum()
        assert share.own == pytest.approx(mass / share.target_share)
        assert 0 <= share.own <= 1 + 1e-12


def test_groups_have_their_costs() -> None:
    selection = uniproto.select(X, 8, groups=LABELS)
    path = selection.report("page.html", random=0)
    content = content_of(selection, groups=LABELS, labels=LABELS)
    assert [coverage.kind for coverage in content.coverage] == ["group"]  # told once
    costs = {share.name: share.cost for share in content.coverage[0].shares}
    assert costs == pytest.approx(selection.group_costs)
    assert "cost within" in path.read_text("utf-8")


def test_many_classes_are_put_together() -> None:
    content = content_of(uniproto.select(X, 3), labels=np.arange(40) + 0.5)
    assert len(content.coverage[0].shares) == 40
    many = RNG.normal(size=(900, 2))
    content = content_of(uniproto.select(many, 3), labels=[f"{i} " + "y" * 100 for i in range(900)])
    coverage = content.coverage[0]
    assert len(coverage.shares) == 201
    assert coverage.shares[-1].name == "others (700)"
    assert sum(share.targets for share in coverage.shares) == 900
    assert sum(share.prototypes for share in coverage.shares) == 3
    render(content)


# The map


def test_a_sample_keeps_targets_of_every_prototype() -> None:
    n, k = 3 * MOST_DRAWN, 100
    selection = with_plan(RNG.normal(size=(n, 2)), k)
    content = content_of(selection)
    assert MOST_DRAWN * 0.9 < content.drawn < MOST_DRAWN * 1.1
    assert f"Shown {content.drawn:,} of {n:,} targets" in content.map_note
    for place, card in enumerate(content.cards):
        assert len(card.lights) >= 3
        rows = {content.items[item].row for item in card.lights}
        assert rows <= set(selection.plan[[place]].indices.tolist())
    assert f"Shown {content.drawn:,} of {n:,} targets" in render(content)


def with_plan(points: np.ndarray, k: int) -> Selection:
    """A selection whose plan is given: its first rows stand for every k-th target."""
    n = len(points)
    plan = sp.csr_array((np.full(n, 1 / n), (np.arange(n) % k, np.arange(n))), shape=(k, n))
    problem = Problem(points).with_k(k)
    return Selection(
        indices=np.arange(k),
        weights=np.full(k, 1 / k),
        details=Details(
            gains=np.full(k, 1.5),
            beta=2.0,
            shape=(n, n),
            metric="cosine",
            bandwidth=None,
            method="uniproto",
            options={},
            seed=0,
            given=problem.given,
            timings={"pick": 1.0},
            notes={},
        ),
        transport=Transport(0.5, plan, True),
        problem=problem,
    )


@pytest.mark.filterwarnings("ignore::uniproto.problem.checks.ScaleWarning")
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1", "dot"])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_map_of_any_width(metric: str, width: int) -> None:
    points = np.abs(RNG.normal(size=(20, width))) + 0.1
    first = content_of(uniproto.select(points, 3, metric=metric))
    again = content_of(uniproto.select(points, 3, metric=metric))
    assert [(item.x, item.y) for item in first.items] == [(item.x, item.y) for item in again.items]
    for card in first.cards:  # one set: a prototype lies where it lies as a target
        item = first.items[card.row]
        assert (card.x, card.y) == pytest.approx((item.x, item.y))
    render(first)


@pytest.mark.parametrize("case", ["square", "wide", "similarity", "sparse", "one", "alike"])
def test_maps_of_odd_problems(case: str) -> None:
    costs = np.abs(RNG.normal(size=(12, 12)))
    selection = {
        "square": lambda: uniproto.select(costs, 3, metric="precomputed"),
        "wide": lambda: uniproto.select(costs[:, :7], 3, metric="precomputed"),
        "similarity": lambda: uniproto.select(costs[:5], 2, metric="similarity"),
        "sparse": lambda: uniproto.select(sp.random(30, 50, 0.3, "csr", random_state=1), 4),
        "one": lambda: uniproto.select([[1.0, 2.0, 3.0]], 1),
        "alike": lambda: uniproto.select(np.ones((9, 4)), 2),
    }[case]()
    content = content_of(selection)
    assert content.projection is not None
    assert all(np.isfinite([card.x, card.y]).all() for card in content.cards)  # type: ignore[arg-type]
    render(content)


def test_given_coordinates() -> None:
    places = RNG.normal(size=(40, 2))
    content = content_of(uniproto.select(X, 3), positions=places)
    np.testing.assert_array_equal([(item.x, item.y) for item in content.items], places)
    with refused("positions", InvalidInputError):
        content_of(uniproto.select(X, 3), positions=places[:, :1])


def test_another_target(tmp_path: Path) -> None:
    selection = uniproto.select(X, 4, Y)
    path = selection.report(
        tmp_path / "page.html",
        labels=(LABELS, ["a"] * 30),
        text=([f"source {row}" for row in range(40)], [f"aim {row}" for row in range(30)]),
        random=1,
    )
    page = Page(path.read_text("utf-8"))
    assert page.texts == [f"source {row}" for row in selection.indices]
    data = json.loads(page.data)
    assert data["items"]["text"][0] == "aim 0"
    assert len(data["items"]["x"]) == 30


def test_targets_without_weight_are_nobodys() -> None:
    weights = np.ones(40)
    weights[:5] = 0
    content = content_of(uniproto.select(X, 4, target_weights=weights), labels=LABELS)
    assert min(item.row for item in content.items) == 5
    assert content.verdict.headline == "4 examples represent 35"
    assert sum(share.targets for share in content.coverage[0].shares) == 35


def test_other_methods_and_inexact_costs() -> None:
    content = content_of(uniproto.select(X, 4, method="kmedoids"))
    assert content.curve is not None
    assert content.curve.values[-1] == pytest.approx(content.cost)
    assert content.cards[0].fill is None
    selection = with_plan(X, 4)
    selection.__dict__["_transport"] = Transport(0.5, selection.plan, False)
    content = content_of(selection, random=None)
    assert content.verdict.tiles[0].value == "at most 0.5000"
    assert "no exact solve fits" in content.rivals_note


def test_a_loaded_selection_says_what_it_lacks(tmp_path: Path) -> None:
    uniproto.select(X, 4).save(tmp_path / "out")
    path = Selection.load(tmp_path / "out").report(tmp_path / "page.html", labels=LABELS)
    text = path.read_text("utf-8")
    assert "There is no map." in text
    assert "no longer holds its data" in text


# Text is data


def nasty(count: int) -> list[str]:
    return (NASTY * count)[:count]


def test_nasty_texts_and_names_are_text() -> None:
    texts = nasty(40)
    selection = uniproto.select(X, 24)
    source = examples(
        40,
        text=texts,
        labels=np.array(texts[::-1], object),
        ids=np.array([f"{text[:99]} {row}" for row, text in enumerate(texts)], object),
    )
    page_text = render(
        Content(
            selection,
            source,
            source,
            problem=selection._problem,
            title=NASTY[1],
            commands=[("This page", NASTY[0])],
            random=0,
        )
    )
    assert_only_text(page_text)
    page = Page(page_text)
    most = 6000
    for text, row in zip(page.texts, selection.indices, strict=True):
        assert text == cut(texts[row], most)
    assert len(page_text) < 2_500_000
    assert "beginning of 1,000,000 characters" in page_text


@pytest.mark.filterwarnings("ignore::uniproto.errors.DataWarning")
def test_columns_count_targets_by_their_weights() -> None:
    """As the section on coverage does, whose shares the reader compares them with."""
    frame = pd.DataFrame(
        {
            "x": np.r_[np.zeros(90), np.ones(10)] + np.linspace(0, 0.1, 100),
            "seg": ["major"] * 90 + ["minor"] * 10,
            "gap": [1.0, 2.0] * 45 + [np.nan] * 5 + [3.0] * 5,
        }
    )
    weights = np.r_[np.ones(90), np.full(10, 9.0)]
    sel = uniproto.select(frame, 10, target_weights=weights, seed=0)
    table = pa.Table.from_pandas(frame)
    rows = replace(examples(100, labels=frame["seg"]), table=table)
    content = gathered(sel, rows)
    assert content.columns_note == content.coverage[0].note != ""
    drawn = {chart.name: chart for chart in content.columns}
    levels = {bar.name: bar.target for bar in drawn["seg"].bars}
    assert levels == pytest.approx({"major": 0.5, "minor": 0.5})
    ranges = [bar.target for bar in drawn["x"].bars]
    assert sum(ranges) == pytest.approx(1)
    assert sum(ranges[6:]) == pytest.approx(0.5)
    assert drawn["gap"].bars[-1].name == "missing"
    assert drawn["gap"].bars[-1].target == pytest.approx(0.25)
    assert "half below 2" in drawn["gap"].words  # of three quarters: a third is 3, a third is 2
    even = gathered(uniproto.select(frame, 10, seed=0), rows)
    assert even.columns_note == ""
    drawn = {chart.name: chart for chart in even.columns}
    assert {bar.name: bar.target for bar in drawn["seg"].bars} == {"major": 0.9, "minor": 0.1}


def gathered(selection: Selection, rows: Examples) -> Content:
    return Content(
        selection, rows, rows, problem=selection._problem, title="", commands=[],
        random=0,
    )  # fmt: skip


def test_nasty_columns_are_text() -> None:
    frame = pd.DataFrame(X, columns=[NASTY[0], NASTY[1], '"><b>'])
    frame["pair"] = [[0.0, 1.0]] * 40
    frame["embedding"] = list(X)
    frame.to_parquet("nasty <script>.parquet")
    out = "out <b>"
    options = ["nasty <script>.parquet", "-k", "4", "--column", "embedding", "--quiet", "-o", out]
    assert main(["select", *options]) == 0
    assert main(["report", out, "--random", "0", "--title", NASTY[1]]) == 0
    text = Path(out, "report.html").read_text("utf-8")
    assert_only_text(text)
    assert "&lt;script&gt;window.hacked = 1&lt;/script&gt;" in text
    assert "the coordinates that were given" in text


def assert_only_text(page_text: str) -> None:
    page = Page(page_text)
    assert page.count("script") == 3
    assert page.count("style") == 1
    assert page.count("b") == page_text.count("<b>")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert tag not in ("iframe", "object", "embed", "form", "base")
        for name in ("src", "href", "action"):
            assert re.match(r"data:image/|#|$", attributes.get(name) or "")
    json.loads(page.data)
    page_text.encode("utf-8")


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    text=st.text(alphabet=st.characters(), max_size=60),
    name=st.text(alphabet="<>&\"'/!-= aéש\u202e\ud800\x00$", max_size=20),
)
def test_any_text_comes_back_as_itself(text: str, name: str) -> None:
    selection = uniproto.select(X[:4], 2)
    names = np.array([name, "b"] * 2, object)
    content = content_of(selection, text=[text] * 4, ids=names, labels=names)
    page_text = render(content)
    assert_only_text(page_text)
    page = Page(page_text)
    assert page.texts == [cut(text, 6000)] * 2
    names = json.loads(page.data)["coverage"]["class"]
    assert set(names) <= {cut(name, 60).strip() or "(empty)", "(empty)", "b", "b (2)"}


@given(st.one_of(st.text(alphabet=st.characters()), st.binary(), st.floats(), st.integers()))
def test_printable_text_is_page_text(value: Any) -> None:
    text = page_text(value)
    assert text.encode("utf-8").decode("utf-8") == text
    assert not re.search("[\x00-\x08\x0e-\x1f\x7f]", text)
    assert page_text(text) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(1, 50))
def test_cut_text_keeps_to_its_budget(text: str, most: int) -> None:
    short = cut(text, most)
    assert page_text(text).startswith(short.removesuffix("…"))
    assert len(as_json(short)) <= len(short.encode()) * 6 + 2
    assert sum(6 if c in "<>&\"'" else len(c.encode()) for c in short) <= most + 3


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=20))
def test_json_for_a_script_element(value: Any) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


# Pictures


def pixels_of(uri: str) -> np.ndarray:
    """Decode one of our own PNGs: 8 bits, no filters."""
    content = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    start = content.index(b"IDAT") + 4
    lines = np.frombuffer(zlib.decompressobj().decompress(content[start:]), np.uint8)
    return lines.reshape(height, -1)[:, 1:].reshape(height, width, -1)


def test_our_png_is_a_png() -> None:
    image = pytest.importorskip("PIL.Image")
    for channels in (1, 3, 4):
        values = RNG.integers(0, 256, (6, 7, channels)).astype(np.uint8)
        opened = np.asarray(image.open(io.BytesIO(png(values))))
        np.testing.assert_array_equal(opened.reshape(values.shape), values)


def test_pixels_of_other_numbers() -> None:
    first = as_pixels(np.arange(17.0).reshape(1, 17), 16)
    assert (first.min(), first.max()) == (0, 255)
    assert as_pixels(np.zeros((3, 4, 5))).shape == (4, 5, 3)  # channels first
    assert as_pixels(np.array([[np.nan, -1.0, 2.0]]))[0, :, 0].tolist() == [0, 0, 255]
    with pytest.raises(UnreadableError, match="no picture"):
        as_pixels(np.zeros((3, 4, 5, 6)))


def test_pictures_on_the_page_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ModuleNotFoundError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    pictures = RNG.integers(0, 17, (40, 8, 8))
    selection = uniproto.select(X, 3)
    content = content_of(selection, images=pictures)
    assert not content.gaps
    shown = pixels_of(content.pictures[content.cards[0].picture or 0])
    expected = np.rint(pictures[selection.indices[0]] * (255 / pictures.max()))
    np.testing.assert_allclose(shown[..., 0], expected, atol=1)
    large = data_uri(RNG.integers(0, 256, (300, 200, 3)).astype(np.uint8), 64)
    assert pixels_of(large).shape == (60, 40, 3)
    with pytest.raises(MissingExtraError, match=r"'\.\[images\]'"):
        content_of(selection, images=["a.png"] * 40)


def test_broken_pictures_are_named() -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (300, 200), "teal").save("good.jpg")
    Path("bad <b>.jpg").write_bytes(b"no picture at all")
    Path("cut.jpg").write_bytes(Path("good.jpg").read_bytes()[:400])
    names: list[Any] = ["good.jpg", "bad <b>.jpg", "cut.jpg", "missing.jpg", None, "."]
    names += ["http://example.invalid/a.jpg", Path("good.jpg").read_bytes(), image.new("L", (3, 3))]
    names += [{"bytes": None, "path": "good.jpg"}]
    selection = uniproto.select(X[:10], 10)
    content = content_of(selection, images=[Path(n) if isinstance(n, str) else n for n in names])
    shown = {card.row for card in content.cards if card.picture is not None}
    assert shown == {0, 7, 8, 9}
    why = {card.row: card.missing for card in content.cards}
    assert "missing.jpg: there is no such file" in why[3]
    assert "folder" in why[5]
    assert "6 pictures could not be shown" in content.gaps[0]
    text = render(content)
    assert_only_text(text)
    assert "bad &lt;b&gt;.jpg" in text


def test_addresses_are_never_fetched() -> None:
    with pytest.raises(UnreadableError, match="nothing is fetched"):
        data_uri("https://example.invalid/a.png", 64)


def test_senseless_arguments() -> None:
    selection = uniproto.select(X, 3)
    for known in ({"text": "one"}, {"text": ["a"]}, {"images": X}, {"labels": ["a"]}):
        with pytest.raises(InvalidInputError):
            selection.report("page.html", **known)  # type: ignore[arg-type]
    with refused("random", InvalidInputError):
        selection.report("page.html", random=-1)
    assert not Path("page.html").exists()


# Size


@pytest.mark.slow
def test_a_thousand_prototypes_over_a_hundred_thousand_targets() -> None:
    n, k = 100_000, 1000
    points = np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)
    selection = with_plan(points, k)
    labels = np.arange(n) % 30
    texts = _Endless(n)
    path = selection.report("text.html", labels=labels, text=texts, random=0)
    assert path.stat().st_size < 10_000_000
    assert "Shown 8," in path.read_text("utf-8")
    noise = np.random.default_rng(1).integers(0, 256, (500, 28, 28)).astype(np.uint8)
    path = selection.report("pictures.html", images=_Repeated(noise, n), random=0)
    assert path.stat().st_size < 10_000_000
    assert "to keep the page small" in path.read_text("utf-8")
    path = selection.report("rows.html", random=0)
    assert path.stat().st_size < 10_000_000


class _Endless:
    """Long texts of expensive letters, made when asked for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> str:
        return f"<{row}> 本&" * 5000


class _Repeated(list[Any]):
    def __init__(self, pictures: np.ndarray, count: int) -> None:
        super().__init__()
        self.pictures, self.count = pictures, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: Any) -> Any:
        return self.pictures[row % len(self.pictures)]


# Files and the command


def test_a_full_disk_keeps_the_old_page(monkeypatch: pytest.MonkeyPatch) -> None:
    selection = uniproto.select(X, 3)
    path = selection.report("deep/page.html", random=0)
    before = path.read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            selection.report("deep/page.html", random=1)
    assert path.read_bytes() == before
    assert [file.name for file in Path("deep").iterdir()] == ["page.html"]
    Path("file").touch()
    with pytest.raises(OutputError):
        selection.report("file/page.html", random=0)


Run = Callable[..., tuple[int, str, str]]


def write_table() -> None:
    table = pa.table(
        {
            "doc": [f"doc {row}" for row in range(40)],
            "kind": LABELS,
            "review": [f"review {row} é" for row in range(40)],
            "embedding": pa.array(X.tolist(), pa.list_(pa.float64())),
        }
    )
    pq.write_table(table, "pool.parquet")


def data_of(path: str = "out/report.html") -> dict[str, Any]:
    return dict(json.loads(Page(Path(path).read_text("utf-8")).data))


@pytest.mark.usual_effort
def test_the_command_from_files_to_page(run: Run) -> None:
    write_table()
    select = ["pool.parquet", "-k", 5, "--column", "embedding", "--id", "doc", "-o", "out"]
    assert run("select", *select, "--certify")[0] == 0
    compare = ["pool.parquet", "-k", 5, "--column", "embedding", "--id", "doc", "-o", "out"]
    assert run("compare", *compare, "--methods", "kmedoids,random", "--seeds", 2)[0] == 0
    status, out, err = run("report", "out", "--labels", "kind", "--text", "review")
    assert (status, err) == (0, "")
    assert "out/report.html" in out
    text = Path("out/report.html").read_text("utf-8")
    page, data = Page(text), data_of()
    selection = Selection.load("out")
    assert page.texts == [f"review {row} é" for row in selection.indices]
    assert [one["name"] for one in data["prototypes"]] == [f"doc {r}" for r in selection.indices]
    assert data["coverage"]["class"] == ["a", "b", "c", "d"]
    assert "kmedoids" in text
    assert "No choice of 5 rows" in text
    assert "uniproto report out --labels kind --text review" in text
    assert "uniproto select pool.parquet -k 5 --column embedding" in text
    assert "--engine" not in text  # what is usual is left unsaid
    assert run("verify", "out")[0] == 0


def test_the_command_and_the_call_make_the_same_page(run: Run) -> None:
    write_table()
    select = ["pool.parquet", "-k", 5, "--column", "embedding", "--id", "doc", "-o", "out"]
    assert run("select", *select)[0] == 0
    shown = ["--labels", "kind", "--text", "review", "--random", 0]
    assert run("report", "out", *shown)[0] == 0
    features = uniproto.Columns(use=["embedding"], id="doc", prepare=False)
    found = uniproto.select("pool.parquet", 5, features=features)
    found.report("call.html", labels="kind", text="review", random=0)
    assert data_of("call.html") == data_of()
    pages = (Path(name).read_text("utf-8") for name in ("out/report.html", "call.html"))
    assert len({str(Page(text).texts) for text in pages}) == 1


def test_an_array_and_its_companions(run: Run) -> None:
    np.savez("pool.npz", X=X, y=np.arange(40) % 3, pictures=RNG.integers(0, 9, (40, 4, 4)))
    assert run("select", "pool.npz", "-k", 4, "--column", "X", "-o", "out")[0] == 0
    status, _, err = run("report", "out", "--labels", "y", "--images", "pictures", "-o", "p.html")
    assert (status, err) == (0, "")
    data = data_of("p.html")
    assert data["coverage"]["class"] == ["0", "1", "2"]
    assert len(data["pictures"]) == 40
    status, _, err = run("report", "out", "--labels", "z")
    assert status == 2
    assert "X, pictures, y" in err


def test_rows_without_anything(run: Run) -> None:
    np.save("pool.npy", X)
    assert run("select", "pool.npy", "-k", 4, "--min-distance", 0, "-o", "out")[0] == 0
    assert run("report", "out", "--quiet") == (0, "", "")
    assert (
        "uniproto select pool.npy -k 4 --min-distance 0.0 -o out"
        in Path("out/report.html").read_text()
    )
    assert f"{X[Selection.load('out').indices[0], 0]:.6g}" in Path("out/report.html").read_text()
    Path("pool.npy").rename("gone.npy")
    status, _, err = run("report", "out")
    assert status == 2
    assert "there is no such file" in err
    np.save("pool.npy", X + 1)
    status, _, err = run("report", "out")
    assert status == 2
    assert "It has changed since" in err


def test_pictures_by_column_and_by_folder(run: Run) -> None:
    image = pytest.importorskip("PIL.Image")
    Path("photos").mkdir()
    for row in range(39):
        image.new("RGB", (20, 10), (row, 0, 0)).save(f"photos/{row:02}.png")
    table = pa.table(
        {
            "photo": [f"photos/{row:02}.png" for row in range(40)],
            "embedding": pa.array(X.tolist(), pa.list_(pa.float64())),
        }
    )
    pq.write_table(table, "pool.parquet")
    assert run("select", "pool.parquet", "-k", 5, "--column", "embedding", "-o", "out")[0] == 0
    status, _, err = run("report", "out", "--images", "photo")
    assert (status, err) == (0, "")
    text = Path("out/report.html").read_text("utf-8")
    assert "1 picture could not be shown" in text
    assert "39.png: there is no such file" in text
    status, _, err = run("report", "out", "--images", "foto")
    assert status == 2
    assert "Did you mean 'photo'?" in err
    np.save("pool.npy", X)
    assert run("select", "pool.npy", "-k", 5, "-o", "bare")[0] == 0
    status, _, err = run("report", "bare", "--images", "photos")
    assert status == 2
    assert "photos has 39" in err
    image.new("RGB", (20, 10)).save("photos/39.png")
    assert run("report", "bare", "--images", "photos")[0] == 0
    assert len(data_of("bare/report.html")["pictures"]) == 40


def test_coordinates_by_name(run: Run) -> None:
    write_table()
    table = pq.read_table("pool.parquet")
    table = table.append_column("left", pa.array(np.arange(40.0)))
    table = table.append_column("up", pa.array(-np.arange(40.0)))
    pq.write_table(table, "pool.parquet")
    select = ["pool.parquet", "-k", 5, "--column", "embedding", "-o", "out"]
    assert run("select", *select)[0] == 0
    assert run("report", "out", "--positions", "left,up", "--random", 0)[0] == 0
    assert data_of()["items"]["y"] == (-np.arange(40.0)).tolist()
    status, _, err = run("report", "out", "--positions", "kind")
    assert status == 2
    assert "--positions" in err


def test_a_result_saved_from_python(run: Run) -> None:
    uniproto.select(X, 4).save("out")
    assert run("report", "out")[0] == 0
    assert "There is no map." in Path("out/report.html").read_text("utf-8")
    status, _, err = run("report", "out", "--labels", "kind")
    assert status == 2
    assert "made in Python, from data that are not on record" in err
    Path("out/comparison.json").write_text("{")
    status, _, err = run("report", "out")
    assert status == 2
    assert "comparison.json" in err


@pytest.mark.usual_effort
def test_a_table_saved_from_python(run: Run) -> None:
    frame = pd.DataFrame({"weight": X[:, 0], "kind": LABELS, "age": np.arange(40)})
    proven = uniproto.select(frame, 4)
    assert proven.details.proof is not None
    assert "No lower bound is known" not in proven.report("p.html", random=0).read_text("utf-8")
    sel = uniproto.select(frame, 4, method="random")
    sel.save("out")
    assert run("report", "out")[0] == 0
    data, text = data_of(), Path("out/report.html").read_text("utf-8")
    assert data["columns"] == ["weight", "kind", "age"]
    for row, card in zip(sel.indices.tolist(), cards_of(text), strict=True):
        assert ("kind", LABELS[row]) in card
        assert ("age", str(row)) in card
    assert "uniproto certify" not in text
    assert text.count("selection.certify()&#39; before saving") == 3
    in_python = Path(sel.report("python.html", random=0)).read_text("utf-8")
    assert "uniproto certify" not in in_python
    assert "before saving" not in in_python
    uniproto.Selection.load("out").report("loaded.html", random=0)
    assert data_of("loaded.html")["columns"] == ["weight", "kind", "age"]
    for command, remedy in (
        ("verify", "this one cannot be verified"),
        ("certify", "selection.certify() in Python before saving"),
    ):
        status, _, err = run(command, "out")
        assert status == 2
        assert remedy in err
    with pytest.raises(InvalidInputError, match="no longer holds the data"):
        uniproto.Selection.load("out").certify()


def cards_of(text: str) -> list[list[tuple[str, str]]]:
    cards = re.findall(r'<article class="card".*?</article>', text, re.DOTALL)
    return [re.findall(r"<dt><bdi>(.*?)</bdi></dt><dd[^>]*>(.*?)</dd>", card) for card in cards]


def test_opening_the_page(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    uniproto.select(X, 4).save("out")
    assert run("report", "out", "--open")[0] == 0
    assert opened == [Path("out/report.html").resolve().as_uri()]


# Curves of a training run: a table always, a picture where something can draw it


POINTS = [{"step": 0, "log_perplexity": 2.0}, {"step": 10, "log_perplexity": 1.5}]


def dots() -> Any:
    import altair as alt

    return alt.Chart(alt.Data(values=POINTS)).mark_point().encode(x="step:Q")


def test_curves_are_a_table_and_a_picture(tmp_path: Path) -> None:
    save_curves(tmp_path, POINTS, dots)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curves.csv", "curves.png"]


@pytest.mark.parametrize("missing", ["vl_convert", "jsonschema"])
def test_what_cannot_be_drawn_ends_no_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: str,
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)

    def chart() -> Any:
        __import__(missing)
        return dots()

    save_curves(tmp_path, POINTS, chart)
    assert (tmp_path / "curves.csv").read_text().count("\n") == 3
    assert "curves.png was not drawn" in capsys.readouterr().err
