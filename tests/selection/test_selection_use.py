"""What people do with a selection: rows, assignments, tables, cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from tests.refusals import refused

import uniproto
from uniproto.errors import InvalidInputError, OutputError

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 3))
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 90),
        "orders": RNG.poisson(4, 90),
        "name": [f"n{i}" for i in range(90)],
    }
)
SPARSE = FRAME[FRAME["orders"] != 4]  # its index has holes, as after dropna()
SELECTION = uniproto.select(X, 7, metric="euclidean")


@pytest.mark.parametrize(
    "rows",
    [
        X,
        X.tolist(),
        torch.tensor(X),
        sp.csr_array(X),
        pd.DataFrame(X, index=np.arange(90)[::-1]),
        pl.DataFrame(X),
        pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_rows_of_every_container(rows: Any) -> None:
    found = SELECTION.rows(rows)
    assert type(found) is type(rows)
    if isinstance(found, pa.Table):
        found = found.to_pandas()
    dense = found.toarray() if sp.issparse(found) else np.asarray(found)
    np.testing.assert_array_equal(dense, X[SELECTION.indices])


def test_rows_are_right_whatever_the_index() -> None:
    sel = uniproto.select(SPARSE, 5)
    expected = SPARSE["name"].to_numpy()[sel.indices].tolist()
    assert sel.rows(SPARSE)["name"].tolist() == expected
    assert sel.rows()["name"].tolist() == expected  # pandas, with its own index
    assert sel.rows()["name"].index.tolist() == SPARSE.index[sel.indices].tolist()
    assert [prototype.values["name"] for prototype in sel] == expected
    assert sel.to_frame()["name"].tolist() == expected
    with pytest.raises(InvalidInputError, match=f"must have the {len(SPARSE)} rows"):
        sel.rows(FRAME)


def test_new_rows_go_to_the_nearest_and_targets_by_the_plan() -> None:
    new = RNG.normal(size=(40, 3))
    apart = np.linalg.norm(new[:, None] - X[SELECTION.indices], axis=2)
    found = SELECTION.nearest(new)
    np.testing.assert_array_equal(found.prototype, apart.argmin(axis=1))
    np.testing.assert_allclose(found.distance, apart.min(axis=1))
    which, far = SELECTION.assign()
    plan = SELECTION.plan.toarray()
    assert (plan[which, np.arange(90)] == plan.max(axis=0)).all()
    np.testing.assert_allclose(far, np.linalg.norm(X - X[SELECTION.indices[which]], axis=1))
    assert SELECTION.nearest(X[SELECTION.indices]).prototype.tolist() == list(range(7))


@pytest.mark.parametrize("metric", ["cosine", "l1", "sqeuclidean", "dot"])
def test_assignments_of_every_metric(metric: str) -> None:
    sel = uniproto.select(X, 6, metric=metric)
    selector = uniproto.PrototypeSelector(6, metric=metric).fit(X)
    new = RNG.normal(size=(20, 3))
    found = sel.nearest(new)
    np.testing.assert_array_equal(found.prototype, selector.predict(new))
    np.testing.assert_allclose(found.distance, selector.transform(new).min(axis=1))


@pytest.mark.parametrize("metric", ["rbf", "laplacian"])
def test_rows_far_from_all_prototypes_go_to_the_nearest_of_them(metric: str) -> None:
    """Their costs all round to 1."""
    halves = np.r_[X[:45, :2], X[45:, :2] + [20, 0]]
    sel = uniproto.select(halves, 4, metric=metric)
    far = np.array([[900.0, 0.0], [-900.0, 0.0]])
    found = sel.nearest(far)
    apart = np.linalg.norm(far[:, None] - halves[sel.indices], axis=2)
    np.testing.assert_array_equal(found.prototype, apart.argmin(axis=1))
    assert found.prototype[0] != found.prototype[1]
    assert found.distance.tolist() == [1.0, 1.0]
    selector = uniproto.PrototypeSelector(4, metric=metric).fit(halves)
    np.testing.assert_array_equal(selector.predict(far), found.prototype)
    near = halves[:9] + 0.01
    np.testing.assert_allclose(
        sel.nearest(near).distance, selector.transform(near).min(axis=1), atol=1e-12
    )


def test_assignments_that_cannot_be() -> None:
    matrix = uniproto.select(np.abs(X @ X.T), 4, metric="precomputed")
    assert matrix.assign().prototype.shape == (90,)
    with pytest.raises(InvalidInputError, match="precomputed"):
        matrix.nearest(X)
    with refused("rows", InvalidInputError):
        SELECTION.nearest(X[:, :2])
    with pytest.raises(InvalidInputError, match="nearest"):
        SELECTION.assign(X)


def test_prototypes_one_by_one() -> None:
    assert len(list(SELECTION)) == len(SELECTION) == 7
    plan = SELECTION.plan.toarray()
    for place, prototype in enumerate(SELECTION):
        assert (prototype.rank, prototype.index) == (place + 1, SELECTION.indices[place])
        assert prototype.shares.sum() == pytest.approx(1)
        np.testing.assert_allclose(plan[place, prototype.targets] * 7, prototype.shares)
        assert list(prototype.values.values()) == X[prototype.index].tolist()
    assert SELECTION[-1].rank == 7
    with pytest.raises(IndexError):
        SELECTION[7]
    with pytest.raises(TypeError, match="integer"):
        SELECTION["first"]  # type: ignore[index]


def test_tables_and_csv(tmp_path: Path) -> None:
    sel = uniproto.select(FRAME, 5)
    frame = sel.to_frame()
    assert frame.columns.tolist() == ["row", "rank", "represents", "age", "orders", "name"]
    assert frame["row"].tolist() == sel.indices.tolist()
    assert frame["represents"].tolist() == np.bincount(sel.assign().prototype).tolist()
    assert frame["represents"].sum() == len(FRAME)
    read = pd.read_csv(sel.to_csv(tmp_path / "p.csv"))
    pd.testing.assert_frame_equal(read, frame.reset_index(drop=True))
    nowhere = tmp_path / "none" / "p.csv"
    with pytest.raises(OutputError) as refused:
        sel.to_csv(nowhere)
    assert str(refused.value).startswith(f"{nowhere}: ")
    assert ".uniproto-" not in str(refused.value)
    clash = uniproto.select(FRAME.rename(columns={"age": "rank"}), 5).to_frame()
    assert clash["prototype_rank"].tolist() == [1, 2, 3, 4, 5]
    assert clash["rank"].tolist() == sel.rows(FRAME)["age"].tolist()


def test_a_selection_from_python_is_saved_with_its_rows(tmp_path: Path) -> None:
    sel = uniproto.select(FRAME, 5)
    sel.save(tmp_path / "out")
    again = uniproto.Selection.load(tmp_path / "out")
    assert again.rows()["name"].tolist() == sel.rows()["name"].tolist()
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "out" / "prototypes.csv"), again.to_frame(), check_dtype=False
    )
    assert again.details.preparation == sel.details.preparation
    np.testing.assert_allclose(
        again.nearest(FRAME.head(9)).distance, sel.nearest(FRAME.head(9)).distance
    )
    assert np.isnan(again.assign().distance).all()
    SELECTION.save(tmp_path / "array")
    with pytest.raises(InvalidInputError, match="without its prototypes"):
        uniproto.Selection.load(tmp_path / "array").nearest(X)


def test_a_card_for_notebooks() -> None:
    nasty = FRAME.assign(name=[f"<script>{row}</script>" for row in range(90)])
    card = uniproto.select(nasty, 5)._repr_html_()
    assert card.count("<path") == 5
    assert "&lt;script&gt;" in card
    assert "<script" not in card
    assert "a typical row is" in card
    assert "Columns compared: 2 numbers; 1 set aside" in card
    assert "looks like an id or a name" in card


def test_the_page_shows_values_as_they_are(tmp_path: Path) -> None:
    sel = uniproto.select(FRAME[["age", "orders"]], 3, metric="euclidean")
    page = sel.report(tmp_path / "page.html", random=0).read_text("utf-8")
    for prototype in sel:
        for name, value in prototype.values.items():
            assert f'<bdi>{name}</bdi></dt><dd dir="auto">{value}</dd>' in page
    array = uniproto.select(X * 100 + 500, 3)
    page = array.report(tmp_path / "array.html", random=0).read_text("utf-8")
    assert f"{X[array.indices[0], 0] * 100 + 500:.6g}" in page


def test_labels_of_the_nearest_prototype() -> None:
    labels = np.where(X[:, 0] > 0, "right", "left")
    apart = X + np.outer(X[:, 0] > 0, [6, 0, 0])
    selector = uniproto.PrototypeClassifier(
        12, compute=uniproto.Compute(memory="1GB", device="cpu")
    ).fit(apart, labels)
    np.testing.assert_array_equal(selector.predict(apart), labels)
    noisy = np.where(np.arange(len(X)) % 10 == 0, "left", labels)
    assert selector.score(apart, noisy) == np.mean(selector.predict(apart) == noisy) < 1
    assert selector.classes_.tolist() == ["left", "right"]
    plain = uniproto.PrototypeSelector(12).fit(apart)
    np.testing.assert_array_equal(selector.indices_, plain.indices_)
    assert plain.score(apart) == pytest.approx(-plain.transform(apart).min(axis=1).mean())


def test_details_say_how_the_rows_were_found() -> None:
    details = SELECTION.details
    assert details.timings["pick"] > 0
    assert len(details.gains) == 7


def test_what_completion_offers() -> None:
    shown = {"indices", "cost", "weights", "plan", "certificate", "details", "rows", "assign"}
    shown |= {"nearest", "to_frame", "to_csv", "summary", "report", "save", "load", "certify"}
    shown |= {
        "update",
        "drift",
        "table",
        "improve",
        "k",
        "cost_is_exact",
        "group_costs",
        "in_words",
    }
    assert {name for name in dir(SELECTION) if not name.startswith("_")} == shown
