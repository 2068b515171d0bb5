"""The end of an experiment in parts: made anew from its runs each time, and told."""

from __future__ import annotations

import json
from pathlib import Path

import altair as alt
import pyarrow.csv
import pytest

from support.joined import Rows, publish_joined
from support.runs import Setup


def told(rows: Rows) -> str:
    return f"best: {min(row['cost'] for row in rows)}"


def dots(rows: Rows) -> alt.Chart:
    return alt.Chart(alt.Data(values=rows)).mark_point().encode(x="cost:Q")


@pytest.mark.slow
def test_joined_rows_are_made_anew_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = Setup(None, tmp_path, quick=True)
    early = [{"run": "a", "cost": 0.5}, {"run": "a", "cost": 0.25}]
    publish_joined(setup, "trial", early, told, dots)
    publish_joined(setup, "trial", [*early, {"run": "b", "cost": 0.125}], told, dots)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "best: 0.125",
        "",
        f"written to {tmp_path}",
    ]
    table = pyarrow.csv.read_csv(tmp_path / "trial.csv")
    assert table.to_pydict() == {"run": ["a", "a", "b"], "cost": [0.5, 0.25, 0.125]}
    assert (tmp_path / "trial.txt").read_text() == "best: 0.125\n"
    assert (tmp_path / "trial.png").exists()
    assert json.loads((tmp_path / "trial.json").read_text())["settings"] == {"quick": True}
