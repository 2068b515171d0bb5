"""Whatever the user holds gives the same picks, and what cannot be read is refused in words."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from tests.reading import read_input
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.data.arrays import as_labels, as_matrix
from uniproto.data.tables import Input, read_content
from uniproto.errors import InputFileError, InvalidInputError, UniprotoError

M, D, K = 48, 4, 6
X = np.random.default_rng(7).normal(size=(M, D)).astype(np.float32)
NAMES = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(X, columns=NAMES)
TABLE = pa.table({name: X[:, i] for i, name in enumerate(NAMES)})
FIXED = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
LISTS = pa.array(X.tolist(), pa.list_(pa.float32()))
TENSOR = torch.tensor(X)

SOURCES = {
    "numpy": X,
    "numpy Fortran order": np.asfortranarray(X),
    "numpy big-endian": X.astype(">f4"),
    "numpy masked, nothing hidden": np.ma.masked_array(X),
    "numpy matrix": X.view(np.matrix),
    "pandas": FRAME,
    "pandas with a numeric index": FRAME.set_index(pd.Index(np.arange(M) ** 2, name="row")),
    "pandas with numbers as names": pd.DataFrame(X),
    "pandas list column": pd.DataFrame({"embedding": list(X)}),
    "pandas nullable": FRAME.astype("Float32"),
    "polars": pl.DataFrame(X, schema=NAMES),
    "polars list column": pl.DataFrame(
        {"embedding": X.tolist()}, schema={"embedding": pl.List(pl.Float32)}
    ),
    "polars array column": pl.DataFrame({"embedding": X}),
    "arrow": TABLE,
    "arrow in chunks": pa.concat_tables([TABLE.slice(0, 5), TABLE.slice(5)]),
    "arrow record batch": TABLE.to_batches()[0],
    "arrow list column": pa.table({"embedding": LISTS}),
    "arrow large list column": pa.table({"embedding": LISTS.cast(pa.large_list(pa.float32()))}),
    "arrow fixed-size list column": pa.table({"embedding": FIXED}),
    "arrow slice of a list column": pa.table(
        {"embedding": pa.chunked_array([pa.concat_arrays([FIXED, FIXED]).slice(M), FIXED])}
    ).slice(0, M),
    "arrow names used twice": pa.table([X[:, i] for i in range(D)], names=["a", "a", "b", "b"]),
    "torch": TENSOR,
    "torch with gradient": TENSOR.clone().requires_grad_(),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_container_is_the_same_float32_matrix(kind: str) -> None:
    matrix = as_matrix(SOURCES[kind], "source")
    assert type(matrix) is np.ndarray
    assert matrix.dtype == np.float32
    np.testing.assert_array_equal(matrix, X)


@pytest.mark.parametrize("kind", ["pandas with a numeric index", "polars", "arrow", "torch"])
def test_every_container_gives_the_same_picks(kind: str) -> None:
    expected = uniproto.select(X, K)
    found = uniproto.select(SOURCES[kind], K, target=SOURCES[kind])
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.cost == pytest.approx(expected.cost, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (X.astype(np.float64), np.float64),
        (X.astype(np.float16), np.float32),
        ((X * 10).astype(np.int8), np.float32),
        ((X * 10).astype(np.int16), np.float32),
        ((X * 10).astype(np.int32), np.float64),
        (X > 0, np.float32),
        (TENSOR.half(), np.float32),
        (TENSOR.bfloat16(), np.float32),
        (TENSOR.double(), np.float64),
        (FRAME.assign(d=FRAME["d"].astype(np.float64)), np.float64),
        (FRAME.assign(d=FRAME["d"] > 0), np.float32),
        (sp.csr_array(X), np.float32),
    ],
)
def test_precision(values: object, dtype: type) -> None:
    assert as_matrix(values, "source").dtype == dtype


NO_TABLES = {
    "polars null": (pl.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]}), "1 in column 'a'"),
    "pandas null": (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "1 in column 'a'"),
    "pandas NaN": (pd.DataFrame({"a": [1.0, np.nan]}), "missing"),
    "text column": (pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"]}), "name"),
    "two list columns": (pa.table({"a": [[1.0]], "b": [[2.0]]}), "one list column"),
    "uneven lists": (pa.table({"a": [[1.0], [1.0, 2.0]]}), "one length (got 1 to 2)"),
    "null in a list": (pa.table({"a": [[1.0, None], [1.0, 2.0]]}), "no missing features"),
    "null list": (pa.table({"a": [[1.0, 2.0], None]}), "no missing features"),
    "lists of text": (pa.table({"a": [["x"], ["y"]]}), "lists of numbers, not of string"),
    "lists of lists": (pa.table({"a": [[[1.0]], [[2.0]]]}), "lists of numbers, not of list"),
    "empty lists": (pa.table({"a": pa.array([[], []], pa.list_(pa.float32()))}), "(2, 0)"),
    "no rows": (FRAME.iloc[:0], "0 rows"),
    "no columns": (FRAME[[]], "0 columns"),
    "pandas names used twice": (pd.DataFrame(X, columns=[*"aabc"]), "a twice"),
    "pandas mixed column": (pd.DataFrame({"a": [1, "x"]}), "a (large_string)"),
    "pandas series": (pd.Series(list(X)), "to_frame()"),
    "polars series": (pl.Series(X), "to_frame()"),
    "polars lazy": (pl.DataFrame(X).lazy(), "object"),
    "torch sparse": (TENSOR.to_sparse(), "Sparse"),
    "torch complex": (TENSOR.to(torch.complex64), "complex64"),
    "no missing values": (np.ma.masked_greater(X, 1), "no missing values"),
    "ragged": ([[1.0], [1.0, 2.0]], "same length"),
    "text": (np.array([["x"]]), "<U1"),
    "one dimension": (X[0], "shape (4,)"),
    "nothing": (None, "object"),
}


@pytest.mark.parametrize("kind", NO_TABLES)
def test_what_is_no_table_of_numbers_is_refused(kind: str) -> None:
    values, words = NO_TABLES[kind]
    with pytest.raises(InvalidInputError) as caught:
        as_matrix(values, "source")
    assert "'source'" in str(caught.value)
    assert words in str(caught.value)


LABELS = ["x", "y"] * (M // 2)


@pytest.mark.parametrize(
    "values",
    [
        LABELS,
        np.array(LABELS),
        pd.Series(LABELS, index=range(M, 0, -1)),
        pd.Categorical(LABELS),
        pl.Series(LABELS),
        pl.Series(LABELS).cast(pl.Categorical),
        pa.array(LABELS),
        pa.chunked_array([LABELS]),
        pa.array(LABELS).dictionary_encode(),
    ],
    ids=lambda values: f"{type(values).__module__}.{type(values).__name__}",
)
def test_labels_of_every_kind(values: object) -> None:
    assert as_labels(values, "groups", M).tolist() == LABELS


@pytest.mark.parametrize(
    "values",
    [
        [None, "x"],
        [1.0, np.nan],
        pd.Series(["x", None]),
        pd.array(["x", None], dtype="string"),
        pd.array([1, None], dtype="Int64"),
        pd.Series(["x", pd.NA], dtype=object),
        pd.to_datetime(pd.Series(["2020-01-01", None])),
        pl.Series([1, None]),
        pa.array(["x", None]),
        [[1], [1, 2]],
        [[1, 2], [1, 2]],
        ["x", "y", "z"],
        "xy",
        pytest.param({"x", "y"}, id="set"),  # whose words come in any order
    ],
    ids=lambda values: f"{type(values).__name__} {str(values)[:20]!r}",
)
def test_labels_that_are_missing_or_misshapen(values: object) -> None:
    with refused("groups", InvalidInputError):
        as_labels(values, "groups", 2)


# Files


@pytest.fixture
def table() -> pa.Table:
    return pa.table(
        {
            "name": [f"n{i}é" for i in range(M)],
            "number": np.arange(M),
            "embedding": LISTS,
        }
    )


def write_jsonl(path: Path, table: pa.Table) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), "utf-8")


def test_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "one.npz", anything=X)
    np.savez_compressed(tmp_path / "two.npz", wanted=X, pickled=np.array([{}], object))
    for data in (
        read_input(tmp_path / "x.npy"),
        read_input(tmp_path / "one.npz"),
        read_input(tmp_path / "two.npz", column="wanted"),
    ):
        assert data.features.dtype == np.float32
        np.testing.assert_array_equal(data.features, X)
        assert data.table is None
    with pytest.raises(InputFileError, match=r"--column must name one of pickled, wanted"):
        read_input(tmp_path / "two.npz")
    with refused("column", InputFileError):
        read_input(tmp_path / "two.npz", column="wnted")
    with refused("column", InvalidInputError):
        read_input(tmp_path / "x.npy", column="x")


def test_numpy_files_with_the_ending_of_the_other(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "y.npz", X)
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    (tmp_path / "y.npz").rename(tmp_path / "y.npy")
    for name in ("x.npz", "y.npy"):
        np.testing.assert_array_equal(read_input(tmp_path / name).features, X)


@pytest.mark.parametrize("kind", ["list", "fixed-size list", "large list", "numbers"])
def test_parquet(tmp_path: Path, table: pa.Table, kind: str) -> None:
    columns = {
        "list": {"embedding": LISTS},
        "fixed-size list": {"embedding": FIXED},
        "large list": {"embedding": LISTS.cast(pa.large_list(pa.float32()))},
        "numbers": dict(zip(NAMES, X.T, strict=True)),
    }[kind]
    names = table.select(["name", "number"])
    for name, values in columns.items():
        names = names.append_column(name, pa.array(values))
    pq.write_table(names, tmp_path / "x.parquet", row_group_size=20)
    data = read_input(tmp_path / "x.parquet", aside=["name", "number"])
    assert data.features.dtype == np.float32
    np.testing.assert_array_equal(data.features, X)
    assert data.feature_columns == tuple(columns)
    assert data.column("name", "--id").tolist() == table["name"].to_pylist()
    np.testing.assert_array_equal(data.column("number", "--id"), np.arange(M))


def test_the_folder_of_a_parquet_file_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "part=3").mkdir()
    pq.write_table(TABLE, tmp_path / "part=3" / "x.parquet")
    assert read_input(tmp_path / "part=3" / "x.parquet").feature_columns == tuple(NAMES)


@pytest.mark.parametrize("name", [None, "document"])
def test_the_index_pandas_stores_in_parquet_is_no_feature(tmp_path: Path, name: str | None) -> None:
    FRAME.set_index(pd.Index(np.arange(M) ** 2, name=name)).to_parquet(tmp_path / "x.parquet")
    data = read_input(tmp_path / "x.parquet")
    np.testing.assert_array_equal(data.features, X)
    stored = name or "__index_level_0__"
    np.testing.assert_array_equal(data.column(stored, "--id"), np.arange(M) ** 2)


def test_csv(tmp_path: Path) -> None:
    FRAME.assign(name='quoted\n"é"').to_csv(tmp_path / "x.csv", index=False)
    data = read_input(tmp_path / "x.csv", aside=["name"])
    np.testing.assert_allclose(data.features, X, rtol=1e-6)
    assert data.column("name", "--id")[-1] == 'quoted\n"é"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.5,0.1\n1,2\n", "first line must name the columns"),
        ("-1,0\n1,2\n", "first line must name the columns"),
        ("a,a\n1,2\n", "a is there more than once"),
        ("a,b\n", "0 rows"),
        ("", "is empty"),
        ("a,b\n1\n", "a line of 1 columns, and others of 2: 1"),
        ('a;b;c\n1;2;3\n4;"5;6\n', "Close its quotes"),
        ("a,b\n1,x\n", "b (string)"),
        ("a,b\n1,\n", "b (null)"),
        ("a,b\n1,\n2,3\n", "1 in column 'b'"),
        ("a,b\n1,2020-01-01\n", "b (date32"),
    ],
)
def test_csv_that_is_no_table_of_numbers(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UniprotoError) as caught:
        assert read_input(tmp_path / "x.csv").features is None
    assert words in str(caught.value)
    assert "x.csv" in str(caught.value)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("é,b\n1,2\n".encode("latin-1"))
    (tmp_path / "x.jsonl").write_bytes('{"a": 1, "name": "é"}\n'.encode("latin-1"))
    for name in ("x.csv", "x.jsonl"):
        with pytest.raises(InputFileError, match="UTF-8"):
            read_input(tmp_path / name, aside=["name"])


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_lines_of_more_than_a_megabyte(tmp_path: Path, ending: str) -> None:
    text = "word " * 300_000
    frame = pd.DataFrame({"text": [text] * 3, "a": [1.5, 2.5, 3.5], "b": [1, 2, 3]})
    path = tmp_path / f"x.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    data = read_input(path, aside=["text"])
    assert data.features.tolist() == [[1.5, 1], [2.5, 2], [3.5, 3]]
    assert data.column("text", "--id")[2] == text


def test_jsonl(tmp_path: Path, table: pa.Table) -> None:
    write_jsonl(tmp_path / "x.jsonl", table)
    data = read_input(tmp_path / "x.jsonl", aside=["name", "number"])
    np.testing.assert_array_equal(data.features.astype(np.float32), X)
    assert data.column("name", "--id")[1] == "n1é"
    np.testing.assert_array_equal(read_input(tmp_path / "x.jsonl", "embedding").features[3], X[3])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n\r\n", "is empty"),
        ("[1, 2]\n", "could not be read"),
        ('{"a": 1}\n[1]\n', "could not be read"),
        ('{"a": 1}\n{"a": "x"}\n', "a (string)"),
        ('{"a": 1}\n{"a": [1]}\n', "every value of a must be of one kind"),
        ('{"a": 1, "b": {"c": 1}}\n', "b (struct"),
        ('{"a": 1, "b": {}}\n', "fit into a .parquet file"),
        ('{"a": 1}\n{"b": 1}\n', "missing"),
        ('{"a": [1, 2]}\n{"a": [1]}\n', "one length (got 1 to 2)"),
    ],
)
def test_jsonl_that_is_no_table_of_numbers(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(UniprotoError) as caught:
        assert read_input(tmp_path / "x.jsonl").features is None
    assert words in str(caught.value)


COLUMNS = {
    "text": (pa.array(["x", "é"]), ["x", "é"]),
    "large text": (pa.array(["x", "y"], pa.large_string()), ["x", "y"]),
    "categories": (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    "integers": (pa.array([2**63 + 1, 2], pa.uint64()), [2**63 + 1, 2]),
    "truth": (pa.array([True, False]), [True, False]),
    "dates": (pa.array([0, 1], pa.date32()), ["1970-01-01", "1970-01-02"]),
    "decimals": (pa.array(["1.50", "2.00"]).cast(pa.decimal128(9, 2)), ["1.50", "2.00"]),
    "lists": (pa.array([[1], [2]]), None),
    "objects": (pa.array([{"x": 1}, {"x": 2}]), None),
    "bytes": (pa.array([b"\xff", b"x"]), None),
    "nothing": (pa.nulls(2), None),
    "gaps in text": (pa.array(["x", None]), None),
    "gaps in numbers": (pa.array([1, None]), None),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_named_columns(kind: str) -> None:
    values, expected = COLUMNS[kind]
    data = Input(pa.table({"name": values}), Path("x.parquet"))
    if expected is None:
        with refused("--id", InvalidInputError):
            data.column("name", "--id")
    else:
        assert data.column("name", "--id").tolist() == expected


def test_target_columns_are_matched_by_name(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "pool.csv", index=False)
    FRAME[["d", "b", "a", "c"]].to_csv(tmp_path / "target.csv", index=False)
    FRAME.rename(columns={"d": "e"}).to_csv(tmp_path / "other.csv", index=False)
    pool = read_input(tmp_path / "pool.csv")
    target = read_input(tmp_path / "target.csv").with_features(like=pool)
    np.testing.assert_array_equal(target.features, pool.features)
    with refused("features", InputFileError):
        read_input(tmp_path / "other.csv").with_features(like=pool)


# Files that must not be trusted


class Payload:
    """Unpickling this makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def test_a_pickle_is_refused_and_never_run(tmp_path: Path) -> None:
    payload = Payload(tmp_path / "ran")
    np.save(tmp_path / "object.npy", np.array([payload], object), allow_pickle=True)
    np.savez(tmp_path / "object.npz", x=np.array([payload], object))
    np.savez(tmp_path / "both.npz", x=X, y=np.array([payload], object))
    for name in ("raw.npy", "raw.npz"):
        (tmp_path / name).write_bytes(pickle.dumps(payload))
    for name in ("object.npy", "object.npz", "raw.npy", "raw.npz"):
        with pytest.raises(InputFileError, match=r"Pickled Python objects.*never loaded"):
            read_input(tmp_path / name)
    with pytest.raises(InputFileError, match="Pickled"):
        read_input(tmp_path / "both.npz", "y")
    np.testing.assert_array_equal(read_input(tmp_path / "both.npz", "x").features, X)
    assert not payload.trace.exists()
    with refused("source", ValueError):
        as_matrix(np.array([[payload]], object), "source")
    pickle.loads(pickle.dumps(payload))  # the trap does work
    assert payload.trace.exists()


def test_missing_file_folder_and_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"none.npy: there is no such file"):
        read_input(tmp_path / "none.npy")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(InputFileError, match=r"folder.parquet is a folder without .parquet files"):
        read_input(tmp_path / "folder.parquet")
    for name in ("x.txt", "x", "x.csv.gz"):
        with pytest.raises(InputFileError, match=r"jsonl, .jsonl.zst, .npy"):
            read_input(tmp_path / name)
    with pytest.raises(OSError):
        read_input(tmp_path / ("x" * 300 + ".npy"))


# --- codes of digits ------------------------------------------------------------------------------


def test_codes_in_a_csv_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text(
        "customer,zip,month,price,mass\n"
        "12345678901234567890,01182,01,7,1e30\n"
        "12345678901234567891,,12,8,2e30\n"
    )
    _, table = read_content(path)
    assert table.column("customer").to_pylist() == ["12345678901234567890", "12345678901234567891"]
    assert table.column("zip").to_pylist() == ["01182", None]
    assert table.column("month").to_pylist() == [1, 12]
    assert table.column("price").to_pylist() == [7, 8]
    assert table.column("mass").to_pylist() == [1e30, 2e30]


def test_whole_numbers_beyond_64_bits_in_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "codes.jsonl"
    path.write_text(
        '{"id": 12345678901234567890, "mass": 1e30, "x": 1}\n\n'
        '{"id": null, "mass": 2e30,\n "x": 2}\n{"id": 17, "x": 3}\n'
    )
    _, table = read_content(path)
    assert table.column("id").to_pylist() == ["12345678901234567890", None, "17"]
    assert table.column("mass").to_pylist() == [1e30, 2e30, None]
    assert table.column("x").to_pylist() == [1, 2, 3]


def test_a_sample_of_a_pool_with_ids_can_be_verified(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    lines = [f"{5000 + 7 * row},{x:.4f},{y:.4f}" for row, (x, y) in enumerate(rows * [1, 50])]
    pool = tmp_path / "pool.csv"
    pool.write_text("\n".join(["customer_id,x,y", *lines]) + "\n")
    out = str(tmp_path / "out")
    command = ["select", str(pool), "-k", "4", "--target-sample", "30", "-o", out, "--quiet"]
    assert main(command) == 0
    assert main(["verify", out]) == 0
