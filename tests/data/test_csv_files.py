"""CSV files as people have them: encodings, separators, decimal commas, gaps, a nameless index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.data.tables import read_content
from uniproto.errors import DataWarning, InputFileError, InvalidInputError

ROWS = 60
RNG = np.random.default_rng(3)
TOWNS = ["Köln", "Besançon", "Malmö"]
FRAME = pd.DataFrame(
    {
        "town": RNG.choice(TOWNS, ROWS),
        "price": RNG.normal(20, 5, ROWS).round(2),
        "rooms": RNG.integers(1, 40, ROWS),
    }
)


def content(path: Path, **options: Any) -> pa.Table:
    return read_content(path, **options)[1]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_western_files_are_read_and_said_to_be(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "towns.csv"
    FRAME.to_csv(path, index=False, encoding=encoding)
    with pytest.warns(DataWarning, match="towns.csv is not UTF-8"):
        table = content(path)
    assert table.column("town").to_pylist() == FRAME["town"].tolist()
    assert content(path, encoding=encoding).column("town").to_pylist() == FRAME["town"].tolist()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_needs_no_word(encoding: str, tmp_path: Path) -> None:
    FRAME.rename(columns={"town": "Ort, ä"}).to_csv(
        tmp_path / "x.csv", index=False, encoding=encoding
    )
    table = content(tmp_path / "x.csv")
    assert table.column_names == ["Ort, ä", "price", "rooms"]
    assert table.column("Ort, ä").to_pylist() == FRAME["town"].tolist()


def test_a_letter_beyond_the_first_megabyte_counts_too(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"town,n\n" + b"Bonn,1\n" * 200_000 + "Köln,2\n".encode("latin-1"))
    with pytest.warns(DataWarning, match="UTF-8"):
        assert content(path).column("town")[-1].as_py() == "Köln"


def test_encodings_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("a,ф\n1,2\n".encode("cp1251"))
    with refused("encoding", InvalidInputError):
        content(path, encoding="klingon")
    with pytest.raises(InputFileError, match=r"x.csv is not written in ascii.*--encoding"):
        content(path, encoding="ascii")
    assert content(path, encoding="cp1251").column_names == ["a", "ф"]
    path.write_bytes(b"a,b\n1,\x81\n")  # which is no letter there either
    with pytest.warns(DataWarning), pytest.raises(InputFileError, match="--encoding"):
        content(path)


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
@pytest.mark.parametrize("decimal", [".", ","])
def test_separators_and_decimal_commas(mark: str, decimal: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    frame = FRAME.assign(note='a; b, c | "d"\nnext line')
    frame.to_csv(path, index=False, sep=mark, decimal=decimal)
    table = content(path)
    if mark == decimal == ",":  # then the numbers are quoted, and texts
        return
    pd.testing.assert_frame_equal(table.to_pandas(), frame, check_dtype=False)


def test_one_column_and_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("note\nhello; there\nagain\n")
    assert content(path).column("note").to_pylist() == ["hello; there", "again"]
    path.write_text("a;b\n")
    assert content(path).column_names == ["a", "b"]
    path.write_text("")
    with pytest.raises(InputFileError, match=r"x.csv"):
        content(path)


@pytest.mark.parametrize("gap", ["?", "-", "missing", "NA", "", "None", "n/a", ".."])
def test_words_for_gaps(gap: str, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"age,day\n1,2020-01-01\n{gap},{gap}\n3,2020-01-03\n")
    table = content(path)
    assert table.column("age").to_pylist() == [1, None, 3]
    assert table.column("day").null_count == 1


def test_the_index_of_pandas_is_no_column(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    FRAME.to_csv(path)
    assert content(path).column_names == list(FRAME.columns)
    FRAME.set_index(RNG.permutation(ROWS) * 7 + 1000).to_csv(path)
    assert content(path).column_names == ["index", *FRAME.columns]
    prepared = uniproto.select(path, 4).details.preparation
    assert "index" in prepared.aside
    path.write_text("a,b,\n1,2,\n3,4,\n")  # a separator at the end of every line
    assert content(path).column_names == ["a", "b"]


@pytest.mark.usefixtures("inside")
def test_the_command_says_how_it_read_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    FRAME.to_csv("towns.csv", sep=";", decimal=",", encoding="latin-1")
    assert main(["select", "towns.csv", "-k", "5", "-o", "out"]) == 0
    assert "uniproto: warning: towns.csv is not UTF-8" in capsys.readouterr().err
    assert set(pd.read_csv("out/prototypes.csv")["town"]) <= set(TOWNS)
    options = ["-k", "5", "--encoding", "latin-1", "-o", "named"]
    assert main(["select", "towns.csv", *options]) == 0
    assert main(["verify", "named"]) == 0
    assert capsys.readouterr().err == ""
    expected = uniproto.select(FRAME, 5).indices.tolist()
    for folder in ("out", "named"):
        assert uniproto.Selection.load(folder).indices.tolist() == expected


def test_nameless_columns_without_values_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text("a,b,,,\n1,2,,,\n3,4,NA,,\n")
    assert content(path).column_names == ["a", "b"]
    path.write_text("a,,\n1,2,3\n")
    with pytest.raises(InputFileError, match="the empty name"):
        content(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_quotes_that_are_never_closed(encoding: str, tmp_path: Path) -> None:
    """Otherwise all rows after them would be part of one text, without a word."""
    path = tmp_path / "notes.csv"
    path.write_text('a,note\n1,"good"\n2,"bad\n3,all\n4,these\n', encoding=encoding)
    with pytest.raises(InputFileError, match='never closed: "bad'):
        content(path)
    path.write_text('a,note\n1,good\n2,"two\nlines"\n', encoding=encoding)
    assert content(path).column("note").to_pylist() == ["good", "two\nlines"]


def test_errors_of_a_spreadsheet_are_gaps(tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    path.write_text("a,b\n1,2\n#DIV/0!,3\n5,#REF!\n")
    assert content(path).to_pydict() == {"a": [1, None, 5], "b": [2, 3, None]}
