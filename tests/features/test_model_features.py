"""`features=Text(…)` and `Images(…)`: rows as vectors of a model, and rows that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image
from tests.refusals import refused

import uniproto
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.features import embed_images, embed_text

TEXTS = [
    "a red apple", "a green pear", "tax law", "", "income tax", "a yellow banana", None,
    "a court ruling", "a ripe cherry", "the supreme court",
]  # fmt: skip
KEPT = [row for row, text in enumerate(TEXTS) if text]
TABLE = pa.table(
    {
        "review": TEXTS,
        "product": [f"product {row % 2}" for row in range(len(TEXTS))],
        "weight": np.arange(1.0, len(TEXTS) + 1),
    }
)
REVIEWS = uniproto.Text("review", on_error="skip")
K = 4


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNIPROTO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": "product"},
        {"min_distance": "auto"},
        {"target_weights": "weight"},
        {"target_weights": uniproto.Balanced("product")},
        {"target_weights": uniproto.Density(q=2)},
        {"limits": uniproto.Limits("product", at_most=2)},
        {"metric": uniproto.RBF("0.5 median")},
        *({"method": name} for name in ("fasterpam", "kmedoids", "kmeans", "greedy", "random")),
    ],
    ids=str,
)
def test_rows_without_a_vector_are_never_chosen_and_weigh_nothing(options: Any) -> None:
    """The rows that a selection among the others finds, by the numbers of the whole table."""
    found = uniproto.select(TABLE, K, features=REVIEWS, **options)
    alone = uniproto.select(TABLE.take(KEPT), K, features=REVIEWS, **options)
    assert found.indices.tolist() == [KEPT[row] for row in alone.indices]
    assert found.cost == pytest.approx(alone.cost, rel=1e-12)
    assert found.details.shape == (len(TEXTS), len(TEXTS))
    assert not found.plan[:, [3, 6]].nnz
    np.testing.assert_allclose(found.plan[:, KEPT].toarray(), alone.plan.toarray(), atol=1e-15)


def test_certificate_and_improvement_know_rows_without_a_vector() -> None:
    found = uniproto.select(TABLE, K, features=REVIEWS, method="random").improve(seconds=0.1)
    vectors = embed_text([TEXTS[row] for row in KEPT]).vectors
    alone = uniproto.select(vectors, K, metric="cosine", method="random")
    for selection in (found, alone):
        selection.certify()
    assert not set(found.indices.tolist()) & {3, 6}
    bounds = [selection.certificate.lower_bound for selection in (found, alone)]
    assert bounds[0] <= found.cost * (1 + 1e-12)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "write"),
    [("t.csv", pd.DataFrame.to_csv), ("t.parquet", pd.DataFrame.to_parquet)],
)
def test_files_and_tables_of_texts(tmp_path: Path, name: str, write: Any) -> None:
    frame = TABLE.take(KEPT).to_pandas()
    write(frame, tmp_path / name, index=False)
    expected = uniproto.select(embed_text(frame.review).vectors, K, metric="cosine")
    for source in (tmp_path / name, str(tmp_path / name), frame, frame.to_dict("records")):
        found = uniproto.select(source, K, features=uniproto.Text("review"))
        np.testing.assert_array_equal(found.indices, expected.indices)
        assert (found.cost, found.details.metric) == (expected.cost, "cosine")
    target = frame.iloc[:3].rename(columns={"review": "text"}).to_dict("records")
    texts = [row["text"] for row in target]
    found = uniproto.select(frame, 2, texts, features=uniproto.Text("review"))
    expected = uniproto.select(found._problem.costs.source, 2, embed_text(texts).vectors)
    np.testing.assert_array_equal(found.indices, expected.indices)


def test_lists_of_texts() -> None:
    texts = [TEXTS[row] for row in KEPT]
    found = uniproto.select(texts, K, features=uniproto.Text())
    assert found.rows() == [texts[row] for row in found.indices]
    assert found.to_frame()["x0"].tolist() == found.rows()
    assert found.nearest(["a red apple"]).distance < found.nearest(["a law"]).distance
    joined = uniproto.Text(["review", "product"])
    pairs = [f"{text}\n\nproduct {row % 2}" for row, text in zip(KEPT, texts, strict=True)]
    both = uniproto.select(TABLE.take(KEPT), K, features=joined)
    np.testing.assert_array_equal(
        both.indices, uniproto.select(pairs, K, features=uniproto.Text()).indices
    )


def test_pictures(tmp_path: Path) -> None:
    folder, rng = tmp_path / "pictures", np.random.default_rng(0)
    folder.mkdir()
    for row in range(5):
        pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    (folder / "2.png").write_bytes(b"no picture")
    names = [f"{row}.png" for row in range(5)]
    kept = [0, 1, 3, 4]
    vectors = embed_images([folder / names[row] for row in kept]).vectors
    expected = [kept[row] for row in uniproto.select(vectors, 2, metric="cosine").indices]
    pd.DataFrame({"name": names}).to_csv(tmp_path / "names.csv", index=False)
    paths = [str(folder / name) for name in names]
    for source, column in (
        (folder, None),
        (tmp_path / "names.csv", str(folder)),
        (pa.table({"picture": paths}), "picture"),
        (paths, None),
    ):
        images = uniproto.Images(column, on_error="skip")
        assert uniproto.select(source, 2, features=images).indices.tolist() == expected
    with pytest.raises(InputFileError, match="not a picture"):
        uniproto.select(folder, 2, features=uniproto.Images())
    with pytest.raises(InputFileError, match="a folder of pictures"):
        uniproto.select(folder, 2)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (TABLE, {"features": uniproto.Text("reviews")}),
        (TABLE, {"features": uniproto.Text("weight")}),
        (TABLE, {"features": uniproto.Text("review")}),  # which has gaps
        (TABLE, {"features": REVIEWS, "include": [3]}),
        (TABLE, {"features": REVIEWS, "metric": "precomputed"}),
        (TABLE, {"features": REVIEWS, "exclude": [len(TEXTS)]}),
        (np.eye(3), {"features": uniproto.Text()}),
    ],
    ids=str,
)
def test_what_is_refused(source: Any, options: Any) -> None:
    with pytest.raises((InvalidInputError, InputFileError)):
        uniproto.select(source, 2, **options)
    with refused("k", InvalidInputError):
        uniproto.select(TABLE, 9, features=REVIEWS)
