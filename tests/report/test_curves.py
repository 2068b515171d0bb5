"""Curves of a training run: a table always, a picture where something can draw it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from uniproto.report.charts import save_curves

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
